package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// overlay has overrides by tenant; err fails all look-ups.
type overlay struct {
	all   map[string]*quota.Override
	err   error
	ended bool // all of them are over
}

func (o *overlay) Of(_ context.Context, tenant string) (*quota.Override, error) {
	if o.ended {
		return nil, o.err
	}
	return o.all[tenant], o.err
}

func (o *overlay) Read(ctx context.Context, tenant string) (*quota.Override, error) {
	return o.Of(ctx, tenant)
}

func (o *overlay) Known(tenant string) bool { return o.all[tenant] != nil }

// set gives a tenant units.
func (o *overlay) set(tenant, policy string, limits ...quota.OverrideLimit) {
	o.all[tenant] = &quota.Override{
		Tenant: tenant, Policy: policy, Limits: limits, Version: quota.OverrideVersion{Counter: 1, WallUS: 1, Region: "eu"}, By: "ops", Reason: "launch",
	}
}

// overridden is a limiter of tenant acme under policy standard, 2 a minute and 1 a minute for each user.
func overridden(t *testing.T) (*rig, *overlay) {
	t.Helper()
	o := &overlay{all: map[string]*quota.Override{}}
	minute := func(name string, units int64, by ...string) quota.Limit {
		return quota.Limit{Name: name, Units: units, Window: time.Minute, By: by}
	}
	return newRig(t, limiter.Options{
		Overrides: o, Now: atRest,
		Config: limiter.Config{
			Region: "eu", MaxValues: 3, MaxUnknown: 0,
			Policies: []quota.Policy{
				{Name: "standard", EnforcePercent: -1, Limits: []quota.Limit{minute("all", 2), minute("user", 1, "user")}},
				{Name: "large", EnforcePercent: -1, Limits: []quota.Limit{minute("all", 100)}},
			},
			Tenants: map[string]quota.Tenant{"acme": {Policy: "standard"}},
		},
	}), o
}

func user(name string) quota.Dimensions { return quota.Dimensions{{Name: "user", Value: name}} }

// ask checks under an override, and returns the answer in one line: whether it passed, L and what is left.
func ask(t *testing.T, r *rig, q quota.Request) quota.Decision {
	t.Helper()
	q.Cost = max(1, q.Cost)
	d := must(r.Check(t.Context(), q))(t)
	return d
}

// A raise is in force with the next decision, although a denial is remembered, and what was used counts on. A cut and
// an end are too.
func TestOverrideIsInForceAtOnce(t *testing.T) {
	r, o := overridden(t)
	step := func(what string, allowed bool, limit, remaining int64) {
		t.Helper()
		d := ask(t, r, quota.Request{Tenant: "acme", Dimensions: user(what)})
		if s := d.Limits[0]; d.Allowed != allowed || s.Limit.Units != limit || s.Remaining != remaining {
			t.Errorf("%s: allowed %v by %d, %d left; want %v, %d, %d", what, d.Allowed, s.Limit.Units, s.Remaining, allowed, limit, remaining)
		}
		if (d.Override != nil) != (o.all["acme"] != nil) {
			t.Errorf("%s: the answer shows override %v", what, d.Override)
		}
	}
	step("1", true, 2, 1)
	step("2", true, 2, 0)
	step("3", false, 2, 0)
	step("3", false, 2, 0) // remembered
	o.set("acme", "", quota.OverrideLimit{Name: "all", Units: 5}, quota.OverrideLimit{Name: "unknown", Units: 1})
	step("3", true, 5, 2)
	o.set("acme", "", quota.OverrideLimit{Name: "all", Units: 3})
	step("4", false, 3, 0)
	delete(o.all, "acme")
	step("4", false, 2, 0)
	o.set("acme", "large", quota.OverrideLimit{Name: "all", Units: 7})
	step("4", true, 7, 6) // of another policy it has used nothing
	// Another policy than the tenant's own keeps its units.
	if d := ask(t, r, quota.Request{Tenant: "acme", Policy: "standard", Dimensions: user("5")}); d.Limits[0].Limit.Units != 2 {
		t.Errorf("under a policy that the request names: %+v", d.Limits[0])
	}
	o.set("acme", "gone", quota.OverrideLimit{Name: "all", Units: 4})
	step("5", true, 4, 0) // a policy that a reload dropped is ignored
}

