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
	srv, s, now := onTimedRedis(t, limitertest.TimedLua)
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
	ok(t, srv.Client().RPush(ctx, "rl:{acme}:t.odd.60000000:p:::", "not ours").Err())
	for i, hash := range [][]string{
		{"1:2", "x"},
		{"1:2", "-3"},
		{"1:x", "3"},
		{"1:2:3", "4"},
		{"e", "3"},
		{"1:2", "3", "f", "3"},
		{"1:2", "3", "2:2", "3"},
		{"1:2", "3", "p", "0 1 2 3"},
		{"1:2", "3", "p", "9 1 2"},
		{"1:2", "3", "h", "1 2"},
	} {
		ok(t, srv.Client().HSet(ctx, fmt.Sprintf("rl:{acme}:t.bad%d.60000000:p:::", i), hash).Err())
	}
	periods := []string{"7:9", "99999999999999", "p", "1000 5 500 2"} // nothing was used in 6 to 8
	ok(t, srv.Client().HSet(ctx, "rl:{acme}:t.cal.month-1-UTC:p:::", periods).Err())
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
	month := quota.CounterKey{
		Tenant: "acme", Policy: "p", Limit: "cal", Partition: "::", Calendar: "month-1-UTC", WindowUS: quota.CalendarMonth.Window().Microseconds(),
	}
	want[month] = []quota.Counter{{Bucket: 5, Generation: 7, Units: 2, EndsUS: 500}, {Bucket: 9, Generation: 7, Units: quota.MaxCounter, EndsUS: 1000}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
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
		ok(t, a.ResetAll(ctx, "acme", 0))
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
