package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// deniedFor is what remains of a limit that denies for so long.
func deniedFor(retry time.Duration) quota.LimitState {
	return quota.LimitState{Denied: retry > 0, RetryAfter: retry, ResetAfter: retry + 5*time.Millisecond}
}

func TestDenyCacheTable(t *testing.T) {
	plan := NewKeyPlan([]*quota.Limit{{Name: "a", Units: 5, Window: time.Minute}, {Name: "b", Units: 50, Window: time.Hour}})
	other := NewKeyPlan(plan.limits) // the same limits after a reload
	asked := callOf(plan, "acme", 2)
	start := time.Unix(1_795_198_405, 0)
	with := func(change func(*Call)) Call {
		c := asked
		c.Ceilings = append([]int64(nil), asked.Ceilings...)
		change(&c)
		return c
	}
	for _, row := range []struct {
		why   string
		retry time.Duration // of the denial, asked for at 0 and received at 3 ms
		call  Call
		at    time.Duration
		want  bool
	}{
		{"at once", 400 * ms, asked, 3 * ms, true},
		{"before the end, counted from when it was asked for", 400 * ms, asked, 400*ms - 1, true},
		{"at the end", 400 * ms, asked, 400 * ms, false},
		{"a long one, for a second", time.Hour, asked, time.Second - 1, true},
		{"a long one, no longer", time.Hour, asked, time.Second, false},
		{"a higher cost", 400 * ms, with(func(c *Call) { c.Cost = 3 }), 3 * ms, false},
		{"a lower cost", 400 * ms, with(func(c *Call) { c.Cost = 1 }), 3 * ms, false},
		{"a lower ceiling", 400 * ms, with(func(c *Call) { c.Ceilings[0]-- }), 3 * ms, true},
		{"a higher ceiling", 400 * ms, with(func(c *Call) { c.Ceilings[1]++ }), 3 * ms, false},
		{"one lower, one higher", 400 * ms, with(func(c *Call) { c.Ceilings[0]--; c.Ceilings[1]++ }), 3 * ms, false},
		{"an idempotency key may have been admitted before", 400 * ms, with(func(c *Call) { c.Record = "r" }), 3 * ms, false},
		{"a peek asks for figures", 400 * ms, with(func(c *Call) { c.Op = OpPeek }), 3 * ms, false},
		{"a report is not refused", 400 * ms, with(func(c *Call) { c.Op = OpReport }), 3 * ms, false},
		{"another tenant", 400 * ms, callOf(plan, "globex", 2), 3 * ms, false},
		{"the configuration was reloaded", 400 * ms, callOf(other, "acme", 2), 3 * ms, false},
	} {
		d := newDenyCache()
		d.remember(&asked, []quota.LimitState{deniedFor(row.retry), deniedFor(0)}, start, start.Add(3*ms))
		if _, ok := d.recall(&row.call, start.Add(row.at)); ok != row.want {
			t.Errorf("%s: recalled is %v", row.why, ok)
		}
		d.forget()
		if _, ok := d.recall(&row.call, start.Add(row.at)); ok {
			t.Errorf("%s: recalled after forget", row.why)
		}
	}
}

// What was denied with an Idempotency-Key is never remembered: the same key may
// have been admitted elsewhere, and its next try must see that.
func TestDenyCacheNeverWithRecord(t *testing.T) {
	c := oneCall("acme", 5, 1)
	c.Record = "rl:{acme}:i:k"
	d, now := newDenyCache(), time.Unix(1_795_198_405, 0)
	d.remember(&c, []quota.LimitState{deniedFor(time.Hour)}, now, now)
	c.Record = ""
	if _, ok := d.recall(&c, now); ok {
		t.Error("recalled")
	}
}

