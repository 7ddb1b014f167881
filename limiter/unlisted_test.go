package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// max_unknown bounds what invented tenants leave in Redis, however long they come: a
// partition of theirs keeps its place as long as one of its keys lives.
func TestMaxUnknownBoundsRedis(t *testing.T) {
	t.Parallel() // it measures no time
	const most, each = 100, 25
	for _, row := range []struct {
		name    string
		limits  []quota.Limit
		keys    int // of a partition
		seconds int // far longer than its keys live
	}{
		{"a log", []quota.Limit{{Name: "second", Units: 10, Window: time.Second}}, 1, 50},
		{"a log, a window, a level", []quota.Limit{
			{Name: "second", Units: 10, Window: time.Second},
			{Name: "minute", Units: 100, Window: time.Minute, Algorithm: quota.SlidingWindow},
			{Name: "shaped", Units: 1, Window: time.Second, Algorithm: quota.GCRA, Burst: 10},
		}, 3, 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			srv := miniredis.RunT(t)
			client := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
			defer client.Close()
			set := limitertest.ClockOf(t, client)
			at := time.UnixMicro(limitertest.Epoch)
			c := onePolicy(quota.Policy{Limits: row.limits})
			c.MaxUnknown = most
			meter, reader := readMeter(t)
			r := storeRig(t, limiter.NewRedis(t, srv.Addr(), limitertest.MovedLua), c, meter, reader, func() time.Time { return at })
			worst, own := 0, int64(0)
			for second := range row.seconds {
				set(at.UnixMicro())
				for i := range each {
					r.check(t, fmt.Sprint("invented", second, ".", i), 1)
				}
				keys := 0
				for _, key := range srv.Keys() {
					if strings.HasPrefix(key, "rl:{invented") {
						keys++
					}
				}
				worst = max(worst, keys)
				at = at.Add(time.Second)
				srv.FastForward(time.Second)
			}
			own = int64(row.seconds*each) - r.count(t, "regiond.unknown_overflow")
			if worst > most*row.keys || worst < most*row.keys*9/10 || own <= most {
				t.Errorf("%d keys of invented tenants at most, want up to %d; %d had a partition of their own", worst, most*row.keys, own)
			}
		})
	}
}

// onceForAll charges an Idempotency-Key in one process and asks again in others, some of
// which have no place for the tenant: it is charged once, and replayed by all of those
// that can see its record.
func onceForAll(t *testing.T, rigs []*rig, full []bool, replayed []bool) {
	t.Helper()
	for i, r := range rigs {
		if full[i] { // its only place goes to another
			r.check(t, fmt.Sprint("other", i), 1)
		}
	}
	q := quota.Request{Tenant: "acme", Cost: 4, IdempotencyKey: "k1"}
	for i, r := range rigs {
		for again := range 2 {
			d, err := r.Check(context.Background(), q)
			if err != nil || !d.Allowed || d.Replayed != (replayed[i] || again > 0) || d.Limits[0].Remaining != 6 {
				t.Errorf("process %d, time %d: allowed %v, replayed %v, %d remaining (%v); want replayed %v", i, again+1, d.Allowed, d.Replayed, d.Limits[0].Remaining, err, replayed[i])
			}
		}
	}
}

func TestIdempotencyNearMaxUnknown(t *testing.T) {
	c := onePolicy(quota.Policy{Limits: perMinute(10)})
	c.MaxUnknown = 1
	for _, full := range [][]bool{{false, true}, {true, false}, {true, true, false}} {
		srv := redisserver.Start(t, redisserver.Options{})
		replayed := make([]bool, len(full))
		for i := 1; i < len(full); i++ {
			replayed[i] = true
		}
		onceForAll(t, processes(t, srv.Addr(), len(full), c), full, replayed)
	}
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
