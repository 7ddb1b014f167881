package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

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
		if _, err := w.Report(context.Background(), quota.Request{Tenant: "acme", Cost: step.cost}); err != nil {
			t.Fatal(err)
		}
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
