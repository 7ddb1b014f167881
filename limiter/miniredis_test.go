package limiter_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
)

// miniClient starts a miniredis and looks into it.
func miniClient(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1, PipelinePoolSize: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// timedMiniredis starts stores on a miniredis of their own for the suite.
func timedMiniredis(t testing.TB) (limiter.Store, func(us int64)) {
	c := miniClient(t)
	return limiter.NewTimedRedis(t, c.Options().Addr), clockOf(t, c)
}

// TestMiniredis shows that miniredis carries the scripts, for tests that fake time.
func TestMiniredis(t *testing.T) { limitertest.Run(t, timedMiniredis) }

// TestCountersAddUpWhenTheClockSteps: a peer keeps the largest counter of each bucket and
// generation, and adds them up. However TIME steps, that is what was admitted: no counter
// falls under a name that it had, and none begins anew under it.
func TestCountersAddUpWhenTheClockSteps(t *testing.T) {
	type name struct{ generation, bucket int64 }
	for store, start := range map[string]limitertest.New{"redis": timedRedis(t), "memory": timedMemory} {
		t.Run(store, func(t *testing.T) {
			s, now := start(t)
			q := limitertest.Ask(&quota.Limit{Name: "g", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal})
			held := map[name]int64{}
			us, admitted := limitertest.Epoch, int64(0)
			for i, seconds := range []int64{0, 30, -50, 20, -180, 10, 60, 120, 300, -3600, -61, 61, 3600, 3600, -59, -120, -120} {
				us += seconds * 1_000_000
				now(us)
				cost := int64(i + 1)
				v, err := ask(s, q.Call("acme", limiter.OpReport, cost, nil))
				if err != nil || v[0].Err != nil {
					t.Fatal(err, v[0].Err)
				}
				admitted += cost
				got := v[0].Limits[0].Counter
				of := name{got.Generation, got.Bucket}
				if got.Units < held[of]+cost {
					t.Errorf("step %d: %d units in bucket %d of generation %d, which had %d before %d more", i, got.Units, got.Bucket, got.Generation, held[of], cost)
				}
				held[of] = max(held[of], got.Units)
			}
			sum := int64(0)
			for _, units := range held {
				sum += units
			}
			if sum != admitted {
				t.Errorf("peers hold %d units, %d were admitted: %v", sum, admitted, held)
			}
		})
	}
}
