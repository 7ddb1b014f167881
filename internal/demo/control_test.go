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
