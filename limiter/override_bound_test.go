package limiter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// thirds is a Global of a region that has a third of each bound.
type thirds struct{ others }

func (o *thirds) Ceiling(_ *quota.Policy, l *quota.Limit, _ *quota.CounterKey, explain bool, _ int64) quota.Ceiling {
	units, bounded := l.Bound()
	c := quota.Ceiling{Units: l.Units, Local: l.Units, Bounded: bounded, Bound: quota.Bound{Share: units / 3, Epoch: 7}}
	if explain {
		c.Terms = &quota.CeilingTerms{Bound: &quota.BoundTerms{Units: units, Share: c.Bound.Share, KeepMS: 94_000}}
	}
	return c
}

// bounded is a limiter of tenants under two policies with a bound, and of a tenant "large" under the second.
func bounded(t *testing.T) (*rig, *overlay) {
	t.Helper()
	o := &overlay{all: map[string]*quota.Override{}}
	strict := func(name string, units int64) quota.Policy {
		return quota.Policy{Name: name, EnforcePercent: -1, OnStoreLoss: quota.FailClosed, Limits: []quota.Limit{
			{Name: "strict", Units: units, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict},
		}}
	}
	domain := strict("rls-edge", 9)
	domain.Limits[0].Name = "domains"
	return newRig(t, limiter.Options{
		Overrides: o, Now: atRest,
		Config: limiter.Config{
			Region: "eu", MaxOverride: 10, Global: &thirds{}, Policies: []quota.Policy{strict("standard", 9), strict("large", 90)},
			Default: &quota.Tenant{Policy: "standard"}, MaxUnknown: 9, Tenants: map[string]quota.Tenant{"acme": {Policy: "standard"}},
			Domains: []quota.Domain{{Policy: &domain, Tenant: "edge"}},
		},
	}), o
}

// The share of a region is that of the version in force from the next decision on: of a raise, a cut, of none, and of an end. What
// was used counts on.
func TestOverrideOfABound(t *testing.T) {
	r, o := bounded(t)
	for _, step := range []struct {
		units   int64 // −1: no override
		share   int64
		admits  int64
		used    int64
		because quota.Reason
	}{
		{-1, 3, 3, 3, quota.ReasonNone},
		{30, 10, 7, 10, quota.ReasonNone},
		{15, 5, 0, 10, quota.ReasonNone},
		{0, 0, 0, 10, quota.ReasonSuspended},
		{36, 12, 2, 12, quota.ReasonNone},
		{91, 30, 18, 30, quota.ReasonNone}, // tenfold at most
		{-1, 3, 0, 30, quota.ReasonNone},
	} {
		if delete(o.all, "acme"); step.units >= 0 {
			o.set("acme", "", quota.OverrideLimit{Name: "strict", Units: step.units})
		}
		admitted := int64(0)
		for {
			d := ask(t, r, quota.Request{Tenant: "acme"})
			if d.Allowed {
				admitted++
				continue
			}
			s := d.Limits[0]
			if d.Reason != step.because || step.because == quota.ReasonNone && s.Ceiling != step.share {
				t.Errorf("%+v: a ceiling of %d, %v", step, s.Ceiling, d.Reason)
			}
			break
		}
		if admitted != step.admits {
			t.Errorf("%+v: %d admitted", step, admitted)
		}
	}
}

// What is lent of a partition goes by the units by which it is decided there, and by none while these are not known. Where a request
// may say which policy is the tenant's own, it goes by the fewest.
func TestLimitOf(t *testing.T) {
	r, o := bounded(t)
	o.set("raised", "", quota.OverrideLimit{Name: "strict", Units: 30})
	o.set("cut", "", quota.OverrideLimit{Name: "strict", Units: 3})
	o.set("capped", "", quota.OverrideLimit{Name: "strict", Units: 91})
	o.set("suspended", "", quota.OverrideLimit{Name: "strict", Units: 0})
	o.set("moved", "large", quota.OverrideLimit{Name: "strict", Units: 30})
	o.set("other", "", quota.OverrideLimit{Name: "burst", Units: 1})
	for _, row := range []struct {
		tenant, policy string
		units          int64
	}{
		{"acme", "standard", 9},
		{"", "standard", 9}, // the partition of unlisted tenants
		{"raised", "standard", 30},
		{"raised", "large", 30}, // of 90
		{"cut", "standard", 3},
		{"cut", "large", 3},
		{"capped", "standard", 90},
		{"suspended", "standard", 0},
		{"moved", "standard", 9},
		{"moved", "large", 30},
		{"other", "standard", 9},
	} {
		l, err := r.LimitOf(t.Context(), &quota.CounterKey{Tenant: row.tenant, Policy: row.policy, Limit: "strict"})
		if err != nil || l.Units != row.units {
			t.Errorf("%+v: %+v, %v", row, l, err)
		}
		if row.tenant == "" || row.units == 0 {
			continue
		}
		for _, claimed := range []string{"", row.policy} { // as policy_from has it
			d := ask(t, r, quota.Request{Tenant: row.tenant, Policy: row.policy, TenantPolicy: claimed})
			if got := d.Limits[0].Limit.Units; got < row.units {
				t.Errorf("%+v, policy from the request %q: decided by %d", row, claimed, got)
			}
		}
	}
	if l, err := r.LimitOf(t.Context(), &quota.CounterKey{Tenant: "raised", Policy: "standard", Limit: "gone"}); l != nil || err != nil {
		t.Errorf("of no limit: %+v, %v", l, err)
	}
	// No override changes limits of a domain, so what is lent of them waits for none.
	o.set("cut", "", quota.OverrideLimit{Name: "domains", Units: 1})
	if l, err := r.LimitOf(t.Context(), &quota.CounterKey{Tenant: "cut", Policy: "rls-edge", Limit: "domains"}); err != nil || l.Units != 9 {
		t.Errorf("of a domain: %+v, %v", l, err)
	}
	o.err = &store.Error{Reason: quota.ReasonRedisTimeout, Err: errors.New("too late")}
	if l, err := r.LimitOf(t.Context(), &quota.CounterKey{Tenant: "acme", Policy: "standard", Limit: "strict"}); l != nil || err == nil {
		t.Errorf("not read: %+v, %v", l, err)
	}
	if d := ask(t, r, quota.Request{Tenant: "acme"}); d.Allowed || d.Basis != quota.BasisClosed {
		t.Errorf("a bound is decided by an override that was not read: %+v", d)
	}
}

