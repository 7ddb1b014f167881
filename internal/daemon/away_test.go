package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/test/redisserver"
)

// margin is what a starved machine may add to the time of an answer before a test
// says that it hung.
const margin = 450 * time.Millisecond

// local checks an answer that was given without Redis, as soon as any answer is.
func (a answer) local(t *testing.T, status int, basis string) {
	t.Helper()
	a.localWithin(t, status, basis, 50*time.Millisecond)
}

// localWithin is local where an answer may take that long.
func (a answer) localWithin(t *testing.T, status int, basis string, deadline time.Duration) {
	t.Helper()
	a.is(t, status)
	d := a.decision(t)
	if d.rests() != basis+"/local" || !slices.Contains([]string{"redis_down", "redis_timeout", "breaker_open"}, d.Reason) {
		t.Errorf("without Redis the answer rests on %s, reason %q; want %s/local and why", d.rests(), d.Reason, basis)
	}
	if a.took > deadline+margin {
		t.Errorf("the answer took %v, and %v is how long it may", a.took, deadline)
	}
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func TestRedisGoesAndComesBack(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	p := start(t, onRedis(srv.Addr()))
	for range 3 {
		a := p.check(t, "acme")
		a.is(t, http.StatusOK)
		if d := a.decision(t); d.rests() != "exact/global" {
			t.Fatalf("with Redis there the answer rests on %s", d.rests())
		}
	}

	srv.Kill()
	// What this process admitted before counts: three of five are gone.
	p.check(t, "acme").local(t, http.StatusOK, "local")
	p.check(t, "acme").local(t, http.StatusOK, "local")
	for range 3 {
		a := p.check(t, "acme")
		a.local(t, http.StatusTooManyRequests, "local")
		a.problem(t)
		if a.header.Get("Retry-After") == "" {
			t.Error("a denial without Redis has no Retry-After")
		}
	}
	for range 7 { // over the limit of 5: nobody counts
		p.check(t, "openly").local(t, http.StatusOK, "open")
	}
	p.check(t, "closely").local(t, http.StatusServiceUnavailable, "closed")
	closed := p.ask(t, http.MethodGet, "/v1/authz/", "", "X-Tenant: closely")
	closed.is(t, http.StatusTooManyRequests) // a gateway would take 503 for an outage of regiond
	if d := closed.problem(t); !strings.HasSuffix(d.Type, "#temporary-reduced-capacity") {
		t.Errorf("closed at a gateway is of type %s", d.Type)
	}
	p.ask(t, http.MethodGet, "/v1/authz/", "", "X-Tenant: openly").is(t, http.StatusOK)
	p.ask(t, http.MethodGet, "/v1/authz-nginx", "", "X-Tenant: closely", "X-Original-Method: GET", "X-Original-Uri: /").is(t, http.StatusForbidden)

	ready := p.admin.get(t, "/readyz")
	ready.is(t, http.StatusOK)
	if ready.body != `{"ready":true,"reasons":["redis is away: fail modes answer"]}`+"\n" {
		t.Errorf("/readyz: %s", ready.body)
	}
	if a := p.admin.get(t, "/v1/regions"); !strings.Contains(a.body, `"store":{"kind":"redis","available":false}`) {
		t.Errorf("/v1/regions: %s", a.body)
	}
	if open := p.metrics(t).series["regiond_redis_breaker_open"]; open != 1 {
		t.Errorf("regiond_redis_breaker_open is %v", open)
	}

	srv.Restart()
	eventually(t, func() error {
		if a := p.check(t, "back"); a.decision(t).Basis != "exact" || a.decision(t).Mode != "global" {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	})
	if a := p.admin.get(t, "/readyz"); a.body != `{"ready":true,"reasons":[]}`+"\n" {
		t.Errorf("/readyz after Redis came back: %s", a.body)
	}
}

// TestNotReadyBeforeRedisWasAsked: the first request shall not pay for dialling
// Redis and loading the script.
func TestNotReadyBeforeRedisWasAsked(t *testing.T) {
	p := build(t, "--config", topologyFile(t, onRedis(redisserver.Start(t, redisserver.Options{}).Addr())), "--region", "town")
	p.daemon.serving.Store(true)
	if ok, why := p.daemon.ready(); ok || len(why) != 1 || why[0] != "starting" {
		t.Errorf("ready: %v %v", ok, why)
	}
	p.run(t)
	p.check(t, "acme").is(t, http.StatusOK)
}

// TestStartWithoutRedis: a process that starts while Redis is away answers, and
// becomes exact by itself.
func TestStartWithoutRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	srv.Kill()
	p := start(t, onRedis(srv.Addr()))
	p.check(t, "acme").local(t, http.StatusOK, "local")
	p.admin.get(t, "/readyz").is(t, http.StatusOK)
	srv.Restart()
	eventually(t, func() error {
		if d := p.check(t, "acme").decision(t); d.Basis != "exact" {
			return fmt.Errorf("still %s", d.rests())
		}
		return nil
	})
}

// TestProcessesShareWhatRedisDoesNotCount: told that it is one of two, a process
// alone gives out half.
func TestProcessesShareWhatRedisDoesNotCount(t *testing.T) {
	p := start(t, onRedis(nobody(t)), "--processes", "2")
	p.check(t, "acme").local(t, http.StatusOK, "local")
	p.check(t, "acme").local(t, http.StatusOK, "local")
	p.check(t, "acme").local(t, http.StatusTooManyRequests, "local")
}

// TestFrozenRedis: connections are there and nothing comes back, for two seconds
// at two hundred requests a second.
func TestFrozenRedis(t *testing.T) {
	const rate, total = 5 * time.Millisecond, 400
	srv := redisserver.Start(t, redisserver.Options{})
	p := start(t, strings.ReplaceAll(onRedis(srv.Addr()), "units: 5,", "units: 1000,"), strict()...)
	for range 20 { // connections are open, the script is loaded
		p.check(t, "acme").is(t, http.StatusOK)
	}
	before := runtime.NumGoroutine()

	srv.Freeze()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var slowest time.Duration
	most := 0
	tick := time.NewTicker(rate)
	defer tick.Stop()
	for range total {
		<-tick.C
		most = max(most, runtime.NumGoroutine())
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			a, err := p.try(ctx, http.MethodPost, "/v1/check", `{"tenant":"acme"}`)
			if err != nil {
				t.Errorf("a request was not answered: %v", err)
				return
			}
			if d := a.decision(t); a.status != http.StatusOK || d.Mode != "local" && d.Basis != "exact" {
				t.Errorf("%d %s", a.status, a.body)
			}
			mu.Lock()
			slowest = max(slowest, a.took)
			mu.Unlock()
		})
	}
	wg.Wait()
	if slowest > 50*time.Millisecond+margin {
		t.Errorf("the slowest of %d answers took %v", total, slowest)
	}
	// Five goroutines belong to one request in flight, on both sides of it.
	if inFlight := int(slowest/rate) + 1; most > before+50+5*inFlight {
		t.Errorf("%d goroutines became %d", before, most)
	}
	p.http.CloseIdleConnections()
	eventually(t, func() error {
		if now := runtime.NumGoroutine(); now > before+10 {
			return fmt.Errorf("%d goroutines became %d, with nothing left to do", before, now)
		}
		return nil
	})
	srv.Thaw()
	eventually(t, func() error {
		if d := p.check(t, "acme").decision(t); d.Basis != "exact" {
			return fmt.Errorf("after the thaw it still rests on %s", d.rests())
		}
		return nil
	})
}

// TestBudgetsAreHeard: who allows Redis more time, waits longer for it.
func TestBudgetsAreHeard(t *testing.T) {
	const budget = 300 * time.Millisecond
	srv := redisserver.Start(t, redisserver.Options{})
	p := start(t, onRedis(srv.Addr()), "--redis-budget", budget.String(), "--deadline", budget.String())
	p.check(t, "acme").is(t, http.StatusOK)
	srv.Freeze()
	a := p.check(t, "acme")
	a.localWithin(t, http.StatusOK, "local", budget)
	if a.took < budget-time.Millisecond {
		t.Errorf("Redis was given %v, not %v", a.took, budget)
	}
}