// The times of a recalled denial have moved on, each limit's on its own: one
// that denied for less time than another has ended and is not the reason any more.
func TestDenyCacheTimesMoveOn(t *testing.T) {
	plan := NewKeyPlan([]*quota.Limit{{Name: "short", Units: 1, Window: time.Second}, {Name: "long", Units: 1, Window: time.Minute}, {Name: "free", Units: 9, Window: time.Minute}})
	c := callOf(plan, "acme", 1)
	d, start := newDenyCache(), time.Unix(1_795_198_405, 0)
	d.remember(&c, []quota.LimitState{deniedFor(100 * ms), deniedFor(800 * ms), deniedFor(0)}, start, start.Add(2*ms))
	for _, row := range []struct {
		at, short, long time.Duration
		resets          [3]time.Duration
	}{
		{0, 100 * ms, 800 * ms, [3]time.Duration{105 * ms, 805 * ms, 5 * ms}}, // a clock read before it was received
		{2 * ms, 100 * ms, 800 * ms, [3]time.Duration{105 * ms, 805 * ms, 5 * ms}},
		{52 * ms, 50 * ms, 750 * ms, [3]time.Duration{55 * ms, 755 * ms, 0}},
		{102 * ms, 0, 700 * ms, [3]time.Duration{5 * ms, 705 * ms, 0}},
		{500 * ms, 0, 302 * ms, [3]time.Duration{0, 307 * ms, 0}},
		{799 * ms, 0, 3 * ms, [3]time.Duration{0, 8 * ms, 0}},
	} {
		got, ok := d.recall(&c, start.Add(row.at))
		if !ok {
			t.Fatalf("at %v: forgotten", row.at)
		}
		for i, retry := range []time.Duration{row.short, row.long, 0} {
			if got[i].RetryAfter != retry || got[i].Denied != (retry > 0) || got[i].ResetAfter != row.resets[i] {
				t.Errorf("at %v: limit %s: retry %v, denied %v, reset %v; want %v, %v",
					row.at, plan.limits[i].Name, got[i].RetryAfter, got[i].Denied, got[i].ResetAfter, retry, row.resets[i])
			}
		}
	}
}

func TestDenyCacheBounded(t *testing.T) {
	d, now := newDenyCache(), time.Unix(1_795_198_405, 0)
	c := oneCall("acme", 5, 1)
	limits := []quota.LimitState{deniedFor(time.Hour)}
	last := ""
	for i := range 300_000 { // some 4,700 for each shard, of which 4,096 fit
		last = fmt.Sprint("rl:{", i, "}:l:standard:::")
		c.Keys = []string{last}
		d.remember(&c, limits, now, now)
	}
	n := 0
	for i := range d.shards {
		n += len(d.shards[i].seen)
	}
	if most := denyCacheShards * denyCachePerShard; n > most || n < most*9/10 {
		t.Errorf("%d denials are held of 300000, want at most %d and not much less", n, most)
	}
	if _, ok := d.recall(&c, now); !ok {
		t.Errorf("the newest, %s, was not kept", last)
	}
}

// timedLimiter is a Limiter whose process and whose real Redis share one clock,
// which the test moves by hand.
type timedLimiter struct {
	*Limiter
	srv   *redisserver.Server
	store *RedisStore
	now   time.Time
}

func newTimedLimiter(t testing.TB, srv *redisserver.Server) *timedLimiter {
	t.Helper()
	l := &timedLimiter{srv: srv, store: newTimedRedis(t, srv.Addr()), now: time.UnixMicro(1_795_198_405_260_197)}
	l.move(t, 0)
	return l
}