// An explanation says which bound holds, also once the override is over, and to nobody else.
func TestExplainOverrideOfABound(t *testing.T) {
	r, o := bounded(t)
	const says = "Where another override of the tenant, or none, was in force in a region in the last 1m34s, the largest bound of them holds."
	explained := func() string {
		d := ask(t, r, quota.Request{Tenant: "acme", Explain: true})
		return strings.Join(d.Explanation.Sentences, "\n")
	}
	if text := explained(); strings.Contains(text, says) || !strings.Contains(text, "at most 9 units of it in any window, whatever happens") {
		t.Errorf("without an override: %s", text)
	}
	o.set("acme", "", quota.OverrideLimit{Name: "strict", Units: 30})
	if text := explained(); !strings.Contains(text, says) || !strings.Contains(text, "at most 30 units of it in any window (max_overshoot)") {
		t.Errorf("with one: %s", text)
	}
	o.ended = true
	if text := explained(); !strings.Contains(text, says) || !strings.Contains(text, "at most 9 units of it in any window (max_overshoot)") {
		t.Errorf("when it is over: %s", text)
	}
}

// TestSettleUnderACut: what a reservation holds under a raise is charged whole where it is settled under a cut, under none, by a process
// of which the limit is suspended, or after a reload that lowers max_override. A second raise in the same window does not admit it again.
func TestSettleUnderACut(t *testing.T) {
	redis := limiter.NewRedis(t, redisserver.Start(t, redisserver.Options{}).Addr(), "")
	memory := memstore.New(memstore.Options{Now: atRest().UnixMicro})
	tokens := func(times int64) limiter.Config {
		return limiter.Config{
			Region: "eu", MaxOverride: times, Global: &thirds{}, Default: &quota.Tenant{Policy: "llm"}, MaxUnknown: 9, Policies: []quota.Policy{{
				Name: "llm", EnforcePercent: -1, OnStoreLoss: quota.FailClosed, MaxTTL: 2 * time.Minute, MaxHold: 60, Limits: []quota.Limit{{
					Name: "strict", Units: 9, Window: time.Minute, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict, Counts: quota.CountsTokens,
					HeldFor: 2 * time.Minute,
				}},
			}},
		}
	}
	for name, s := range map[string]store.Store{"memory": memory, "redis": redis} {
		o := &overlay{all: map[string]*quota.Override{}}
		r := newRig(t, limiter.Options{Store: s, Overrides: o, Now: time.Now, Config: tokens(10)})
		for tenant, then := range map[string]struct{ units, times int64 }{"cut": {3, 10}, "ended": {-1, 10}, "suspended": {0, 10}, "lowered": {90, 1}} {
			set := func(units, times int64) {
				if delete(o.all, tenant); units >= 0 {
					o.set(tenant, "", quota.OverrideLimit{Name: "strict", Units: units})
				}
				ok(t, r.Configure(tokens(times)))
			}
			set(90, 10)
			held := []quota.Decision{r.reserve(t, tenant, 15), r.reserve(t, tenant, 15)}
			set(then.units, then.times)
			for _, d := range held {
				if !d.Allowed {
					t.Fatalf("%s, %s: %+v", name, tenant, d)
				}
				if s := r.settle(t, d, 15).Settlement; s.Charged != 15 || !s.Released {
					t.Errorf("%s, %s: settled %+v", name, tenant, s)
				}
			}
			set(90, 10)
			if d := r.reserve(t, tenant, 1); d.Allowed {
				t.Errorf("%s, %s: all of the share of 30 was used in this window, and %d more are left", name, tenant, d.Limits[0].Remaining)
			}
		}
	}
}
