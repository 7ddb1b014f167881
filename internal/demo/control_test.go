package demo_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/internal/demo"
)

// control serves cuts and returns where.
func control(t *testing.T, c *demo.Cuts) string {
	t.Helper()
	s := httptest.NewServer(demo.NewControl(c, demo.NewDemand()))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestControl(t *testing.T) {
	c := demo.NewCuts(demo.Regions())
	addr := control(t, c)
	for _, step := range []struct {
		verb, region string
		changed      bool
		cut          []string
	}{
		{"heal", "eu-west", false, []string{}},
		{"cut", "eu-west", true, []string{"eu-west"}},
		{"cut", "eu-west", false, []string{"eu-west"}},
		{"cut", "ap-south", true, []string{"eu-west", "ap-south"}},
		{"heal", "eu-west", true, []string{"ap-south"}},
		{"heal", "ap-south", true, []string{}},
	} {
		got, err := demo.Ask(t.Context(), addr, step.verb, step.region)
		if err != nil {
			t.Fatal(err)
		}
		want := &demo.Change{Region: step.region, Off: step.verb == "cut", Changed: step.changed, Cut: step.cut, Regions: demo.Regions()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", step.verb, step.region, diff)
		}
		if diff := cmp.Diff(step.cut, c.Off()); diff != "" {
			t.Errorf("after %s %s these are cut (-want +got):\n%s", step.verb, step.region, diff)
		}
	}
}

// TestControlRefusesOtherOrigins: a page that a browser shows cannot make cuts.
func TestControlRefusesOtherOrigins(t *testing.T) {
	c := demo.NewCuts(demo.Regions())
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/cut/eu-west", http.NoBody)
	r.Host = "127.0.0.1"
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	demo.NewControl(c, demo.NewDemand()).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || len(c.Off()) != 0 {
		t.Errorf("status %d, cut: %v", w.Code, c.Off())
	}
}

// TestControlRefusesOtherHosts: a page whose name was made to resolve to here (DNS rebinding) is of the same origin
// for its browser.
func TestControlRefusesOtherHosts(t *testing.T) {
	for host, want := range map[string]int{
		"evil.example:9093": 421, "127.0.0.1.evil.example": 421, "": 200,
		"127.0.0.1:9093": 200, "192.0.2.1:9093": 200, "localhost:9093": 200, "[::1]:9093": 200, "eu.localhost": 200,
	} {
		c := demo.NewCuts(demo.Regions())
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/cut/eu-west", http.NoBody)
		r.Host = host
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		demo.NewControl(c, demo.NewDemand()).ServeHTTP(w, r)
		if w.Code != want || (len(c.Off()) == 1) != (want == 200) {
			t.Errorf("under %s: %d, cut: %v", host, w.Code, c.Off())
		}
	}
}

func TestAskWithoutDemo(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if _, err := demo.Ask(t.Context(), gone.Listener.Addr().String(), "cut", "eu-west"); !errors.Is(err, demo.ErrNotRunning) {
		t.Errorf("nobody there: %v", err)
	}
	for _, body := range []string{"", "hello", "{}", `{"region":"eu-west","price":3}`, `{"refusal":""}`} {
		for _, status := range []int{http.StatusOK, http.StatusNotFound} {
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				w.Write([]byte(body))
			}))
			_, err := demo.Ask(t.Context(), other.Listener.Addr().String(), "cut", "eu-west")
			if err == nil || !strings.Contains(err.Error(), "is no regiond demo") || errors.Is(err, demo.ErrNotRunning) {
				t.Errorf("something else that answers %d %q: %v", status, body, err)
			}
			other.Close()
		}
	}
}
