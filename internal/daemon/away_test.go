package daemon

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/test/capture"
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
	capture.Eventually(t, func() error {
		if d := p.check(t, "acme").decision(t); d.Basis != "exact" {
			return fmt.Errorf("still %s", d.rests())
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
	// Where processors are short, the watchdog's ticks count for a quarter.
	a.localWithin(t, http.StatusOK, "local", 4*budget)
	if a.took < budget-time.Millisecond {
		t.Errorf("Redis was given %v, not %v", a.took, budget)
	}
}