// enforce begins again with these limits for everybody.
func (l *timedLimiter) enforce(t rapid.TB, m *Metrics, limits []quota.Limit) {
	t.Helper()
	var err error
	l.Limiter, err = New(Options{
		Store: l.store, Logger: slog.New(slog.DiscardHandler), Metrics: m, Now: func() time.Time { return l.now },
		Config: Config{
			Policies: []quota.Policy{{Name: "standard", Limits: limits, EnforcePercent: -1}},
			Default:  &quota.Tenant{Policy: "standard"}, MaxUnknown: 1 << 20,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (l *timedLimiter) move(t rapid.TB, d time.Duration) {
	t.Helper()
	l.now = l.now.Add(d)
	if err := l.srv.Client().Set(context.Background(), nowKey, l.now.UnixMicro(), 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func (l *timedLimiter) ask(t rapid.TB, tenant string, cost int64) quota.Decision {
	t.Helper()
	d, err := l.Check(context.Background(), quota.Request{Tenant: tenant, Cost: cost})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// While a denial is remembered its retry-after falls with the clock, and when it
// has passed the same cost is admitted; a millisecond earlier it is not.
func TestDenyCacheRetryAfterStaysSound(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	l, m, run := newTimedLimiter(t, srv), testMetrics(t), 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		tenant := fmt.Sprint("t", run)
		var limits []quota.Limit
		capacity := quota.MaxUnits
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			limit := *genLimit(t, fmt.Sprint("l", i))
			limit.Window = time.Duration(rapid.IntRange(20, 5000).Draw(t, "W")) * ms
			limit.Burst = 0
			limits, capacity = append(limits, limit), min(capacity, limit.Units)
		}
		l.enforce(t, m, limits)
		cost := rapid.Int64Range(max(1, capacity/4), capacity).Draw(t, "cost")
		d := l.ask(t, tenant, cost)
		for range 10 {
			if !d.Allowed {
				break
			}
			d = l.ask(t, tenant, cost)
		}
		if d.Allowed {
			t.Skip("drains as fast as it fills")
		}
		left := d.RetryAfter()
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			pass := time.Duration(rapid.Int64Range(0, int64(left)/3).Draw(t, "pass")).Truncate(time.Microsecond)
			l.move(t, pass)
			left -= pass
			again := l.ask(t, tenant, cost)
			if again.Allowed || again.RetryAfter() != left {
				t.Fatalf("%v: allowed %v, retry after %v, want %v", again.Basis, again.Allowed, again.RetryAfter(), left)
			}
			if wants := again.Violated(); len(wants) == 0 || again.Limits[again.Headline()].RetryAfter != left {
				t.Fatalf("violated %v, headline %+v, want the one that takes %v", wants, again.Limits[again.Headline()], left)
			}
			for i := range again.Limits {
				if s := &again.Limits[i]; s.Denied != (s.RetryAfter > 0) || s.RetryAfter < 0 {
					t.Fatalf("limit %d is denied %v for %v", i, s.Denied, s.RetryAfter)
				}
			}
		}
		if left > ms {
			l.move(t, left-ms)
			if l.ask(t, tenant, cost).Allowed {
				t.Fatalf("admitted a millisecond before retry-after")
			}
			left = ms
		}
		l.move(t, left)
		if d := l.ask(t, tenant, cost); !d.Allowed {
			t.Fatalf("denied after retry-after, for another %v", d.RetryAfter())
		}
	})
}

// Ten thousand denied checks in two seconds reach Redis about twice.
func TestDenyCacheFloodCostsNoRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	l := newTimedLimiter(t, srv)
	l.enforce(t, testMetrics(t), []quota.Limit{{Name: "minute", Units: 3, Window: time.Minute}})
	for range 3 {
		l.ask(t, "acme", 1)
	}
	before, remembered := srv.Calls(t, "evalsha"), 0
	for range 10_000 {
		d := l.ask(t, "acme", 1)
		if d.Allowed {
			t.Fatal("admitted beyond the limit")
		}
		if d.Basis == quota.BasisCached {
			remembered++
		}
		l.now = l.now.Add(200 * time.Microsecond) // Redis's own clock stands: it is hardly asked
	}
	calls := srv.Calls(t, "evalsha") - before
	if calls < 1 || calls > 4 || remembered != 10_000-int(calls) {
		t.Errorf("%d calls to redis, %d answers from memory, want at most 4 calls for 10000 denials in 2 s", calls, remembered)
	}
}

// A reload asks anew, and so does a reset: what was remembered is about other
// limits, or about usage that is gone.
func TestDenyCacheEndWithReloadAndReset(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	l := newTimedLimiter(t, srv)
	limits := func(units int64) []quota.Limit {
		return []quota.Limit{{Name: "minute", Units: units, Window: time.Minute}}
	}
	l.enforce(t, testMetrics(t), limits(1))
	l.ask(t, "acme", 1)
	l.ask(t, "acme", 1)
	if d := l.ask(t, "acme", 1); d.Allowed || d.Basis != quota.BasisCached {
		t.Fatalf("allowed %v by %v, want a remembered denial", d.Allowed, d.Basis)
	}
	if err := l.Configure(Config{
		Policies: []quota.Policy{{Name: "standard", Limits: limits(2), EnforcePercent: -1}},
		Default:  &quota.Tenant{Policy: "standard"}, MaxUnknown: 1 << 20,
	}); err != nil {
		t.Fatal(err)
	}
	if d := l.ask(t, "acme", 1); !d.Allowed || d.Limits[0].Remaining != 0 {
		t.Fatalf("after raising the limit: allowed %v, %+v", d.Allowed, d.Limits)
	}
	l.ask(t, "acme", 1)
	if err := l.Reset(context.Background(), "acme"); err != nil {
		t.Fatal(err)
	}
	if d := l.ask(t, "acme", 1); !d.Allowed || d.Limits[0].Remaining != 1 {
		t.Fatalf("after the reset: allowed %v, %+v", d.Allowed, d.Limits)
	}
}
