package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// nowKey holds the time of a script under test, µs.
const nowKey = "test:now"

// timedScript is the decision script with a clock that the test moves by hand.
func timedScript() *script {
	s := newScript("local TIME = tonumber(redis.call('GET', '" + nowKey + "'))\n" + decideLua)
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

func newTimedRedis(t testing.TB, addr string) *RedisStore {
	t.Helper()
	s, err := NewRedisStore(RedisOptions{Addr: addr, Budget: 5 * time.Second, Logger: slog.New(slog.DiscardHandler), script: timedScript()}, testMetrics(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

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

func TestTwinRandom(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	store := newTimedRedis(t, srv.Addr())
	ctx := context.Background()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		now := int64(1_795_198_405_260_197)
		mem := NewMemoryStore(MemoryOptions{Now: func() int64 { return now }, keep: true})
		var limits []*quota.Limit
		for i := range rapid.IntRange(1, 4).Draw(t, "limits") {
			limits = append(limits, genLimit(t, fmt.Sprint("l", i)))
		}
		shape := NewShape(limits)
		keys := shape.Keys(fmt.Sprintf("rl:{t%d}:", run), "p", nil)
		longest := shape.retry.Microseconds()
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "move") {
			case 0:
				now -= rapid.Int64Range(0, 2*longest).Draw(t, "back")
			case 1:
				now += rapid.Int64Range(0, 2*longest).Draw(t, "on")
			case 2, 3:
				now += limits[rapid.IntRange(0, len(limits)-1).Draw(t, "which")].WindowUS() + rapid.Int64Range(-1, 1).Draw(t, "edge")
			default:
				now += rapid.Int64Range(0, longest/8+1).Draw(t, "small")
			}
			var calls []Call
			for range rapid.IntRange(1, 3).Draw(t, "batch") {
				c := Call{Shape: shape, Keys: keys, Op: rapid.SampledFrom([]Op{OpCheck, OpCheck, OpCheck, OpCheck, OpPeek, OpReport}).Draw(t, "op")}
				c.Cost = rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 7}).Draw(t, "cost")
				if rapid.IntRange(0, 9).Draw(t, "big") == 0 {
					c.Cost = rapid.Int64Range(1, quota.MaxUnits).Draw(t, "cost")
				}
				for _, l := range shape.limits {
					c.Ceilings = append(c.Ceilings, l.Capacity())
				}
				calls = append(calls, c)
			}
			if err := srv.Client().Set(ctx, nowKey, now, 0).Err(); err != nil {
				t.Fatal(err)
			}
			a, b := make([]Verdict, len(calls)), make([]Verdict, len(calls))
			if err := store.Decide(ctx, calls, a); err != nil {
				t.Fatal(err)
			}
			if err := mem.Decide(ctx, calls, b); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("step %d\nredis  %v\nmemory %v", i, a, b)
			}
		}
	})
}
