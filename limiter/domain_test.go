package limiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// chargesRig is a domain of one limit, 10 a minute by user, of which only the first value has a partition of its own.
func chargesRig(t *testing.T) (r *weather, ask func(kind quota.Ask, costs ...int64) quota.Decision) {
	t.Helper()
	policy := &quota.Policy{Name: "rls-edge", OnStoreLoss: quota.FailShare, EnforcePercent: -1, Limits: []quota.Limit{
		{Name: "user", Units: 10, Window: time.Minute, By: []string{"user"}},
	}}
	r = newWeather(t, limiter.Config{Domains: []quota.Domain{{Policy: policy, Tenant: "edge"}}, MaxValues: 1})
	return r, func(kind quota.Ask, costs ...int64) quota.Decision {
		t.Helper()
		q := quota.Question{Ask: kind, Request: quota.Request{Tenant: "edge", Policy: policy.Name}}
		for i, cost := range costs {
			q.Charges = append(q.Charges, quota.Charge{
				Limit: &policy.Limits[0], Dimensions: quota.Dimensions{{Name: "user", Value: fmt.Sprint("u", i)}}, Cost: cost,
			})
		}
		o := r.Decide(t.Context(), []quota.Question{q})[0]
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return o.Decision
	}
}

// TestChargesOfSharedValues: values beyond max_values have one partition, in which the charges of a request add up.
func TestChargesOfSharedValues(t *testing.T) {
	_, ask := chargesRig(t)
	for i, row := range []struct {
		costs   []int64
		allowed bool
		left    []int64
	}{
		{[]int64{1, 4, 4}, true, []int64{9, 2, 2}},
		{[]int64{1, 2, 2}, false, []int64{9, 2, 2}}, // together they are more than is left
		{[]int64{1, 1, 1}, true, []int64{8, 0, 0}},
		{[]int64{1, 1}, false, []int64{8, 0}},
	} {
		d := ask(quota.AskCheck, row.costs...)
		for n, left := range row.left {
			if d.Limits[n].Remaining != left || d.Allowed != row.allowed {
				t.Fatalf("row %d: allowed %v, %d has %d left; want %v and %d", i, d.Allowed, n, d.Limits[n].Remaining, row.allowed, left)
			}
		}
	}
}

// TestDeniedChargesAreRemembered: by the costs of all of them.
func TestDeniedChargesAreRemembered(t *testing.T) {
	_, ask := chargesRig(t)
	ask(quota.AskCheck, 8)
	for _, row := range []struct {
		costs []int64
		want  quota.Basis
	}{
		{[]int64{3, 5}, quota.BasisExact},
		{[]int64{3, 5}, quota.BasisCached},
		{[]int64{5, 3}, quota.BasisExact},
		{[]int64{2, 5}, quota.BasisExact},
	} {
		if d := ask(quota.AskCheck, row.costs...); d.Basis != row.want || d.Allowed != (row.costs[0] == 2) {
			t.Errorf("%v: %v, allowed %v", row.costs, d.Basis, d.Allowed)
		}
	}
}

// TestChargesWithoutRedis: memory decides them in one step too.
func TestChargesWithoutRedis(t *testing.T) {
	r, ask := chargesRig(t)
	ask(quota.AskCheck, 8, 1)
	r.fails(quota.ReasonRedisDown, false)
	if d := ask(quota.AskCheck, 3, 1); d.Allowed || d.Basis != quota.BasisLocal {
		t.Errorf("allowed %v by %v", d.Allowed, d.Basis)
	}
	if d := ask(quota.AskPeek, 1, 1); d.Limits[0].Remaining != 2 || d.Limits[1].Remaining != 9 {
		t.Errorf("%+v", d.Limits)
	}
}

// TestDomainThatAReloadRemoves: requests under way are decided as before, in partitions of their own.
func TestDomainThatAReloadRemoves(t *testing.T) {
	r, ask := chargesRig(t)
	ask(quota.AskCheck, 4)
	ok(t, r.Configure(limiter.Config{MaxValues: 1}))
	if d := ask(quota.AskCheck, 1); !d.Allowed || d.Limits[0].Remaining != 5 {
		t.Errorf("after the reload: %+v", d)
	}
}

// TestDomainThatAReloadReplaces: a request under way is decided by the limits that it names, and one after it by its own, though they
// have one name, units and window.
func TestDomainThatAReloadReplaces(t *testing.T) {
	r, ask := chargesRig(t)
	policy := &quota.Policy{Name: "rls-edge", EnforcePercent: -1, Limits: []quota.Limit{
		{Name: "user", Units: 10, Window: time.Minute, Algorithm: quota.SlidingWindow},
	}}
	ok(t, r.Configure(limiter.Config{Domains: []quota.Domain{{Policy: policy, Tenant: "edge"}}, MaxValues: 1}))
	if d := ask(quota.AskCheck, 1); d.Limits[0].Limit.Algorithm != quota.SlidingLog {
		t.Errorf("under way: %+v", d.Limits[0].Limit)
	}
	q := quota.Question{Request: quota.Request{Tenant: "edge", Policy: policy.Name, Charges: []quota.Charge{{Limit: &policy.Limits[0], Cost: 1}}}}
	if o := r.Decide(t.Context(), []quota.Question{q})[0]; o.Err != nil || o.Decision.Limits[0].Limit != &policy.Limits[0] {
		t.Errorf("after the reload: %+v, %v", o.Decision.Limits, o.Err)
	}
}

// TestWhoIsListedInADomain: the tenants that the configuration lists, and the domain's own, have places whatever others take.
func TestWhoIsListedInADomain(t *testing.T) {
	policy := &quota.Policy{Name: "rls-edge", EnforcePercent: -1, Limits: perMinute(10)}
	tenant := quota.Policy{Name: "standard", EnforcePercent: -1, Limits: perMinute(10)}
	r := newWeather(t, limiter.Config{
		Policies: []quota.Policy{tenant}, Tenants: map[string]quota.Tenant{"acme": {Policy: "standard"}},
		Domains: []quota.Domain{{Policy: policy, Tenant: "edge"}},
	})
	for i, row := range []struct {
		tenant   string
		overflow int64
	}{{"acme", 0}, {"edge", 0}, {"stranger", 1}} {
		q := quota.Question{Request: quota.Request{Tenant: row.tenant, Policy: policy.Name, Charges: []quota.Charge{{Limit: &policy.Limits[0], Cost: 1}}}}
		if o := r.Decide(t.Context(), []quota.Question{q})[0]; o.Err != nil || r.count(t, "regiond.unknown_overflow") != row.overflow {
			t.Errorf("%d, %s: %d of the shared partition; %v", i, row.tenant, r.count(t, "regiond.unknown_overflow"), o.Err)
		}
	}
}
