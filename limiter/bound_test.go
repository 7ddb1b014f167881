package limiter_test

import (
	"context"
	"fmt"
	"slices"
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
			var key, rest string
			if n, _ := fmt.Sscanf(p, "{acme standard strict :: %s asked %s", &key, &rest); n == 2 {
				asks = append(asks, p[len("{acme standard strict :: 60000000} asked "):])
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
	if _, err := w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1}); err != nil {
		t.Fatal(err)
	}
	if got := asked(); len(got) > 0 {
		t.Errorf("a peek shows %q", got)
	}
}

// A bound of which the region's data are not known admits nothing.
func TestBoundIsClosedWithoutAnEpoch(t *testing.T) {
	o := &others{ceiling: quota.Ceiling{Units: 10, Local: 10, Bounded: true, Bound: quota.Bound{Share: 3}}}
	w := newWeather(t, boundedPolicy(o))
	if d := w.check(t, "acme", 1); d.Allowed || d.Limits[0].Ceiling != 0 {
		t.Errorf("%+v", d)
	}
}
