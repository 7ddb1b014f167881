package limiter_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// boundedPolicy has one limit of ten with a bound, of which the region has three.
func boundedPolicy(o *others) limiter.Config {
	c := onePolicy(quota.Policy{Name: "standard", Limits: []quota.Limit{
		{Name: "strict", Units: 10, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict},
	}})
	c.Global = o
	return c
}

// The store admits within the region's part of the bound, and each check shows what was asked
// for and what is left of that, remembered denials too.
func TestBoundIsAppliedAndShown(t *testing.T) {
	bound := quota.Bound{Share: 3, Epoch: 7}
	o := &others{ceiling: quota.Ceiling{Units: 10, Local: 10, Bounded: true, Bound: bound}}
	w := newWeather(t, boundedPolicy(o))
	asked := func() (asks []string) {
		for _, p := range o.drain() {
			if ask, ok := strings.CutPrefix(p, "{acme standard strict :: 60000000 } asked "); ok {
				asks = append(asks, ask)
			}
		}
		return asks
	}
	for _, step := range []struct {
		cost    int64
		allowed bool
		want    string
	}{
		{2, true, "{Units:2 Denied:false Charged:true Remaining:1 Ceiling:3 Share:3}"},
		{2, false, "{Units:2 Denied:true Charged:false Remaining:1 Ceiling:3 Share:3}"},
		{2, false, "{Units:2 Denied:true Charged:false Remaining:1 Ceiling:3 Share:3}"}, // remembered
	} {
		d := w.check(t, "acme", step.cost)
		if got := asked(); d.Allowed != step.allowed || d.Limits[0].Ceiling != 3 || !slices.Equal(got, []string{step.want}) {
			t.Errorf("allowed %v under %d, shown %q, want %q", d.Allowed, d.Limits[0].Ceiling, got, step.want)
		}
	}
	must(w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1}))(t)
	if got := asked(); len(got) > 0 {
		t.Errorf("a peek shows %q", got)
	}
}

// A bound that leaves nothing of the region's own share says so, and for how long, also where a denial is remembered. The
// reason of a region that others cannot see yields to it only where the bound denies.
func TestBoundSaysWhyNothingIsLeft(t *testing.T) {
	const later, years = 90 * time.Second, 10 * 365 * 24 * time.Hour
	for _, row := range []struct {
		name    string
		bound   func(nowUS int64) quota.Bound
		lenders bool
		reason  quota.Reason
		retry   time.Duration
	}{
		{"open", func(int64) quota.Bound { return quota.Bound{Share: 3, Epoch: 7} }, true, quota.ReasonPeerSilent, 0},
		{"no epoch", func(int64) quota.Bound { return quota.Bound{Share: 3} }, true, quota.ReasonBoundClosed, time.Second},
		{"burnt, and no other region is seen", func(us int64) quota.Bound {
			return quota.Bound{Share: 3, Epoch: 7, BurntUntilUS: us + later.Microseconds()}
		}, false, quota.ReasonBoundBurnt, later},
		{"burnt, and others may lend", func(us int64) quota.Bound {
			return quota.Bound{Share: 3, Epoch: 7, BurntUntilUS: us + later.Microseconds()}
		}, true, quota.ReasonBoundBurnt, time.Second},
		{"found by the store to be of another epoch, or met by a step of its clock", func(us int64) quota.Bound {
			return quota.Bound{Share: 3, Epoch: 7, ToUS: us - 1}
		}, true, quota.ReasonPeerSilent, time.Second},
		{"burnt, and the store's clock was set back by years", func(us int64) quota.Bound {
			return quota.Bound{Share: 3, Epoch: 7, BurntUntilUS: us + years.Microseconds() + later.Microseconds()}
		}, false, quota.ReasonBoundBurnt, time.Second},
		{"over", func(us int64) quota.Bound { return quota.Bound{Share: 3, Epoch: 7, BurntUntilUS: us} }, true, quota.ReasonPeerSilent, 0},
	} {
		o := &others{ceiling: quota.Ceiling{
			Units: 10, Local: 10, Bounded: true, Lenders: row.lenders, Mode: quota.ModePartitioned, Reason: quota.ReasonPeerSilent,
		}}
		w := newWeather(t, boundedPolicy(o))
		o.ceiling.Bound = row.bound(w.at.UnixMicro())
		for _, when := range []string{"decided", "remembered"} {
			d := w.check(t, "acme", 1)
			if d.Allowed != (row.retry == 0) || d.Reason != row.reason || (d.RetryAfter()-row.retry).Abs() > time.Millisecond {
				t.Errorf("%s, %s: allowed %v, %v, retry after %v", row.name, when, d.Allowed, d.Reason, d.RetryAfter())
			}
		}
	}
}

