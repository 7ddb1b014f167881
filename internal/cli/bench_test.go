package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/regiond/regiond/internal/load"
)

// benched runs `bench` against p and reads what it prints as JSON.
func benched(t *testing.T, code int, args ...string) *load.Result {
	t.Helper()
	got := invoke(t, append([]string{"bench", "--json"}, args...)...)
	r := &load.Result{}
	if err := json.Unmarshal([]byte(got.stdout), r); err != nil || got.code != code || got.stderr != "" {
		t.Fatalf("%v: exit %d, %v\n%s%s", args, got.code, err, got.stdout, got.stderr)
	}
	return r
}

// TestBench: it admits what a limit allows and not one more, since what it asks for
// are checks, and its own account is the daemon's.
func TestBench(t *testing.T) {
	p := start(t, inMemory)
	r := benched(t, 0, "--target", p.url, "--rate", "200", "--for", "500ms", "--warmup", "0s", "--tenants", "3", "--zipf", "0", "--timeout", "10s")
	if r.Due != 100 || r.Sent != 100 || r.Answered != 100 || r.Allowed != 3*5 || r.Denied != 85 || r.Failed != 0 || r.EndedEarly {
		t.Errorf("three tenants with 5 units each: %+v", r)
	}
	for tenant := 1; tenant <= 3; tenant++ {
		if _, body := get(t, fmt.Sprintf("%s/v1/usage/bench-%d", p.url, tenant)); !strings.Contains(body, `"remaining":0`) {
			t.Errorf("bench-%d: %s", tenant, body)
		}
	}
	answers := int64(0)
	for _, a := range r.Answers {
		if a.What != "exact/global" && a.What != "cached/global" {
			t.Errorf("%+v", a)
		}
		answers += a.N
	}
	if answers != 100 || len(r.Targets) != 1 || r.Targets[0].URL != p.url || r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P50 {
		t.Errorf("%+v", r)
	}
}

// TestBenchSeveralTargets: each gets its turn, the cost is charged, the warm-up too,
// and the table names them.
func TestBenchSeveralTargets(t *testing.T) {
	one, two := start(t, inMemory), start(t, inMemory)
	got := invoke(t, "bench", "--target", one.url, "--target", strings.TrimPrefix(two.url, "http://"), "--rate", "100", "--warmup", "100ms", "--for", "100ms",
		"--tenants", "1", "--tenant-prefix", "acme", "--cost", "5", "--timeout", "10s", "--policy", "opening")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{"100/s for 100ms after 100ms of warm-up; 1 tenant, zipf 1, cost 5, policy opening", "10 of 10 that were due", "0 allowed, 10 denied", one.url, two.url} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, got.stdout)
		}
	}
	for _, p := range []*program{one, two} {
		if _, body := get(t, p.url+"/v1/usage/acme1?policy=opening"); !strings.Contains(body, `"remaining":0`) {
			t.Error(body)
		}
	}
}

// awaitCharge returns when bench-1 has been charged.
func awaitCharge(t *testing.T, p *program) {
	for t.Context().Err() == nil {
		if _, body := get(t, p.url+"/v1/usage/bench-1"); !strings.Contains(body, `"remaining":5`) {
			return
		}
	}
}

// TestBenchFailing: what got no decision is an exit code too, and the kind of trouble
// is named with its first case. The daemon goes away in the middle.
func TestBenchFailing(t *testing.T) {
	p := start(t, inMemory)
	go func() {
		awaitCharge(t, p)
		p.stop()
	}()
	r := benched(t, 1, "--target", p.url, "--tenants", "1", "--rate", "100", "--for", "3s", "--warmup", "0s", "--timeout", "10s")
	if r.Answered == 0 || r.Failed == 0 || r.Answered+r.Failed != r.Sent || len(r.Errors) == 0 || r.Errors[0].What != "connection refused" || r.Errors[0].Detail == "" {
		t.Errorf("%+v", r)
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