// No units: 429 without a time to retry, whatever the cost; what was done is charged all the same, and observed it passes.
func TestSuspended(t *testing.T) {
	r, o := overridden(t)
	o.set("acme", "", quota.OverrideLimit{Name: "all", Units: 0})
	for _, cost := range []int64{1, 2, 1000} {
		d := ask(t, r, quota.Request{Tenant: "acme", Cost: cost, Dimensions: user("a"), Explain: cost == 2})
		if d.Allowed || d.Reason != quota.ReasonSuspended || d.RetryAfter() != 0 || !slices.Equal(d.Violated(), []string{"all"}) {
			t.Errorf("cost %d: %+v", cost, d)
		}
		if cost != 2 {
			continue
		}
		if text := strings.Join(d.Explanation.Sentences, " "); !strings.Contains(text, "will not until its override ends") ||
			!strings.Contains(text, `has an override by ops ("launch"): all 0.`) || !strings.Contains(text, "It admits nothing of all.") {
			t.Errorf("explained as %s", text)
		}
	}
	if d, err := r.Peek(t.Context(), quota.Request{Tenant: "acme", Cost: 1}); err != nil || d.Allowed || d.Reason != quota.ReasonSuspended {
		t.Errorf("peek: %+v, %v", d, err)
	}
	if d, err := r.Report(t.Context(), quota.Request{Tenant: "acme", Cost: 1, Dimensions: user("b")}); err != nil || !d.Allowed {
		t.Errorf("report: %+v, %v", d, err)
	}
	observe := quota.Observe
	o.all["acme"].Enforcement = &observe
	if d := ask(t, r, quota.Request{Tenant: "acme"}); !d.Allowed || !d.WouldDeny {
		t.Errorf("observed: %+v", d)
	}
	delete(o.all, "acme")
	if d := ask(t, r, quota.Request{Tenant: "acme", Dimensions: user("c")}); !d.Allowed || d.Limits[0].Remaining != 0 {
		t.Errorf("afterwards the report is charged, and nothing else: %+v", d.Limits)
	}
}

// TestSuspendedInAnyFault: no fail mode passes what is suspended, nor does what it was admitted before.
func TestSuspendedInAnyFault(t *testing.T) {
	limits := []quota.Limit{{Name: "all", Units: 100, Window: time.Minute, Scope: quota.ScopeGlobal}}
	c := onePolicy(quota.Policy{Limits: limits, OnStoreLoss: quota.FailOpen, OnOverload: quota.OverloadOpen, OnPartition: quota.FailOpen})
	peers := &others{ceiling: quota.Ceiling{Units: 100, Local: 100}}
	c.Global = peers
	o, s := &overlay{all: map[string]*quota.Override{}}, &weatherStore{Store: memstore.New(memstore.Options{})}
	w := &weather{rig: newRig(t, limiter.Options{Overrides: o, Config: c, Store: s}), store: s}
	asks := func(what string, suspended bool) {
		t.Helper()
		for _, key := range []string{"", "k"} {
			d := must(w.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: key}))(t)
			if d.Allowed == suspended || suspended && d.Reason != quota.ReasonSuspended {
				t.Errorf("%s, key %q: %+v", what, key, d)
			}
		}
	}
	asks("before", false)
	for _, suspended := range []bool{false, true} {
		if suspended {
			o.set("acme", "", quota.OverrideLimit{Name: "all", Units: 0})
		}
		for _, reason := range []quota.Reason{quota.ReasonRedisDown, quota.ReasonOverloaded} {
			w.fails(reason, false)
			asks(reason.String(), suspended)
			w.heals()
		}
		peers.set(quota.Ceiling{Units: 100, Local: 100, Mode: quota.ModeStale, Reason: quota.ReasonPeerSilent})
		asks("cut off", suspended)
	}
}

// Who has an override is listed: it shares its partitions with nobody, and its values are bounded as those of the others.
func TestOverriddenIsListed(t *testing.T) {
	r, o := overridden(t)
	if _, err := r.Check(t.Context(), quota.Request{Tenant: "new", Cost: 1}); err == nil {
		t.Error("an unlisted tenant without a default was decided")
	}
	o.set("new", "standard", quota.OverrideLimit{Name: "all", Units: 90})
	for i, row := range []struct {
		user    string
		allowed bool
	}{{"a", true}, {"b", true}, {"c", true}, {"d", true}, {"a", false}, {"e", false}} { // d and e share a place
		d := ask(t, r, quota.Request{Tenant: "new", Dimensions: user(row.user), Explain: true})
		if d.Allowed != row.allowed || d.Explanation.Unlisted {
			t.Errorf("%d, user %s: %+v", i, row.user, d)
		}
	}
	o.set("new", "")
	if _, err := r.Check(t.Context(), quota.Request{Tenant: "new", Cost: 1}); err == nil {
		t.Error("an override without a policy listed a tenant that has none")
	}
}

