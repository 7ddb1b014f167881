package limiter_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestOverloadAnswers: what each kind of request gets that the store was too busy to
// decide, by on_overload and enforcement, and what is counted of it.
func TestOverloadAnswers(t *testing.T) {
	c := onePolicy(quota.Policy{Name: "standard", Limits: perMinute(5)})
	for _, mode := range []quota.OverloadMode{quota.OverloadShed, quota.OverloadOpen} {
		for _, e := range []quota.Enforcement{quota.Enforce, quota.Observe} {
			c.Policies = append(c.Policies, quota.Policy{
				Name: mode.String() + "-" + e.String(), Limits: perMinute(5), OnOverload: mode, Enforcement: e, EnforcePercent: -1,
				OnStoreLoss: quota.FailClosed, // is not asked
			})
		}
	}
	w := newWeather(t, c)
	w.fails(quota.ReasonOverloaded, false)
	calls := map[string]func(context.Context, quota.Request) (quota.Decision, error){"check": w.Check, "report": w.Report, "peek": w.Peek}
	for _, row := range []struct {
		policy, call string
		basis        quota.Basis
		allowed      bool
	}{
		{"shed-enforce", "check", quota.BasisShed, false},
		{"shed-enforce", "report", quota.BasisShed, false},
		{"shed-enforce", "peek", quota.BasisShed, false},
		{"shed-observe", "check", quota.BasisShed, true}, // as any check under observe
		{"shed-observe", "report", quota.BasisShed, false},
		{"shed-observe", "peek", quota.BasisShed, false},
		{"open-enforce", "check", quota.BasisOpen, true},
		{"open-enforce", "report", quota.BasisShed, false}, // 200 would say that it was charged
		{"open-enforce", "peek", quota.BasisOpen, true},
		{"open-observe", "check", quota.BasisOpen, true},
		{"open-observe", "report", quota.BasisShed, false},
	} {
		d, err := calls[row.call](context.Background(), quota.Request{Tenant: "acme", Policy: row.policy, Cost: 1})
		if err != nil || d.Basis != row.basis || d.Allowed != row.allowed || d.WouldDeny || d.Reason != quota.ReasonOverloaded || d.Mode != quota.ModeGlobal {
			t.Errorf("%+v: %v %+v", row, err, d)
		}
		retry := time.Duration(0)
		if row.basis == quota.BasisShed {
			retry = time.Second
		}
		if d.RetryAfter() != retry || len(d.Violated()) > 0 || (len(d.Limits) == 0) != (row.basis == quota.BasisShed) {
			t.Errorf("%+v: retry after %v, violated %v, %d limits", row, d.RetryAfter(), d.Violated(), len(d.Limits))
		}
	}
	got := w.collected(t)
	labels := series(got["regiond.decisions"])
	if want := []string{
		"basis=open decision=allowed mode=global policy=open-enforce reason=overloaded",
		"basis=open decision=allowed mode=global policy=open-observe reason=overloaded",
		"basis=shed decision=allowed mode=global policy=shed-observe reason=overloaded",
		"basis=shed decision=shed mode=global policy=open-enforce reason=overloaded",
		"basis=shed decision=shed mode=global policy=open-observe reason=overloaded",
		"basis=shed decision=shed mode=global policy=shed-enforce reason=overloaded",
		"basis=shed decision=shed mode=global policy=shed-observe reason=overloaded",
	}; !slices.Equal(labels, want) {
		t.Errorf("counted as %q, want %q", labels, want)
	}
	if _, near := got["regiond.near_misses"]; near {
		t.Error("a check that was shed counts as a near miss")
	}
	w.heals()
	if n := w.admits(t, "acme/shed-enforce", 10); n != 5 {
		t.Errorf("%d of 5 admitted after what was turned away, which charges nothing", n)
	}
}

// TestShed: what a listener turns away unread is counted as shed, of no policy, and decides nothing.
func TestShed(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(5)}))
	d := w.Shed(context.Background())
	if !d.TurnedAway() || d.Basis != quota.BasisShed || d.Reason != quota.ReasonOverloaded || d.Mode != quota.ModeGlobal || d.RetryAfter() != time.Second {
		t.Errorf("got %+v", d)
	}
	labels := series(w.collected(t)["regiond.decisions"])
	if want := []string{"basis=shed decision=shed mode=global policy= reason=overloaded"}; !slices.Equal(labels, want) {
		t.Errorf("counted as %q, want %q", labels, want)
	}
	if all := w.Outcomes(); len(all) > 0 {
		t.Errorf("policies that decided something: %v, want none", all)
	}
}
