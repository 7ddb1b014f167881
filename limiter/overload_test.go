package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// tally counts answers by basis.
type tally struct {
	mu  sync.Mutex
	by  map[quota.Basis]int
	why quota.Reason // of one that was decided without Redis
}

func (c *tally) add(d quota.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[quota.Basis]int{}
	}
	c.by[d.Basis]++
	if d.Basis == quota.BasisLocal {
		c.why = d.Reason
	}
}

// mustBeOf holds that all answers have one of some bases, and the first of them most often.
func (c *tally) mustBeOf(t *testing.T, who string, bases ...quota.Basis) {
	t.Helper()
	others := maps.Clone(c.by)
	for _, b := range bases {
		delete(others, b)
	}
	if len(others) > 0 || c.by[bases[0]] == 0 {
		t.Errorf("%s: %v, want only %v; one because of %v", who, c.by, bases, c.why)
	}
	t.Logf("%s: %v", who, c.by)
}

// wideLimits are limits far above what a test asks for, each with a partition of its own.
func wideLimits(n int) (limits []quota.Limit) {
	for i := range n {
		limits = append(limits, quota.Limit{Name: fmt.Sprint("l", i), Units: 100_000, Window: time.Hour, By: []string{fmt.Sprint("d", i)}})
	}
	return limits
}

func wideRequest(tenant string, n, value int, cost int64) quota.Request {
	r := quota.Request{Tenant: tenant, Cost: cost}
	for i := range n {
		r.Dimensions = append(r.Dimensions, quota.Dimension{Name: fmt.Sprint("d", i), Value: fmt.Sprint("v", value)})
	}
	_, _ = r.Dimensions.Sort()
	return r
}

// busyRig is a rig with the budget of production, whose Redis is never away: what is decided
// without it would be a mistake.
func busyRig(t *testing.T, addr string, limits int) *rig {
	t.Helper()
	o := redisstore.Options{Addrs: []string{addr}, DeadAfter: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	return optionsRig(t, o, onePolicy(quota.Policy{Limits: wideLimits(limits)}))
}

// Work that Redis can do in time is done by Redis, however it arrives: batches that take
// it many times the time of one call, and bursts.
func TestHeavyRequestsAreExact(t *testing.T) {
	for _, row := range []struct {
		what         string
		limits       int
		cost         int64
		batch, burst int // checks in a batch, or callers at once
	}{
		{"batches of 100, three logs, cost 2", 3, 2, 100, 0},
		{"batches of 100, eight logs, cost 1", 8, 1, 100, 0},
		{"bursts of 100, four logs, cost 2", 4, 2, 0, 100},
	} {
		t.Run(row.what, func(t *testing.T) {
			srv := redisserver.Start(t, redisserver.Options{})
			r := busyRig(t, srv.Addr(), row.limits)
			awaitDecision(t, r, row.limits)
			var heavy, bystander tally
			pace := time.NewTicker(50 * time.Millisecond)
			defer pace.Stop()
			for range 20 {
				requests := make([]quota.Request, row.batch)
				for i := range requests {
					requests[i] = wideRequest(fmt.Sprint("acme", i), row.limits, i, row.cost)
				}
				var wg sync.WaitGroup
				if row.batch > 0 {
					wg.Go(func() {
						for _, o := range r.CheckBatch(context.Background(), requests) {
							heavy.add(o.Decision)
						}
					})
				}
				for i := range row.burst {
					wg.Go(func() {
						d, _ := r.Check(context.Background(), wideRequest(fmt.Sprint("acme", i), row.limits, i, row.cost))
						heavy.add(d)
					})
				}
				wg.Go(func() { bystander.add(r.check(t, "bystander", 1)) })
				wg.Wait()
				<-pace.C
			}
			// How much is shed depends on the time that the machine has for Redis; test/bench
			// measures it.
			heavy.mustBeOf(t, "heavy", quota.BasisExact, quota.BasisShed)
			bystander.mustBeOf(t, "bystander", quota.BasisExact, quota.BasisShed)
		})
	}
}

func awaitDecision(t *testing.T, r *rig, limits int) {
	t.Helper()
	limitertest.Eventually(t, 2*time.Second, "redis decides", func() bool {
		d, _ := r.Check(context.Background(), wideRequest("warm", limits, 0, 1))
		return d.Basis == quota.BasisExact
	})
}

// Many resets at once may take all connections: a check that finds none is shed, and not
// decided without a Redis that is well.
func TestResetsDoNotMakeChecksInexact(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	for i := range 100 {
		pipe := srv.Client().Pipeline()
		for j := range 1000 {
			pipe.Set(context.Background(), fmt.Sprint("other:", i, ":", j), 1, 0)
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	r := busyRig(t, srv.Addr(), 1)
	awaitDecision(t, r, 1)
	var got tally
	var wg sync.WaitGroup
	end := time.Now().Add(time.Second)
	for i := range 20 {
		wg.Go(func() {
			for time.Now().Before(end) {
				_ = r.Reset(context.Background(), fmt.Sprint("gone", i)) // it may find no connection either
			}
		})
	}
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for ; time.Now().Before(end); <-pace.C {
		d, _ := r.Check(context.Background(), wideRequest("acme", 1, 1, 1))
		got.add(d)
	}
	wg.Wait()
	got.mustBeOf(t, "beside 20 resets", quota.BasisExact, quota.BasisShed)
}
