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
		set := limitertest.ClockOf(t, srv.Client())
		now := time.UnixMicro(limitertest.Epoch)
		set(now.UnixMicro())
		meter, reader := readMeter(t)
		r := storeRig(t, limiter.NewRedis(t, srv.Addr(), limitertest.TimedLua), onePolicy(quota.Policy{Limits: perMinute(units)}), meter, reader,
			func() time.Time { return now })
		test(t, world{r, func(d time.Duration) { now = now.Add(d); set(now.UnixMicro()) }})
	})
	t.Run("memory", func(t *testing.T) {
		now := time.UnixMicro(limitertest.Epoch)
		r := memoryRig(t, onePolicy(quota.Policy{Limits: perMinute(units)}), func() time.Time { return now })
		test(t, world{r, func(d time.Duration) { now = now.Add(d) }})
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

// processes are limiters on one Redis that share nothing else.
func processes(t *testing.T, addr string, n int, c limiter.Config) []*rig {
	t.Helper()
	rigs := make([]*rig, n)
	for i := range rigs {
		meter, reader := readMeter(t)
		rigs[i] = storeRig(t, limiter.NewRedis(t, addr, ""), c, meter, reader, nil)
	}
	return rigs
}
