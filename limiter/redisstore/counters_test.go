package redisstore

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// What a store holds can be read back by a process that starts, every bucket of
// it, past whatever else lies in the Redis.
func TestCountersAreReadBack(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	s := newRedis(t, srv.Addr(), limitertest.TimedLua)
	now := limitertest.ClockOf(t, srv.Client())
	fine := &quota.Limit{Name: "fine", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal, GlobalBuckets: 4}
	coarse := &quota.Limit{Name: "coarse", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal}
	q := limitertest.Ask(fine, coarse)
	start := limitertest.Epoch - limitertest.Epoch%60_000_000
	for i, seconds := range []int64{0, 25, 65, 70, 200, 219, 260} {
		now(start + seconds*1_000_000)
		if v, err := limitertest.Decide(s, q.Call("acme", store.OpReport, int64(i+1), nil)); err != nil {
			t.Fatal(err, v)
		}
	}
	ctx := context.Background()
	if err := srv.Client().RPush(ctx, "rl:{acme}:t.odd.60000000:p:::", "not ours").Err(); err != nil {
		t.Fatal(err)
	}
	if err := srv.Client().Set(ctx, "rl:{acme}:t.bad.60000000:p:::", "1:2:x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := map[quota.CounterKey][]quota.Counter{}
	err := s.Counters(ctx, func(key quota.CounterKey, buckets []quota.Counter, _ int64) { got[key] = buckets })
	if err != nil {
		t.Fatal(err)
	}
	finer, minute := start/20_000_000, start/60_000_000
	want := map[quota.CounterKey][]quota.Counter{
		{Tenant: "acme", Policy: "p", Limit: "fine", Partition: "::", BucketUS: 20_000_000}: {
			{Bucket: finer + 10, Generation: start, Units: 5 + 6}, {Bucket: finer + 13, Generation: start, Units: 7},
		},
		{Tenant: "acme", Policy: "p", Limit: "coarse", Partition: "::", BucketUS: 60_000_000}: {
			{Bucket: minute + 3, Generation: start, Units: 5 + 6}, {Bucket: minute + 4, Generation: start, Units: 7},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}