// An override that cannot be read leaves the decision to the fail mode.
func TestUnreadOverride(t *testing.T) {
	r, o := overridden(t)
	o.err = &store.Error{Reason: quota.ReasonRedisTimeout, Err: errors.New("too late")}
	d := ask(t, r, quota.Request{Tenant: "acme"})
	if !d.Allowed || d.Basis != quota.BasisLocal || d.Reason != quota.ReasonRedisTimeout {
		t.Errorf("%+v", d)
	}
	o.err = nil
	if d := ask(t, r, quota.Request{Tenant: "acme"}); d.Basis != quota.BasisExact {
		t.Errorf("once it is read: %+v", d)
	}
}

// An override has what the configuration allows, also one that was set under another: at most so many times the units, no more
// than the algorithm keeps, and not what no limit may have.
func TestOverrideWithinTheConfiguration(t *testing.T) {
	o := &overlay{all: map[string]*quota.Override{}}
	limits := []quota.Limit{
		{Name: "all", Units: 2, Window: time.Minute, Algorithm: quota.SlidingWindow},
		{Name: "log", Units: 20_000, Window: time.Minute},
		{Name: "shaped", Units: 10, Window: time.Hour, Algorithm: quota.GCRA, Burst: 7000},
	}
	r := newRig(t, limiter.Options{Overrides: o, Now: atRest, Config: withMost(10, quota.Policy{Limits: limits})})
	for _, row := range []struct{ all, log, shaped, wantAll, wantLog, wantShaped int64 }{
		{19, 99_999, 11, 19, 99_999, 11},
		{20, 100_000, 10, 20, 100_000, 10},
		{21, 100_001, 9, 20, 100_000, 10}, // 7000 at 9 an hour drain in more than 31 days
		{quota.MaxUnits, quota.MaxUnits, quota.MaxUnits, 20, 100_000, 100},
	} {
		o.set("acme", "", quota.OverrideLimit{Name: "all", Units: row.all}, quota.OverrideLimit{Name: "log", Units: row.log}, quota.OverrideLimit{Name: "shaped", Units: row.shaped})
		d := ask(t, r, quota.Request{Tenant: "acme"})
		for i, want := range []int64{row.wantAll, row.wantLog, row.wantShaped} {
			if got := d.Limits[i].Limit.Units; got != want {
				t.Errorf("%+v: limit %s has %d", row, d.Limits[i].Limit.Name, got)
			}
		}
		d = ask(t, r, quota.Request{Tenant: "acme", Explain: true})
		if says := strings.Contains(d.Explanation.Override.Changes, "; of all the topology allows at most 20"); says != (row.all > 20) {
			t.Errorf("%+v: the explanation says %s", row, d.Explanation.Override.Changes)
		}
	}
}

// What settles charge counts under the units of the override, beyond those of the configuration too.
func TestSettleUnderOverride(t *testing.T) {
	for _, algorithm := range []quota.Algorithm{quota.SlidingLog, quota.SlidingWindow, quota.GCRA} {
		o := &overlay{all: map[string]*quota.Override{}}
		r := newRig(t, limiter.Options{Overrides: o, Now: atRest, Config: onePolicy(quota.Policy{
			MaxTTL: time.Minute, MaxHold: 100,
			Limits: []quota.Limit{{Name: "all", Units: 10, Window: time.Hour, Algorithm: algorithm, Counts: quota.CountsTokens}},
		})})
		o.set("acme", "", quota.OverrideLimit{Name: "all", Units: 100})
		for i := range int64(6) {
			r.settle(t, r.reserve(t, "acme", 20), 10)
			d, err := r.Peek(t.Context(), quota.Request{Tenant: "acme", Cost: 1})
			if left := 100 - 10*(i+1); err != nil || d.Limits[0].Remaining != left {
				t.Errorf("%v: %d of 100 are left after %d settles of 10, want %d, %v", algorithm, d.Limits[0].Remaining, i+1, left, err)
			}
		}
		held := r.reserve(t, "acme", 20)
		o.set("acme", "", quota.OverrideLimit{Name: "all", Units: 0})
		if d := r.settle(t, held, 0); d.Settlement == nil || !d.Settlement.Released {
			t.Errorf("%v: a settle of a suspended tenant: %+v", algorithm, d)
		}
	}
}

// Many tenants with units of their own are decided by them, whether their plans are kept or not.
func TestManyUnits(t *testing.T) {
	r, o := overridden(t)
	for i := range int64(5000) {
		tenant := fmt.Sprint("t", i)
		o.set(tenant, "large", quota.OverrideLimit{Name: "all", Units: 1 + i})
		for range 2 {
			if d := ask(t, r, quota.Request{Tenant: tenant, Cost: 1 + i}); d.Limits[0].Limit.Units != 1+i || d.Limits[0].Ceiling != 1+i {
				t.Fatalf("%+v", d.Limits[0])
			}
		}
	}
}
