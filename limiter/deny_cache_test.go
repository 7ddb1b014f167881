package limiter

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// deniedFor is what remains of a regional limit that denies for so long, and deniedGlobally
// of a global one.
// ms is a step in a table that counts milliseconds.
const ms = time.Millisecond

func deniedFor(retry time.Duration) quota.LimitState {
	return quota.LimitState{Limit: &quota.Limit{}, Denied: retry > 0, RetryAfter: retry, ResetAfter: retry + 5*time.Millisecond}
}

func deniedGlobally(retry time.Duration) quota.LimitState {
	s := deniedFor(retry)
	s.Limit = &quota.Limit{Scope: quota.ScopeGlobal}
	return s
}

func newTestDenyCache() *denyCache {
	return newDenyCache(denyStart, func() int64 { return 0 })
}

// denyStart is when the tests of the deny cache begin.
var denyStart = time.Unix(1_795_198_405, 0)

func TestDenyCacheTable(t *testing.T) {
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "a", Units: 5, Window: time.Minute}, {Name: "b", Units: 50, Window: time.Hour}})
	other := store.NewKeyPlan(plan.Limits) // the same limits after a reload
	asked := limitertest.CallOf(plan, "acme", 2)
	start := denyStart
	with := func(change func(*store.Call)) store.Call {
		c := asked
		c.Ceilings = append([]int64(nil), asked.Ceilings...)
		change(&c)
		return c
	}
	for _, row := range []struct {
		why   string
		retry time.Duration // of the denial, asked for at 0 and received at 3 ms
		call  store.Call
		at    time.Duration
		want  bool
	}{
		{"at once", 400 * ms, asked, 3 * ms, true},
		{"before the end, counted from when it was asked for", 400 * ms, asked, 400*ms - 1, true},
		{"at the end", 400 * ms, asked, 400 * ms, false},
		{"a long one, for half a minute", time.Hour, asked, 30*time.Second - 1, true},
		{"a long one, no longer", time.Hour, asked, 30 * time.Second, false},
		{"a higher cost", 400 * ms, with(func(c *store.Call) { c.Cost = 3 }), 3 * ms, false},
		{"a lower cost", 400 * ms, with(func(c *store.Call) { c.Cost = 1 }), 3 * ms, false},
		{"a lower ceiling", 400 * ms, with(func(c *store.Call) { c.Ceilings[0]-- }), 3 * ms, true},
		{"a higher ceiling", 400 * ms, with(func(c *store.Call) { c.Ceilings[1]++ }), 3 * ms, false},
		{"one lower, one higher", 400 * ms, with(func(c *store.Call) { c.Ceilings[0]--; c.Ceilings[1]++ }), 3 * ms, false},
		{"an idempotency key may have been admitted before", 400 * ms, with(func(c *store.Call) { c.Record = "r" }), 3 * ms, false},
		{"a peek asks for figures", 400 * ms, with(func(c *store.Call) { c.Op = store.OpPeek }), 3 * ms, false},
		{"a report is not refused", 400 * ms, with(func(c *store.Call) { c.Op = store.OpReport }), 3 * ms, false},
		{"another tenant", 400 * ms, limitertest.CallOf(plan, "globex", 2), 3 * ms, false},
		{"the configuration was reloaded", 400 * ms, limitertest.CallOf(other, "acme", 2), 3 * ms, false},
	} {
		d := newTestDenyCache()
		d.remember(&asked, []quota.LimitState{deniedFor(row.retry), deniedFor(0)}, d.current(), start, start.Add(3*ms))
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
	c := limitertest.OneCall("acme", 5, 1)
	c.Record = "rl:{acme}:i:k"
	d, now := newTestDenyCache(), denyStart
	d.remember(&c, []quota.LimitState{deniedFor(time.Hour)}, d.current(), now, now)
	c.Record = ""
	if _, ok := d.recall(&c, now); ok {
		t.Error("recalled")
	}
}

// The times of a recalled denial have moved on, each limit's on its own: one
// that denied for less time than another has ended and is not the reason any more.
func TestDenyCacheTimesMoveOn(t *testing.T) {
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "short", Units: 1, Window: time.Second}, {Name: "long", Units: 1, Window: time.Minute}, {Name: "free", Units: 9, Window: time.Minute}})
	c := limitertest.CallOf(plan, "acme", 1)
	d, start := newTestDenyCache(), denyStart
	d.remember(&c, []quota.LimitState{deniedFor(100 * ms), deniedFor(800 * ms), deniedFor(0)}, d.current(), start, start.Add(2*ms))
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
					row.at, plan.Limits[i].Name, got[i].RetryAfter, got[i].Denied, got[i].ResetAfter, retry, row.resets[i])
			}
		}
	}
}

