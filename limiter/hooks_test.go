package limiter

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// What tests outside this package need from inside it: a decision script whose
// clock they move by hand, and a memory store that, like a Redis under that
// script, expires nothing while they do.

// nowKey holds the time of a timed script, µs since the epoch; NowKey tells others.
const (
	nowKey = "test:now"
	NowKey = nowKey
)

// timedHead stands in the place of now.lua.
const timedHead = "local TIME = tonumber(redis.call('GET', '" + nowKey + "'))\n"

func timedScript() *script {
	s := joinScript(timedHead)
	return &s
}

func testMetrics(t testing.TB) *Metrics {
	t.Helper()
	m, err := NewMetrics(noop.NewMeterProvider().Meter("test"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// patientBudget is the budget of stores that show what is decided, not how soon.
const patientBudget = 10 * time.Second

func newTestRedis(t testing.TB, addr string, sc *script) *RedisStore {
	t.Helper()
	s, err := NewRedisStore(RedisOptions{
		Addrs: []string{addr}, Budget: patientBudget, Logger: slog.New(slog.DiscardHandler), script: sc,
	}, testMetrics(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newTimedRedis(t testing.TB, addr string) *RedisStore {
	return newTestRedis(t, addr, timedScript())
}

// NewTimedRedis is a store on the Redis at addr whose clock is NowKey.
func NewTimedRedis(t testing.TB, addr string) *RedisStore { return newTimedRedis(t, addr) }

// NewPatientRedis is a store on the Redis at addr with the production script and
// Redis's own clock.
func NewPatientRedis(t testing.TB, addr string) *RedisStore { return newTestRedis(t, addr, nil) }

// NewTimedMemory is a memory store on a clock that may go days forward and back.
func NewTimedMemory(now func() int64) *MemoryStore {
	return NewMemoryStore(MemoryOptions{Now: now, keep: true})
}

// Sources returns the Lua files, by name.
func Sources() map[string]string {
	return map[string]string{"now.lua": nowLua, "base.lua": baseLua, "log.lua": logLua, "window_gcra.lua": windowLua, "usage_counters.lua": usageLua, "decide.lua": decideLua}
}

// ParseReplies is parseReplies.
func ParseReplies(reply any, nonce string, calls []Call, verdicts []Verdict) error {
	return parseReplies(reply, nonce, calls, verdicts)
}

// genLimit draws a valid limit of any algorithm.
func genLimit(t *rapid.T, name string) *quota.Limit {
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
func RedisKeys(c *Call) []string {
	return append(slices.Clone(c.Keys), counterNames([]Call{*c})...)
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
