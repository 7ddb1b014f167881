package limitertest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/leaks"
)

// What the tests of several packages need.

const (
	// NowKey holds the time of a Redis under TimedLua or MovedLua, µs since the epoch.
	NowKey = "test:now"
	// MovedLua stands in the place of now.lua, for a server whose own clock the test moves too.
	MovedLua = "local TIME = tonumber(redis.call('GET', '" + NowKey + "'))\n"
	// TimedLua is the same where nothing expires, since Redis's own clock goes on.
	TimedLua = MovedLua + `
local redis = { call = function(name, ...)
  if name == 'PEXPIRE' then return 1 end
  if name == 'SET' then return redis.call('SET', (select(1, ...)), (select(2, ...))) end
  return redis.call(name, ...)
end }
`
)

// ClockOf sets the time of scripts on a Redis.
func ClockOf(t testing.TB, c *redis.Client) func(us int64) {
	return func(us int64) {
		t.Helper()
		if err := c.Set(context.Background(), NowKey, us, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Main runs the tests of a package, and finds goroutines that they leave behind.
func Main(m *testing.M) {
	redis.SetLogger(mute{}) // it logs each refused connection, of which there are many here on purpose
	leaks.Main(m)
}

// mute is a go-redis logger that drops everything.
type mute struct{}

// Printf implements an interface of go-redis.
func (mute) Printf(context.Context, string, ...any) {}

// KeepRunning keeps a store's Run going until the test ends, and closes it.
func KeepRunning(t testing.TB, s interface {
	Run(ctx context.Context) error
	Close() error
},
) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		s.Close()
	})
}

// OneCall is a check of a tenant who may spend so many units a minute.
func OneCall(tenant string, units, cost int64) store.Call {
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: units, Window: time.Minute}})
	return CallOf(plan, tenant, cost)
}

// CallOf is a check of a tenant under policy "standard".
func CallOf(plan *store.KeyPlan, tenant string, cost int64) store.Call {
	c := store.Call{Plan: plan, Op: store.OpCheck, Cost: cost, Keys: plan.AppendKeys(nil, tenant, "standard", nil)}
	for _, l := range plan.Limits {
		c.Ceilings = append(c.Ceilings, l.Capacity())
	}
	return c
}

// Decide runs calls as one batch, and returns the first error that one of them got.
func Decide(s decider, calls ...store.Call) (verdicts []store.Verdict, err error) {
	verdicts = make([]store.Verdict, len(calls))
	s.Decide(context.Background(), calls, verdicts)
	for i := range verdicts {
		err = cmp.Or(err, verdicts[i].Err)
	}
	return verdicts, err
}

type decider interface {
	Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict)
}

// decide is the same for calls whose errors are in the text of their verdicts.
func decide(s decider, calls ...store.Call) []store.Verdict {
	v, _ := Decide(s, calls...)
	return v
}

// DecideOne has one call decided.
func DecideOne(s decider, c store.Call) (store.Verdict, error) {
	v, err := Decide(s, c)
	return v[0], err
}

// GenLimit draws a valid limit of any algorithm.
func GenLimit(t *rapid.T, name string) *quota.Limit {
	if rapid.IntRange(0, 4).Draw(t, "calendar") == 0 {
		unit := rapid.SampledFrom([]string{"hour", "hour", "day", "month"}).Draw(t, "unit")
		offset := rapid.SampledFrom([]int64{0, 0, 900, -3600, 50_000}).Draw(t, "offset")
		return calendarLimit(name, rapid.SampledFrom([]int64{1, 3, 10, 40, quota.MaxUnits}).Draw(t, "L"), unit, offset)
	}
	l := &quota.Limit{Name: name, Algorithm: quota.Algorithm(rapid.IntRange(0, 2).Draw(t, "algorithm"))}
	l.Window = time.Duration(rapid.SampledFrom([]int64{1000, 1500, 10_000, 60_000, 1_000_003, 2_678_400_000_000}).Draw(t, "W")) * time.Microsecond
	l.Units = rapid.SampledFrom([]int64{1, 2, 3, 5, 10, 40}).Draw(t, "L")
	if l.Algorithm != quota.SlidingLog && rapid.IntRange(0, 3).Draw(t, "huge") == 0 {
		l.Units = rapid.SampledFrom([]int64{quota.MaxUnits, 999_999_999_989, 1 << 33}).Draw(t, "Lhuge")
	}
	if l.Algorithm == quota.GCRA && rapid.Bool().Draw(t, "bursty") {
		l.Burst = rapid.SampledFrom([]int64{1, 7, l.Units, 10 * l.Units}).Draw(t, "burst")
	}
	if len(l.Validate()) > 0 {
		l.Burst = 0
	}
	return l
}

// RedisKeys returns the Redis keys of a call but that of its record.
func RedisKeys(c *store.Call) []string {
	names := slices.Clone(c.Keys)
	for i := range c.Counters {
		names = append(names, string(store.AppendCounterKey(nil, &c.Counters[i])))
	}
	return names
}

// Eventually polls a condition that something else brings about, and returns how long it took.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	start, poll := time.Now(), time.NewTicker(2*time.Millisecond)
	defer poll.Stop()
	for !holds() {
		if time.Since(start) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		<-poll.C
	}
	return time.Since(start)
}