// boundedWeather is a region that may use three of ten, by a limit with a bound.
func boundedWeather(t *testing.T, lost quota.FailMode) (*weather, *others) {
	t.Helper()
	o := &others{ceiling: quota.Ceiling{Units: 10, Local: 10, Bounded: true, Bound: quota.Bound{Share: 3, Epoch: 7}}}
	c := boundedPolicy(o)
	c.Policies[0].OnStoreLoss = lost
	return newWeather(t, c), o
}

func TestReportsBeyondABoundAreCounted(t *testing.T) {
	w, _ := boundedWeather(t, quota.FailClosed)
	exceeded := func() int64 { return w.count(t, "regiond.bound.exceeded", "policy=standard", "limit=strict") }
	for _, step := range []struct{ cost, want int64 }{{2, 0}, {2, 1}, {5, 6}} { // of three
		must(w.Report(context.Background(), quota.Request{Tenant: "acme", Cost: step.cost}))(t)
		if got := exceeded(); got != step.want {
			t.Errorf("after a report of %d: %d units beyond the bound, want %d", step.cost, got, step.want)
		}
	}
	if w.check(t, "acme", 1); exceeded() != 6 {
		t.Error("a denied check counts as beyond the bound")
	}
}

// Without Redis a bound is kept by denying, unless the policy says otherwise: then each check
// that passes is counted.
func TestBoundsWithoutTheStore(t *testing.T) {
	for _, row := range []struct {
		mode             quota.FailMode
		allowed, counted int64
	}{{quota.FailClosed, 0, 0}, {quota.FailShare, 10, 10}, {quota.FailOpen, 20, 20}} {
		w, _ := boundedWeather(t, row.mode)
		w.check(t, "other", 1)
		w.fails(quota.ReasonRedisDown, false)
		allowed := int64(0)
		for range 20 {
			d := w.check(t, "acme", 1)
			if d.Allowed {
				allowed++
			}
			if row.mode == quota.FailShare && d.Limits[0].Ceiling != 10 {
				t.Fatalf("memory decides under %d, want 10", d.Limits[0].Ceiling)
			}
		}
		if got := w.count(t, "regiond.bound.suspended", "policy=standard", "limit=strict"); allowed != row.allowed || got != row.counted {
			t.Errorf("%v: %d allowed, %d counted, want %d and %d", row.mode, allowed, got, row.allowed, row.counted)
		}
	}
}

// What peers used ages out, and does not help where the bound is used up.
func TestRetryAfterOfABound(t *testing.T) {
	w, o := boundedWeather(t, quota.FailClosed)
	o.grows = func(int64) time.Duration { return time.Second }
	w.check(t, "acme", 3)
	if d := w.check(t, "acme", 1); d.Allowed || d.RetryAfter() != time.Minute {
		t.Errorf("allowed %t, again after %v, want after a minute", d.Allowed, d.RetryAfter())
	}
	o.set(quota.Ceiling{Units: 2, Local: 2, Bounded: true, Bound: quota.Bound{Share: 5, Epoch: 7}})
	w.at = w.at.Add(50 * time.Millisecond)
	if d := w.check(t, "acme", 1); d.Allowed || d.RetryAfter() != time.Second {
		t.Errorf("allowed %t, again after %v, want after the second in which the ceiling grows", d.Allowed, d.RetryAfter())
	}
}