func TestDenyCacheBounded(t *testing.T) {
	t.Parallel() // it measures no time
	d, now := newTestDenyCache(), denyStart
	all := d.denials.Shard(0)
	if !all.Take(mostCached, 0) || all.Take(1, 0) {
		t.Errorf("there is not room for just %d denials", mostCached)
	}
	all.Give(mostCached)
	const most = 1 << 13
	d.denials.Bound(most)
	c := limitertest.OneCall("acme", 5, 1)
	limits := []quota.LimitState{deniedFor(time.Hour)}
	last := ""
	for i := range 2 * most {
		last = fmt.Sprint("rl:{", i, "}:l:standard:::")
		c.Keys = []string{last}
		d.remember(&c, limits, d.current(), now, now)
	}
	if n := d.size(now); n > most || n < most*9/10 {
		t.Errorf("%d denials are held of %d, want at most %d and not much less", n, 2*most, most)
	}
	if _, ok := d.recall(&c, now); !ok {
		t.Errorf("the newest, %s, was not kept", last)
	}
	if n := d.size(now.Add(maxCached)); n != 0 {
		t.Errorf("%d denials are held when all have ended", n)
	}
}

// A denial by a global limit is remembered for a second at most, one by a regional limit
// beside it for as long as that denies.
func TestDenyCacheGlobalForASecond(t *testing.T) {
	c := limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{{Name: "a", Units: 1, Window: time.Minute}, {Name: "b", Units: 1, Window: time.Hour}}), "acme", 1)
	for _, row := range []struct {
		regional, global, want time.Duration
	}{
		{0, time.Minute, time.Second},
		{0, 300 * ms, 300 * ms},
		{500 * ms, time.Minute, time.Second},
		{3 * time.Second, time.Minute, 3 * time.Second},
		{time.Hour, time.Minute, 30 * time.Second},
	} {
		d := newTestDenyCache()
		d.remember(&c, []quota.LimitState{deniedFor(row.regional), deniedGlobally(row.global)}, d.current(), denyStart, denyStart)
		_, before := d.recall(&c, denyStart.Add(row.want-1))
		if _, then := d.recall(&c, denyStart.Add(row.want)); !before || then {
			t.Errorf("%v by a regional limit, %v by a global one: recalled before %v is %v, then %v", row.regional, row.global, row.want, before, then)
		}
	}
}

// What a bound denies any process of the region may borrow a moment later.
func TestDenyCacheBoundForAMoment(t *testing.T) {
	limit := &quota.Limit{Name: "a", Units: 1, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}
	c := limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{limit}), "acme", 1)
	for _, row := range []struct{ regional, bounded, want time.Duration }{
		{0, time.Minute, 50 * ms},
		{0, 20 * ms, 20 * ms},
		{500 * ms, time.Minute, 500 * ms}, // the regional limit denies all the same
	} {
		d, denied := newTestDenyCache(), deniedFor(row.bounded)
		denied.Limit = limit
		d.remember(&c, []quota.LimitState{deniedFor(row.regional), denied}, d.current(), denyStart, denyStart)
		_, before := d.recall(&c, denyStart.Add(row.want-1))
		if _, then := d.recall(&c, denyStart.Add(row.want)); !before || then {
			t.Errorf("%v by a regional limit, %v by a bound: recalled before %v is %v, then %v", row.regional, row.bounded, row.want, before, then)
		}
	}
}

// Each cost of a partition is remembered with its own retry-after, and so is each set of costs.
func TestDenyCacheByCost(t *testing.T) {
	d, c := newTestDenyCache(), limitertest.OneCall("acme", 9, 1)
	rows := []struct {
		cost  int64
		costs []int64
		retry time.Duration
	}{{1, nil, 4 * ms}, {2, nil, 2 * ms}, {2, []int64{1, 2}, 3 * ms}, {2, []int64{2, 1}, 5 * ms}, {1, nil, 6 * ms}}
	for _, row := range rows {
		c.Cost, c.Costs = row.cost, row.costs
		d.remember(&c, []quota.LimitState{deniedFor(row.retry)}, d.current(), denyStart, denyStart)
	}
	for _, row := range rows[1:] {
		c.Cost, c.Costs = row.cost, row.costs
		if limits, ok := d.recall(&c, denyStart); !ok || limits[0].RetryAfter != row.retry {
			t.Errorf("cost %d, %v: recalled %v with %+v, want %v", c.Cost, c.Costs, ok, limits, row.retry)
		}
	}
	c.Cost, c.Costs = 3, nil
	if _, ok := d.recall(&c, denyStart); ok {
		t.Error("a cost that was never denied is recalled")
	}
}

// What was asked for before a reset is not remembered after it, whichever process reset it:
// the answer may be older than the reset.
func TestDenyCacheForgetsWhatIsUnderWay(t *testing.T) {
	resets := int64(0)
	d, c := newDenyCache(denyStart, func() int64 { return resets }), limitertest.OneCall("acme", 9, 1)
	for _, reset := range []func(){d.forget, func() { resets += 7 }} {
		limits, asked := []quota.LimitState{deniedFor(time.Minute)}, d.current()
		reset()
		d.remember(&c, limits, asked, denyStart, denyStart)
		if _, ok := d.recall(&c, denyStart); ok {
			t.Error("a denial from before the reset was recalled")
		}
		d.remember(&c, limits, d.current(), denyStart, denyStart)
		if _, ok := d.recall(&c, denyStart); !ok {
			t.Error("a denial from after the reset was not recalled")
		}
	}
}

