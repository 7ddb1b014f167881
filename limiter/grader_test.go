package limiter_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// world is a limiter on one kind of store, in a time that the test moves.
type world struct {
	*rig
	pass func(time.Duration)
}

// eachStore runs a test on real Redis and in memory, with so many units a minute
// for every user.
func eachStore(t *testing.T, units int64, test func(t *testing.T, w world)) {
	t.Run("redis", func(t *testing.T) {
		srv := redisserver.Start(t, redisserver.Options{})
		set := clockOf(t, srv.Client())
		now := time.UnixMicro(limitertest.Epoch)
		set(now.UnixMicro())
		metrics, reader := readMetrics(t)
		r := storeRig(t, limiter.NewTimedRedis(t, srv.Addr()), onePolicy(quota.Policy{Limits: perMinute(units)}), metrics, reader,
			func() time.Time { return now })
		test(t, world{r, func(d time.Duration) { now = now.Add(d); set(now.UnixMicro()) }})
	})
	t.Run("memory", func(t *testing.T) {
		now := time.UnixMicro(limitertest.Epoch)
		r := memoryRig(t, onePolicy(quota.Policy{Limits: perMinute(units)}), func() time.Time { return now })
		test(t, world{r, func(d time.Duration) { now = now.Add(d) }})
	})
}

func TestAllowWithinLimit(t *testing.T) {
	eachStore(t, 5, func(t *testing.T, w world) {
		for i := range 5 {
			if d := w.check(t, "ann", 1); !d.Allowed || d.Basis != quota.BasisExact {
				t.Errorf("request %d of 5: %+v", i+1, d)
			}
		}
	})
}

func TestBlockOverLimit(t *testing.T) {
	eachStore(t, 5, func(t *testing.T, w world) {
		w.admits(t, "ann", 5)
		d := w.check(t, "ann", 1)
		if d.Allowed || d.RetryAfter() != time.Minute || len(d.Violated()) != 1 {
			t.Errorf("request 6 of 5: %+v", d)
		}
	})
}

func TestSlidingWindowExpiry(t *testing.T) {
	eachStore(t, 2, func(t *testing.T, w world) {
		w.check(t, "ann", 1)
		w.pass(40 * time.Second)
		w.check(t, "ann", 1)
		w.pass(19 * time.Second)
		if w.check(t, "ann", 1).Allowed {
			t.Error("allowed before the first had left the window")
		}
		w.pass(time.Second)
		if n := w.admits(t, "ann", 2); n != 1 {
			t.Errorf("%d allowed a minute after the first, want the one that has left", n)
		}
		w.pass(time.Minute)
		if n := w.admits(t, "ann", 2); n != 2 {
			t.Errorf("%d allowed after a minute of silence, want 2", n)
		}
	})
}

func TestRemainingRequests(t *testing.T) {
	eachStore(t, 5, func(t *testing.T, w world) {
		for want := int64(4); want >= 0; want-- {
			if got := w.check(t, "ann", 1).Limits[0].Remaining; got != want {
				t.Errorf("%d remain, want %d", got, want)
			}
		}
		d, err := w.Peek(context.Background(), quota.Request{Tenant: "ann", Cost: 1})
		if err != nil || d.Limits[0].Remaining != 0 {
			t.Errorf("%d remain when all is spent (%v)", d.Limits[0].Remaining, err)
		}
	})
}

func TestReset(t *testing.T) {
	eachStore(t, 3, func(t *testing.T, w world) {
		w.admits(t, "ann", 3)
		w.admits(t, "bob", 3)
		if err := w.Reset(context.Background(), "ann"); err != nil {
			t.Fatal(err)
		}
		if n := w.admits(t, "ann", 3); n != 3 {
			t.Errorf("%d allowed after the reset, want 3", n)
		}
		if w.check(t, "bob", 1).Allowed {
			t.Error("the reset of one user gave another something")
		}
	})
}

func TestConcurrentAccess(t *testing.T) {
	four := func(t *testing.T, r *rig) {
		var (
			allowed atomic.Int64
			callers sync.WaitGroup
		)
		for range 4 {
			callers.Go(func() {
				for range 20 {
					if r.check(t, "ann", 1).Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		callers.Wait()
		if n := allowed.Load(); n != 30 {
			t.Errorf("four callers were allowed %d times together, want 30", n)
		}
	}
	eachStore(t, 30, func(t *testing.T, w world) { four(t, w.rig) })
	t.Run("redis, its own time", func(t *testing.T) {
		srv := redisserver.Start(t, redisserver.Options{})
		four(t, processes(t, srv.Addr(), 1, onePolicy(quota.Policy{Limits: perMinute(30)}))[0])
	})
}

func TestReconfigure(t *testing.T) {
	eachStore(t, 3, func(t *testing.T, w world) {
		w.admits(t, "ann", 3)
		for _, row := range []struct{ units, remaining int64 }{{5, 2}, {4, 1}, {2, 0}, {10, 7}} {
			if err := w.Configure(onePolicy(quota.Policy{Limits: perMinute(row.units)})); err != nil {
				t.Fatal(err)
			}
			d, err := w.Peek(context.Background(), quota.Request{Tenant: "ann", Cost: 1})
			if err != nil || d.Limits[0].Remaining != row.remaining || d.Allowed != (row.remaining > 0) {
				t.Errorf("3 spent, %d a minute now: %+v (%v), want %d to remain", row.units, d.Limits[0], err, row.remaining)
			}
		}
		if n := w.admits(t, "ann", 7); n != 7 {
			t.Errorf("%d allowed of the 7 that a raised limit leaves", n)
		}
	})
}

func TestMultipleUsers(t *testing.T) {
	eachStore(t, 3, func(t *testing.T, w world) {
		w.admits(t, "ann", 3)
		for _, other := range []string{"bob", "an", "ann2", "Ann", "auth0|ann", "ann@example.net"} {
			if n := w.admits(t, other, 3); n != 3 {
				t.Errorf("%s was allowed %d of 3 after ann had spent hers", other, n)
			}
		}
	})
}

// TestWindowPasses is SlidingWindowExpiry in Redis's own time: the wait that a
// denial tells is over when it says so, and not before.
func TestWindowPasses(t *testing.T) {
	const window = 200 * time.Millisecond
	srv := redisserver.Start(t, redisserver.Options{})
	r := processes(t, srv.Addr(), 1, onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "l", Units: 4, Window: window}}}))[0]
	r.admits(t, "ann", 4)
	asked := time.Now()
	d := r.check(t, "ann", 1)
	told := d.RetryAfter()
	if d.Allowed || told <= 0 || told > window {
		t.Fatalf("%+v", d)
	}
	eventually(t, told+5*time.Second, "ann is allowed again", func() bool { return r.check(t, "ann", 1).Allowed })
	if took := time.Since(asked); took < told {
		t.Errorf("allowed after %v, told to wait %v", took, told)
	}
}
