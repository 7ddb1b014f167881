package daemon

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/regiond/regiond/test/redisserver"
)

// TestServeWithoutConfiguration is the README's first command.
func TestServeWithoutConfiguration(t *testing.T) {
	p := build(t, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if a := p.daemon.dataAt.Addr().String(); strings.HasSuffix(a, ":8080") {
		t.Errorf("--http is not heard: it listens on %s", a)
	}
	p.run(t)
	a := p.check(t, "acme")
	a.is(t, http.StatusOK)
	if d := a.decision(t); d.rests() != "exact/global" || d.Limit != 20 {
		t.Errorf("the first answer: %+v", d)
	}
	// Nobody configured a gateway, so nobody is let through as one.
	p.ask(t, http.MethodGet, "/v1/authz", "", "X-Tenant: acme").is(t, http.StatusForbidden)
}

// TestGreeting: the line to try is one that works, and names what is served.
func TestGreeting(t *testing.T) {
	p := build(t, "--http", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--text")
	p.run(t)
	var said strings.Builder
	p.daemon.Banner(&said)
	m := regexp.MustCompile(`curl -s -d '(\{.*\})' (http://127\.0\.0\.1:\d+)(/v1/check)`).FindStringSubmatch(said.String())
	if m == nil {
		t.Fatalf("it greets with\n%s", said.String())
	}
	c := newClient(t, m[2], nil)
	c.ask(t, http.MethodPost, m[3], m[1], "Content-Type: application/x-www-form-urlencoded").is(t, http.StatusOK)
	if !strings.Contains(said.String(), "http://"+p.daemon.adminAt.Addr().String()) || !strings.Contains(said.String(), "in memory") {
		t.Errorf("it greets with\n%s", said.String())
	}
}

// TestThreeProcessesAdmitExactlyTheLimit: 64 clients ask three processes that
// share one Redis, all at once.
func TestThreeProcessesAdmitExactlyTheLimit(t *testing.T) {
	const limit, clients, each = 100, 64, 4
	topology := strings.ReplaceAll(onRedis(redisserver.Start(t, redisserver.Options{}).Addr()), "units: 5,", fmt.Sprintf("units: %d,", limit))
	var programs []*program
	for i := range 3 {
		programs = append(programs, start(t, topology, "--instance", fmt.Sprintf("p%d", i)))
	}
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range clients {
		wg.Go(func() {
			<-gate
			for range each {
				a, err := programs[i%3].try(t.Context(), http.MethodPost, "/v1/check", `{"tenant":"acme"}`)
				switch {
				case err != nil:
					t.Error(err)
				case strings.Contains(a.body, `"mode":"local"`):
					t.Errorf("a healthy Redis was taken for away: %s", a.body)
				case a.status == http.StatusOK:
					admitted.Add(1)
				case a.status == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("status %d: %s", a.status, a.body)
				}
			}
		})
	}
	close(gate)
	wg.Wait()
	if admitted.Load() != limit || refused.Load() != clients*each-limit {
		t.Errorf("%d admitted and %d refused, want %d and %d", admitted.Load(), refused.Load(), limit, clients*each-limit)
	}
}
