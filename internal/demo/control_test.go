package demo_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/internal/demo"
	"github.com/regiond/regiond/test/ports"
)

// control serves cuts as an admin listener does, and returns the port of the demo that it would belong to.
func control(t *testing.T, h http.Handler) (port int) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port - demo.AdminOffset
}

func TestControl(t *testing.T) {
	c := demo.NewCuts(demo.Regions())
	port := control(t, http.StripPrefix("/demo", demo.NewControl(c, demo.NewDemand())))
	for _, step := range []struct {
		verb, region string
		cut          []string
	}{
		{"heal", "eu-west", []string{}},
		{"cut", "eu-west", []string{"eu-west"}},
		{"cut", "eu-west", []string{"eu-west"}},
		{"cut", "ap-south", []string{"eu-west", "ap-south"}},
		{"heal", "eu-west", []string{"ap-south"}},
		{"heal", "ap-south", []string{}},
	} {
		got, err := demo.Ask(t.Context(), port, step.verb, step.region)
		if err != nil {
			t.Fatal(err)
		}
		want := &demo.Change{Region: step.region, Off: step.verb == "cut", Cut: step.cut}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", step.verb, step.region, diff)
		}
		if diff := cmp.Diff(step.cut, c.Off()); diff != "" {
			t.Errorf("after %s %s these are cut (-want +got):\n%s", step.verb, step.region, diff)
		}
	}
	if _, err := demo.Ask(t.Context(), port, "cut", "mars"); err == nil || !strings.Contains(err.Error(), `there is no region "mars" here; there are eu-west, us-east, ap-south`) {
		t.Errorf("of a region that is none: %v", err)
	}
	// A page of another origin cannot make cuts.
	foreign := httptest.NewRequest(http.MethodPost, "/cut/eu-west", http.NoBody)
	foreign.Header.Set("Sec-Fetch-Site", "cross-site")
	answer := httptest.NewRecorder()
	if demo.NewControl(c, demo.NewDemand()).ServeHTTP(answer, foreign); answer.Code != http.StatusForbidden {
		t.Errorf("a page of another origin: %d", answer.Code)
	}
}

func TestAskWithoutDemo(t *testing.T) {
	if _, err := demo.Ask(t.Context(), ports.Take(t)-demo.AdminOffset, "cut", "eu-west"); !errors.Is(err, demo.ErrNotRunning) {
		t.Errorf("nobody there: %v", err)
	}
	for _, body := range []string{"", "hello", "{}", `{"region":"eu-west","price":3}`, `{"refusal":""}`} {
		for _, status := range []int{http.StatusOK, http.StatusNotFound} {
			other := control(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				w.Write([]byte(body))
			}))
			_, err := demo.Ask(t.Context(), other, "cut", "eu-west")
			if err == nil || !strings.Contains(err.Error(), "is no regiond demo") || errors.Is(err, demo.ErrNotRunning) {
				t.Errorf("something else that answers %d %q: %v", status, body, err)
			}
		}
	}
}

func TestDemand(t *testing.T) {
	d := demo.NewDemand()
	if d.Rate() != 12 {
		t.Errorf("the demand begins at %d", d.Rate())
	}
	for rate, want := range map[string]int64{"1": 1, "60": 60} {
		if err := d.Set(rate); err != nil || d.Rate() != want {
			t.Errorf("%s: %v, and the demand is %d", rate, err, d.Rate())
		}
	}
	before := d.Rate()
	for _, rate := range []string{"0", "-1", "61", "1e3", "", "twelve"} {
		if err := d.Set(rate); err == nil || d.Rate() != before {
			t.Errorf("%q: %v, and the demand is %d", rate, err, d.Rate())
		}
	}
}
