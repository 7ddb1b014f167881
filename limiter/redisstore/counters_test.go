package redisstore

import (
	"context"
	"fmt"
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
	short := &quota.Limit{Name: "short", Units: 100, Window: 20 * time.Second, Scope: quota.ScopeGlobal}
	long := &quota.Limit{Name: "long", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal}
	q := limitertest.Ask(short, long)
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
	for i, hash := range [][]string{{"1:2", "x"}, {"1:2", "-3"}, {"1:x", "3"}, {"1:2:3", "4"}, {"e", "3"}, {"1:2", "3", "f", "3"}, {"1:2", "3", "2:2", "3"}} {
		if err := srv.Client().HSet(ctx, fmt.Sprintf("rl:{acme}:t.bad%d.60000000:p:::", i), hash).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := map[quota.CounterKey][]quota.Counter{}
	err := s.Counters(ctx, func(key quota.CounterKey, buckets []quota.Counter, _ quota.Gauge, _ int64) { got[key] = buckets })
	if err != nil {
		t.Fatal(err)
	}
	third, minute := start/20_000_000, start/60_000_000
	want := map[quota.CounterKey][]quota.Counter{
		{Tenant: "acme", Policy: "p", Limit: "short", Partition: "::", WindowUS: 20_000_000}: {
			{Bucket: third + 13, Generation: start, Units: 7}, // the bucket before has none
		},
		{Tenant: "acme", Policy: "p", Limit: "long", Partition: "::", WindowUS: 60_000_000}: {
			{Bucket: minute + 3, Generation: start, Units: 5 + 6}, {Bucket: minute + 4, Generation: start, Units: 7},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// TestFormerCounters: a counter of a former version is read back, and counted on by the next charge.
func TestFormerCounters(t *testing.T) {
	ctx := context.Background()
	srv := redisserver.Start(t, redisserver.Options{})
	s := newRedis(t, srv.Addr(), limitertest.TimedLua)
	now := limitertest.ClockOf(t, srv.Client())
	start := limitertest.Epoch - limitertest.Epoch%60_000_000
	now(start + 1_000_000)
	l := &quota.Limit{Name: "m", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal}
	const name = "rl:{acme}:t.m.60000000:p:::"
	bucket := start / 60_000_000
	for former, want := range map[string][]quota.Counter{
		fmt.Sprintf("7:%d:5:4", bucket):   {{Bucket: bucket - 1, Generation: 7, Units: 4}, {Bucket: bucket, Generation: 7, Units: 5}},
		fmt.Sprintf("7:%d:5", bucket):     {{Bucket: bucket, Generation: 7, Units: 5}},
		fmt.Sprintf("7:%d:5:4", bucket-1): {{Bucket: bucket - 2, Generation: 7, Units: 4}, {Bucket: bucket - 1, Generation: 7, Units: 5}},
		"7:x:5":                           nil,
	} {
		if err := srv.Client().Set(ctx, name, former, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		read := func() (got []quota.Counter) {
			if err := s.Counters(ctx, func(_ quota.CounterKey, buckets []quota.Counter, _ quota.Gauge, _ int64) { got = buckets }); err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := read(); !reflect.DeepEqual(got, want) {
			t.Errorf("of %s %v is read back, want %v", former, got, want)
		}
		_, err := limitertest.Decide(s, limitertest.Ask(l).Call("acme", store.OpCheck, 1, nil))
		if (err == nil) != (want != nil) {
			t.Errorf("a check with %s: %v", former, err)
		}
		if want == nil {
			continue
		}
		if newest := want[len(want)-1]; newest.Bucket == bucket {
			want[len(want)-1].Units++
		} else {
			want = []quota.Counter{newest, {Bucket: bucket, Generation: 7, Units: 1}}
		}
		if got := read(); !reflect.DeepEqual(got, want) {
			t.Errorf("after a check with %s %v is read back, want %v", former, got, want)
		}
	}
}

// A reset by one process shows in another's Resets with the next probe, and
// in its own at once; nothing else changes the number.
func TestResetsShowInEveryProcess(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	resetsShow(t, Options{Addrs: []string{srv.Addr()}})
}

func resetsShow(t *testing.T, o Options) {
	ctx := context.Background()
	a, _ := nodeSetStore(t, o)
	b, _ := nodeSetStore(t, o)
	read := func() int64 {
		t.Helper()
		b.readResets(ctx)
		return b.Resets()
	}
	seen := map[int64]bool{read(): true}
	for range 3 {
		if err := a.Reset(ctx, "acme"); err != nil {
			t.Fatal(err)
		}
		mine := a.Resets()
		if seen[mine] {
			t.Errorf("a reset left the number at %d", mine)
		}
		for range 2 {
			if got := read(); got != mine {
				t.Errorf("the other process reads %d, want %d", got, mine)
			}
		}
		seen[mine] = true
	}
}
