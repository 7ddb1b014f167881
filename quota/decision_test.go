package quota_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

func TestHeadline(t *testing.T) {
	const s = time.Second
	for _, row := range []struct {
		name   string
		limits []quota.LimitState
		want   int
	}{
		{"no limits", nil, -1},
		{"the least left", []quota.LimitState{{Remaining: 5}, {Remaining: 2}, {Remaining: 9}}, 1},
		{"as little left, and longer", []quota.LimitState{{Remaining: 2, ResetAfter: s}, {Remaining: 2, ResetAfter: 3 * s}, {Remaining: 2, ResetAfter: 2 * s}}, 1},
		{"the first of equals", []quota.LimitState{{Remaining: 2}, {Remaining: 2}}, 0},
		{"a denial before what has less left", []quota.LimitState{{Remaining: 0}, {Remaining: 3, Denied: true, RetryAfter: s}}, 1},
		{"the denial that takes longest", []quota.LimitState{
			{Denied: true, RetryAfter: s}, {Denied: true, RetryAfter: 3 * s, Remaining: 7}, {Denied: true, RetryAfter: 2 * s},
		}, 1},
		{"denials that take as long, the least left", []quota.LimitState{
			{Denied: true, RetryAfter: s, Remaining: 3}, {Denied: true, RetryAfter: s, Remaining: 1},
		}, 1},
	} {
		d := quota.Decision{Limits: row.limits}
		if got := d.Headline(); got != row.want {
			t.Errorf("%s: limit %d, want %d", row.name, got, row.want)
		}
	}
}

// TestDecisionLabel lists what becomes of a request, and whether it was turned away
// undecided. No limit of a check that was shed is known, so none sums it up.
func TestDecisionLabel(t *testing.T) {
	for _, row := range []struct {
		basis              quota.Basis
		allowed, wouldDeny bool
		label              string
		turnedAway         bool
	}{
		{quota.BasisExact, true, false, "allowed", false},
		{quota.BasisExact, false, false, "denied", false},
		{quota.BasisExact, true, true, "would_deny", false},
		{quota.BasisOpen, true, false, "allowed", false},
		{quota.BasisClosed, false, false, "denied", true},
		{quota.BasisClosed, true, true, "would_deny", false},
		{quota.BasisShed, false, false, "shed", true},
		{quota.BasisShed, true, false, "allowed", false}, // under observe
	} {
		d := quota.Decision{Basis: row.basis, Allowed: row.allowed, WouldDeny: row.wouldDeny, Limits: make([]quota.LimitState, 2)}
		if row.basis == quota.BasisShed {
			d.Limits = nil
		}
		if d.Label() != row.label || d.TurnedAway() != row.turnedAway || (d.Headline() < 0) != (row.basis == quota.BasisShed) {
			t.Errorf("%+v: %q, turned away %v, headline %d", row, d.Label(), d.TurnedAway(), d.Headline())
		}
	}
}

// TestDecisionSums holds the sums of a decision against what they sum.
func TestDecisionSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d quota.Decision
		var denied []string
		longest := time.Duration(0)
		for i := range rapid.IntRange(0, 5).Draw(t, "limits") {
			l := quota.LimitState{
				Limit: &quota.Limit{Name: string(rune('a' + i))}, Denied: rapid.Bool().Draw(t, "denied"),
				Remaining: rapid.Int64Range(0, 2).Draw(t, "remaining"), ResetAfter: time.Duration(rapid.Int64Range(0, 2).Draw(t, "reset")),
			}
			if l.Denied {
				l.RetryAfter = time.Duration(rapid.Int64Range(1, 3).Draw(t, "retry"))
				denied = append(denied, l.Limit.Name)
			}
			longest = max(longest, l.RetryAfter)
			d.Limits = append(d.Limits, l)
		}
		if got := d.Violated(); !slices.Equal(got, denied) {
			t.Fatalf("violated %v, want %v", got, denied)
		}
		if got := d.RetryAfter(); got != longest {
			t.Fatalf("retry after %v, want %v", got, longest)
		}
		if got := d.DeniedBy(); (got != nil) != (len(d.Limits) > 0) || len(denied) > 0 && !slices.Contains(denied, got.Limit.Name) {
			t.Fatalf("denied by %+v, want one of %v", got, denied)
		}
		h := d.Headline()
		if (h < 0) != (len(d.Limits) == 0) || len(denied) > 0 && (!d.Limits[h].Denied || d.Limits[h].RetryAfter != longest) {
			t.Fatalf("headline %d of %+v", h, d.Limits)
		}
	})
}
