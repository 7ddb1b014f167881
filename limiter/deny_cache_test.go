package limiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// ms is a step in a table that counts milliseconds.
const ms = time.Millisecond

// deniedFor is what remains of a regional limit that denies for so long.
func deniedFor(retry time.Duration) quota.LimitState {
	return quota.LimitState{Limit: &quota.Limit{}, Denied: retry > 0, RetryAfter: retry, ResetAfter: retry + 5*time.Millisecond}
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

// How long a denial is remembered depends on what denies it.
func TestDenyCacheLasts(t *testing.T) {
	global := &quota.Limit{Name: "b", Units: 1, Window: time.Hour, Scope: quota.ScopeGlobal}
	bounded := &quota.Limit{Name: "b", Units: 1, Window: time.Hour, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}
	c := limitertest.CallOf(store.NewKeyPlan([]*quota.Limit{{Name: "a", Units: 1, Window: time.Minute}, global}), "acme", 1)
	for _, row := range []struct {
		regional     time.Duration
		limit        *quota.Limit
		denies, want time.Duration
	}{
		{0, global, time.Minute, time.Second},
		{0, global, 300 * ms, 300 * ms},
		{500 * ms, global, time.Minute, time.Second},
		{3 * time.Second, global, time.Minute, 3 * time.Second},
		{time.Hour, global, time.Minute, 30 * time.Second},
		{0, bounded, time.Minute, 50 * ms}, // any process of the region may borrow
		{0, bounded, 20 * ms, 20 * ms},
		{500 * ms, bounded, time.Minute, 500 * ms}, // the regional limit denies all the same
	} {
		d, denied := newTestDenyCache(), deniedFor(row.denies)
		denied.Limit = row.limit
		d.remember(&c, []quota.LimitState{deniedFor(row.regional), denied}, d.current(), denyStart, denyStart)
		if limits, ok := d.recall(&c, denyStart.Add(-ms)); !ok || limits[1].RetryAfter != row.denies { // a clock read before it was received
			t.Errorf("%+v: recalled %v with %+v", row, ok, limits)
		}
		limits, before := d.recall(&c, denyStart.Add(row.want-1))
		for i := range limits { // what denied for a shorter time is not the reason any more
			was := deniedFor([]time.Duration{row.regional, row.denies}[i])
			retry, reset := max(0, was.RetryAfter-(row.want-1)), max(0, was.ResetAfter-(row.want-1))
			if l := limits[i]; l.Denied != (retry > 0) || l.RetryAfter != retry || l.ResetAfter != reset {
				t.Errorf("%+v: limit %d is recalled as %+v at the end, want %v and %v", row, i, l, retry, reset)
			}
		}
		if _, then := d.recall(&c, denyStart.Add(row.want)); !before || then {
			t.Errorf("%+v: recalled before the end is %v, then %v", row, before, then)
		}
		keyed := c
		keyed.Record = "rl:{acme}:i:k" // its next try has to see what was admitted elsewhere
		d = newTestDenyCache()
		if d.remember(&keyed, []quota.LimitState{deniedFor(row.regional), denied}, d.current(), denyStart, denyStart); d.size(denyStart) > 0 {
			t.Error("a denial with an Idempotency-Key is remembered")
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

// TestPlansAreBounded: what is beyond is not kept, and a plan takes the place of the one before all the same.
func TestPlansAreBounded(t *testing.T) {
	t.Parallel()
	var p plans
	for i := range 2 * mostPlans {
		p.put(fmt.Append(nil, i), &limitPlan{})
	}
	newer := p.put([]byte("0"), &limitPlan{})
	if len(p.all) != mostPlans || p.get([]byte("0")) != newer {
		t.Errorf("%d are kept, want %d", len(p.all), mostPlans)
	}
}