// Two partitions whose hashes are equal are told apart.
func TestDenyCacheComparesKeys(t *testing.T) {
	d, c := newTestDenyCache(), limitertest.OneCall("acme", 9, 1)
	d.remember(&c, []quota.LimitState{deniedFor(time.Minute)}, d.current(), denyStart, denyStart)
	k := d.keyOf(&c)
	d.denials.Shard(k.hash).Get(k, 0).Value.keys = []string{"rl:{globex}:l:standard:::"}
	if _, ok := d.recall(&c, denyStart); ok {
		t.Error("another partition's denial was recalled")
	}
	d.remember(&c, []quota.LimitState{deniedFor(time.Minute)}, d.current(), denyStart, denyStart)
	if _, ok := d.recall(&c, denyStart); !ok {
		t.Error("not recalled")
	}
}

// timedLimiter is a Limiter whose process and whose real Redis share one clock,
// which the test moves by hand.
type timedLimiter struct {
	*Limiter
	srv   *redisserver.Server
	store *redisstore.Store
	now   time.Time
}

func newTimedLimiter(t testing.TB, srv *redisserver.Server) *timedLimiter {
	t.Helper()
	l := &timedLimiter{srv: srv, store: newRedis(t, srv.Addr(), limitertest.TimedLua), now: time.UnixMicro(1_795_198_405_260_197)}
	l.move(t, 0)
	return l
}

// enforce begins again with these limits for everybody.
func (l *timedLimiter) enforce(t rapid.TB, limits []quota.Limit) {
	t.Helper()
	var err error
	l.Limiter, err = New(Options{
		Store: l.store, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return l.now },
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
	if err := l.srv.Client().Set(context.Background(), limitertest.NowKey, l.now.UnixMicro(), 0).Err(); err != nil {
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
	l, run := newTimedLimiter(t, srv), 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		tenant := fmt.Sprint("t", run)
		var limits []quota.Limit
		capacity := quota.MaxUnits
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			limit := *limitertest.GenLimit(t, fmt.Sprint("l", i))
			limit.Window = time.Duration(rapid.IntRange(20, 5000).Draw(t, "W")) * ms
			limit.Burst = 0
			limits, capacity = append(limits, limit), min(capacity, limit.Units)
		}
		l.enforce(t, limits)
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

// Ten thousand denied checks in two seconds reach Redis once, and those of a tenant who
// alternates two costs twice.
func TestDenyCacheFloodCostsNoRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	l := newTimedLimiter(t, srv)
	l.enforce(t, []quota.Limit{{Name: "minute", Units: 3, Window: time.Minute}})
	for range 3 {
		l.ask(t, "acme", 1)
	}
	for _, costs := range []int64{1, 2} {
		before, remembered := srv.Calls(t, "evalsha"), int64(0)
		for i := range int64(10_000) {
			d := l.ask(t, "acme", 1+i%costs)
			if d.Allowed {
				t.Fatal("admitted beyond the limit")
			}
			if d.Basis == quota.BasisCached {
				remembered++
			}
			l.now = l.now.Add(200 * time.Microsecond) // Redis's own clock stands: it is hardly asked
		}
		if calls := srv.Calls(t, "evalsha") - before; calls != 1 || remembered != 10_000-calls {
			t.Errorf("%d costs: %d calls to redis, %d answers from memory, want 1 call for 10000 denials", costs, calls, remembered)
		}
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
	l.enforce(t, limits(1))
	l.ask(t, "acme", 1)
	l.ask(t, "acme", 1)
	if d := l.ask(t, "acme", 1); d.Allowed || d.Basis != quota.BasisCached {
		t.Fatalf("allowed %v by %v, want a remembered denial", d.Allowed, d.Basis)
	}
	configure := func(units int64) {
		if err := l.Configure(Config{
			Policies: []quota.Policy{{Name: "standard", Limits: limits(units), EnforcePercent: -1}},
			Default:  &quota.Tenant{Policy: "standard"}, MaxUnknown: 1 << 20,
		}); err != nil {
			t.Fatal(err)
		}
	}
	configure(1)
	if d := l.ask(t, "acme", 1); d.Allowed || d.Basis != quota.BasisExact {
		t.Fatalf("after a reload that changes nothing: allowed %v by %v, want to ask anew", d.Allowed, d.Basis)
	}
	configure(2)
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
	if n := l.denyCache.size(l.now.Add(maxCached)); n != 0 {
		t.Errorf("%d denials under earlier configurations stay in memory", n)
	}
}
