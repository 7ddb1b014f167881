package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// TestWindowEdge asks on real Redis to the microsecond around the moment that
// something fits again, where a time that lost a digit would be caught.
func TestWindowEdge(t *testing.T) {
	const minute = int64(60_000_000)
	store, now := timedRedis(t)(t)
	q := limitertest.Ask(&quota.Limit{Name: "l", Units: 3, Window: time.Minute})
	// The last digits that 14 significant ones cannot hold are the ones that differ.
	for i, at := range []int64{limitertest.Epoch, limitertest.Epoch + 260_197, limitertest.Epoch + 999_999} {
		tenant := fmt.Sprint("t", i)
		for _, row := range []struct {
			us   int64
			op   limiter.Op
			cost int64
			want string
		}{
			{0, 'c', 2, "a 1 0 60000000"},
			{1, 'c', 1, "a 0 0 60000000"},
			{minute - 1, 'p', 1, "d 0 1 2"},
			{minute, 'p', 1, "a 2 0 1"},
			{minute, 'p', 2, "a 2 0 1"},
			{minute, 'p', 3, "d 2 1 1"},
			{minute + 1, 'p', 3, "a 3 0 0"},
		} {
			now(at + row.us)
			v := make([]limiter.Verdict, 1)
			if err := store.Decide(context.Background(), []limiter.Call{q.Call(tenant, row.op, row.cost, nil)}, v); err != nil {
				t.Fatal(err)
			}
			if got := q.Text(&v[0]); got != row.want {
				t.Errorf("%d µs after %d, %c %d: %s, want %s", row.us, at, row.op, row.cost, got, row.want)
			}
		}
	}
}

// TestRetryAfter takes what a denial says at its word: with no other traffic the
// same cost is admitted then, and is not a microsecond or a millisecond sooner.
func TestRetryAfter(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	set := clockOf(t, srv.Client())
	us := limitertest.Epoch
	metrics, reader := readMetrics(t)
	clock := func() time.Time { return time.UnixMicro(us) }
	for _, algorithm := range []quota.Algorithm{quota.SlidingLog, quota.SlidingWindow, quota.GCRA} {
		t.Run(algorithm.String(), func(t *testing.T) {
			run := 0
			store := limiter.NewTimedRedis(t, srv.Addr())
			rapid.Check(t, func(rt *rapid.T) {
				run++
				limit := quota.Limit{
					Name: "l", Algorithm: algorithm, Units: rapid.Int64Range(1, 50).Draw(rt, "L"),
					Window: time.Duration(rapid.Int64Range(1000, 3_000_000).Draw(rt, "W")) * time.Microsecond,
				}
				if algorithm == quota.GCRA {
					limit.Burst = rapid.Int64Range(1, 60).Draw(rt, "burst")
				}
				r := storeRig(t, store, onePolicy(quota.Policy{Limits: []quota.Limit{limit}}), metrics, reader, clock)
				request := quota.Request{Tenant: fmt.Sprintf("%v-%d", algorithm, run), Cost: rapid.Int64Range(1, limit.Capacity()).Draw(rt, "cost")}
				ra := time.Duration(0)
				for ra == 0 { // spend until it does not fit
					us += rapid.Int64Range(0, limit.WindowUS()/limit.Capacity()/2).Draw(rt, "pause")
					set(us)
					d, err := r.Check(context.Background(), request)
					if err != nil {
						rt.Fatal(err)
					}
					ra = d.RetryAfter()
				}
				for _, at := range []struct {
					after   time.Duration
					allowed bool
				}{{ra - time.Millisecond, false}, {ra - time.Microsecond, false}, {ra, true}} {
					set(us + max(0, at.after).Microseconds())
					d, err := r.Peek(context.Background(), request)
					if err != nil || d.Allowed != at.allowed {
						rt.Fatalf("%v after a denial that said %v: allowed %v, %v", at.after, ra, d.Allowed, err)
					}
				}
				us += ra.Microseconds()
			})
		})
	}
}
