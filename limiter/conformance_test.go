package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// timedMemory starts memory stores for the suite.
func timedMemory(testing.TB) (limiter.Store, func(us int64)) {
	var us atomic.Int64
	return limiter.NewTimedMemory(us.Load), us.Store
}

// timedRedis starts stores on one real Redis for the suite, which is emptied for
// each of them.
func timedRedis(t testing.TB) limitertest.New {
	srv := redisserver.Start(t, redisserver.Options{})
	return func(t testing.TB) (limiter.Store, func(us int64)) {
		flush(t, srv.Client())
		return limiter.NewTimedRedis(t, srv.Addr()), clockOf(t, srv.Client())
	}
}

func flush(t testing.TB, c *redis.Client) {
	t.Helper()
	if err := c.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}

// clockOf sets the time of scripts on a Redis.
func clockOf(t testing.TB, c *redis.Client) func(us int64) {
	return func(us int64) {
		t.Helper()
		if err := c.Set(context.Background(), limiter.NowKey, us, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConformance(t *testing.T) {
	for name, start := range map[string]limitertest.New{
		"redis":  timedRedis(t),
		"memory": timedMemory,
	} {
		t.Run(name, func(t *testing.T) { limitertest.Run(t, start) })
	}
}

func TestPrograms(t *testing.T) {
	for name, start := range map[string]limitertest.New{
		"redis":  timedRedis(t),
		"memory": timedMemory,
	} {
		t.Run(name, func(t *testing.T) { limitertest.RunPrograms(t, start) })
	}
}

// damage is what somebody else left under a partition's keys.
type damage struct {
	key   int  // 0 the log, 1 the window, 2 the level, 3 the usage counter
	list  bool // or a string
	value string
}

// harm puts damage into one partition and asks for it in a batch with others: it
// fails or is decided alone, nothing is charged if it fails, and the others get
// what they would have got without it.
func harm(t interface{ Errorf(string, ...any) }, srv *redisserver.Server, store limiter.Store, d damage, op limiter.Op, cost int64) {
	ctx, c := context.Background(), srv.Client()
	q := limitertest.Ask(
		&quota.Limit{Name: "l", Units: 5, Window: time.Hour},
		&quota.Limit{Name: "w", Units: 5, Window: time.Hour, Algorithm: quota.SlidingWindow},
		&quota.Limit{Name: "g", Units: 5, Window: time.Hour, Algorithm: quota.GCRA},
		&quota.Limit{Name: "global", Units: 5, Window: time.Hour, Scope: quota.ScopeGlobal},
	)
	bad := q.Call("bad", op, cost, nil)
	err := c.FlushAll(ctx).Err()
	if err == nil && d.list {
		err = c.RPush(ctx, limiter.RedisKeys(&bad)[d.key], d.value).Err()
	} else if err == nil {
		err = c.Set(ctx, limiter.RedisKeys(&bad)[d.key], d.value, 0).Err()
	}
	if err != nil {
		t.Errorf("damage %+v: %v", d, err)
		return
	}
	good := q.Call("good", limiter.OpCheck, 1, nil)
	v, err := ask(store, good, bad, good)
	if err != nil {
		t.Errorf("%+v took the whole batch along: %v", d, err)
		return
	}
	if v[0].Outcome != oracle.Admitted || v[2].Outcome != oracle.Admitted || v[2].Limits[0].Remaining != 3 {
		t.Errorf("%+v: the others got %+v and %+v", d, v[0], v[2])
	}
	if n := c.Exists(ctx, limiter.RedisKeys(&bad)...).Val(); v[1].Err != nil && n != 1 {
		t.Errorf("%+v: refused, and yet %d of its keys exist", d, n)
	}
	if !errors.Is(v[1].Err, limiter.ErrPartition) && v[1].Err != nil {
		t.Errorf("%+v is called %v", d, v[1].Err)
	}
}

func TestDamagedKeys(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	store := limiter.NewPatientRedis(t, srv.Addr())
	for _, d := range []damage{
		{0, false, "a string"},
		{1, true, "a list"},
		{2, true, "a list"},
		{0, true, "not a number"},
		{0, true, ""},
		{0, true, "nan"},
		{0, true, "inf"},
		{0, true, "-1"},
		{0, true, "1.5"},
		{1, false, "garbage"},
		{1, false, ""},
		{2, false, "1:2:3"},
		{3, true, "a list"},
		{3, false, "1:2"},
		{3, false, "1:2:x"},
	} {
		harm(t, srv, store, d, limiter.OpCheck, 1)
		if v, err := ask(store, limitertest.Ask(&quota.Limit{Name: "l", Units: 5, Window: time.Hour}).Call("bad", limiter.OpCheck, 1, nil)); err != nil || (v[0].Err != nil) != (d.key == 0) {
			t.Errorf("%+v, asked for the log alone: %+v %v", d, v, err)
		}
	}
}

// TestDamagedNumbers leaves values behind that have the right plan and numbers
// that make no sense: zero windows, times beyond 2^53, more digits than a float has.
func TestDamagedNumbers(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	now := srv.Time()
	numbers := []string{
		"0", "1", "5", "3600000000", fmt.Sprint(now), fmt.Sprint(now + 3_600_000_000), "9007199254740993",
		"9223372036854775808", "99999999999999999999999", strings.Repeat("9", 400),
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := damage{key: rapid.IntRange(0, 3).Draw(rt, "key")}
		plan := rapid.SampledFrom([][]string{{"n", "n+n", "n:n:n", "n:n:n+n"}, {"n:n:n:n:n:n"}, {"n:n:n:n:n"}, {"n:n:n", "n:n:n:n"}}[d.key]).Draw(rt, "plan")
		d.list = d.key == 0
		for _, c := range plan {
			if c == 'n' {
				d.value += rapid.SampledFrom(numbers).Draw(rt, "number")
			} else {
				d.value += string(c)
			}
		}
		op := rapid.SampledFrom([]limiter.Op{limiter.OpCheck, limiter.OpPeek, limiter.OpReport}).Draw(rt, "op")
		harm(rt, srv, limiter.NewPatientRedis(t, srv.Addr()), d, op, rapid.Int64Range(1, 5).Draw(rt, "cost"))
	})
}
