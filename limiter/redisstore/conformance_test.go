package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
	"github.com/regiond/regiond/test/redisserver"
)

// timedRedis starts stores on one real Redis for the suite, which is emptied for
// each of them.
func timedRedis(t testing.TB) limitertest.New {
	srv := redisserver.Start(t, redisserver.Options{})
	return func(t testing.TB) (store.Store, func(us int64)) {
		flush(t, srv.Client())
		return newRedis(t, srv.Addr(), limitertest.TimedLua), limitertest.ClockOf(t, srv.Client())
	}
}

func flush(t testing.TB, c *redis.Client) {
	t.Helper()
	ok(t, c.FlushAll(context.Background()).Err())
}

func TestConformance(t *testing.T) { limitertest.Run(t, timedRedis(t)) }

func TestPrograms(t *testing.T) {
	t.Parallel() // it measures no time
	limitertest.RunPrograms(t, timedRedis(t))
}

// TestOrderOfCallsSentAgain: a call that came with periods of another time than the server's is sent again, and so is what comes after
// it: the last unit is the first call's.
func TestOrderOfCallsSentAgain(t *testing.T) {
	s, now := timedRedis(t)(t)
	now(time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	log := &quota.Limit{Name: "log", Units: 1, Window: time.Second}
	hourly := &quota.Limit{
		Name: "hourly", Units: 9, Algorithm: quota.CalendarPeriods, Window: time.Hour, Calendar: &quota.Calendar{Anchor: 1, Zone: time.UTC},
	}
	v, err := limitertest.Decide(s, limitertest.Ask(log, hourly).Call("acme", store.OpCheck, 1, nil), limitertest.Ask(log).Call("acme", store.OpCheck, 1, nil))
	if err != nil || v[0].Outcome != store.Admitted || v[1].Outcome != store.Denied {
		t.Fatalf("%c, %c, %v", v[0].Outcome, v[1].Outcome, err)
	}
}

func TestLoans(t *testing.T) {
	t.Parallel() // it measures no time
	limitertest.RunLoans(t, timedRedis(t))
}

func TestBoundOfPeriods(t *testing.T) { limitertest.BoundOfPeriods(t, timedRedis(t)) }

func TestPeriodBounds(t *testing.T) { limitertest.RunPeriodBounds(t, timedRedis(t)) }

func TestLoansOfPeriods(t *testing.T) { limitertest.LoansOfPeriods(t, timedRedis(t)) }

func TestLoansAfterALoss(t *testing.T) { limitertest.LoansAfterALoss(t, timedRedis(t)) }

func TestBehindTheEpoch(t *testing.T) { limitertest.BehindTheEpoch(t, timedRedis(t)) }

func TestCountersAddUpWhenTheClockSteps(t *testing.T) { limitertest.CountersAddUp(t, timedRedis(t)) }

func TestBoundOfAFastClock(t *testing.T) { limitertest.BoundOfAFastClock(t, timedRedis(t)) }

func TestReportOfASwing(t *testing.T) { limitertest.ReportOfASwing(t, timedRedis(t)) }

func TestCountersThatAreLost(t *testing.T) { limitertest.CountersThatAreLost(t, timedRedis(t)) }

func TestCountersOfAReset(t *testing.T) { limitertest.CountersOfAReset(t, timedRedis(t)) }

// damage is what somebody else left under a partition's keys.
type damage struct {
	key   int  // 0 the log, 1 the window, 2 the level, 3 the periods, 4 the usage counter
	list  bool // or a string; of the counter a hash
	value string
}

// harm puts damage into one partition and asks for it in a batch with others: it
// fails or is decided alone, nothing is charged if it fails, and the others get
// what they would have got without it.
func harm(t interface{ Errorf(string, ...any) }, srv *redisserver.Server, s store.Store, d damage, op store.Op, cost int64) {
	ctx, c := context.Background(), srv.Client()
	q := limitertest.Ask(
		&quota.Limit{Name: "l", Units: 5, Window: time.Hour},
		&quota.Limit{Name: "w", Units: 5, Window: time.Hour, Algorithm: quota.SlidingWindow},
		&quota.Limit{Name: "g", Units: 5, Window: time.Hour, Algorithm: quota.GCRA},
		&quota.Limit{
			Name: "p", Units: 5, Window: quota.MaxWindow, Algorithm: quota.CalendarPeriods,
			Calendar: &quota.Calendar{Unit: quota.CalendarMonth, Zone: time.UTC, Anchor: 1},
		},
		&quota.Limit{Name: "global", Units: 5, Window: time.Hour, Scope: quota.ScopeGlobal},
	)
	bad := q.Call("bad", op, cost, nil)
	err := c.FlushAll(ctx).Err()
	if err == nil && d.list {
		err = c.RPush(ctx, limitertest.RedisKeys(&bad)[d.key], d.value).Err()
	} else if err == nil && d.key == 4 {
		err = c.HSet(ctx, limitertest.RedisKeys(&bad)[d.key], strings.FieldsFunc(d.value, func(r rune) bool { return r == '=' || r == ',' })).Err()
	} else if err == nil {
		err = c.Set(ctx, limitertest.RedisKeys(&bad)[d.key], d.value, 0).Err()
	}
	if err != nil {
		t.Errorf("damage %+v: %v", d, err)
		return
	}
	good := q.Call("good", store.OpCheck, 1, nil)
	v, _ := limitertest.Decide(s, good, bad, good)
	if v[0].Outcome != oracle.Admitted || v[2].Outcome != oracle.Admitted || v[2].Limits[0].Remaining != 3 {
		t.Errorf("%+v: the others got %+v and %+v", d, v[0], v[2])
	}
	if n := c.Exists(ctx, limitertest.RedisKeys(&bad)...).Val(); v[1].Err != nil && n != 1 {
		t.Errorf("%+v: refused, and yet %d of its keys exist", d, n)
	}
	if !errors.Is(v[1].Err, store.ErrPartition) && v[1].Err != nil {
		t.Errorf("%+v is called %v", d, v[1].Err)
	}
}

func TestDamagedKeys(t *testing.T) {
	srv, s := onRedis(t)
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
		{3, false, "1:2:3"},
		{4, true, "a list"},
		{4, false, "1:2=x"},
		{4, false, "1:x=2"},
		{4, false, "1:2=3,1:3=3"},
		{4, false, "1:2=3,e=x"},
		{4, false, "e=1"},
	} {
		harm(t, srv, s, d, store.OpCheck, 1)
		if v, err := limitertest.Decide(s, limitertest.Ask(&quota.Limit{Name: "l", Units: 5, Window: time.Hour}).Call("bad", store.OpCheck, 1, nil)); (err != nil) != (d.key == 0) {
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
		d := damage{key: rapid.IntRange(0, 4).Draw(rt, "key")}
		plan := rapid.SampledFrom([][]string{{"n", "n+n", "n:n:n", "n:n:n+n"}, {"n:n:n:n:n:n"}, {"n:n:n:n:n"}, {"n:n:n:n:n:n"}, {"n:n=n", "n:n=n,e=n"}}[d.key]).Draw(rt, "plan")
		d.list = d.key == 0
		for _, c := range plan {
			if c == 'n' {
				d.value += rapid.SampledFrom(numbers).Draw(rt, "number")
			} else {
				d.value += string(c)
			}
		}
		op := rapid.SampledFrom([]store.Op{store.OpCheck, store.OpPeek, store.OpReport}).Draw(rt, "op")
		harm(rt, srv, newRedis(t, srv.Addr(), ""), d, op, rapid.Int64Range(1, 5).Draw(rt, "cost"))
	})
}

func TestHoldsTooMany(t *testing.T) { limitertest.HoldsTooMany(t, timedRedis(t)) }

func TestHoldPrograms(t *testing.T) {
	t.Parallel() // it measures no time
	limitertest.RunHoldPrograms(t, timedRedis(t))
}
