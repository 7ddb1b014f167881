package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/regiond/regiond/internal/load"
)

// TestBench: it admits what a limit allows and not one more, since what it asks for are checks, and its own account is the daemons'.
// Each target gets its turn, the cost is charged, the warm-up too.
func TestBench(t *testing.T) {
	one, two := start(t, inMemory), start(t, inMemory)
	args := []string{"bench", "--target", one.url, "--target", strings.TrimPrefix(two.url, "http://"), "--warmup", "0s", "--timeout", "10s"}
	got := invoke(t, append(args, "--json", "--rate", "200", "--for", "500ms", "--tenants", "3", "--zipf", "0")...)
	var r load.Result
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 0 || got.stderr != "" {
		t.Fatalf("%v: %+v", err, got)
	}
	if r.Due != 100 || r.Sent != 100 || r.Answered != 100 || r.Allowed != 2*3*5 || r.Denied != 70 || r.Failed != 0 || r.EndedEarly || r.Latency.P50 <= 0 {
		t.Errorf("three tenants with 5 units in each of two regions: %+v", r)
	}
	got = invoke(t, append(args, "--rate", "100", "--warmup", "100ms", "--for", "100ms", "--tenants", "1", "--tenant-prefix", "acme", "--cost", "5", "--policy", "opening")...)
	for _, want := range []string{"100/s for 100ms after 100ms of warm-up; 1 tenant, zipf 1, cost 5, policy opening", "10 of 10 that were due", "0 allowed, 10 denied", one.url, two.url} {
		if !strings.Contains(got.stdout, want) || got.code != 0 || got.stderr != "" {
			t.Errorf("it does not say %q: %+v", want, got)
		}
	}
	for _, p := range []*program{one, two} {
		for _, used := range []string{"bench-1", "bench-2", "bench-3", "acme1?policy=opening"} {
			if _, body := get(t, p.url+"/v1/usage/"+used); !strings.Contains(body, `"remaining":0`) {
				t.Errorf("%s: %s", used, body)
			}
		}
	}
}

// TestBenchFailing: what got no decision is an exit code too.
func TestBenchFailing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, `{"basis": "exact"}`)
	}))
	defer s.Close()
	if got := invoke(t, "bench", "--target", s.URL, "--for", "10ms", "--warmup", "0s"); got.code != 1 || !strings.Contains(got.stdout, "10 status 500") {
		t.Errorf("%+v", got)
	}
}

// TestBenchBeforeItBegins: a mistake costs one line, and nothing is sent.
func TestBenchBeforeItBegins(t *testing.T) {
	p := start(t, inMemory)
	s := session{replace: []string{p.url, "http://REGIOND", p.admin, "http://ADMIN", strings.TrimPrefix(p.url, "http://"), "REGIOND", HowStarted(), "regiond"}}
	for _, args := range [][]string{
		{"--policy", "gold"},
		{"--cost", "1-6"},
		{"--tenant-prefix", "a{"},
		{"--target", p.admin},
		{"--target", p.url + "/elsewhere"},
		{"--token-file", "testdata/absent"},
		{"--ca-file", "testdata/absent"},
	} {
		s.run(t, append(append([]string{"bench", "--for", "1s"}, args...), "--target", p.url)...)
	}
	p.stop()
	s.run(t, "bench", "--target", p.url)
	s.compare(t, "bench")
}
