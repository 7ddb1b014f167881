package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// Explanation is how one ceiling came to be.
type Explanation struct {
	Ceiling int64
	Closed  bool
	Part    int64  // our own
	Formula string // with its numbers: "max(0, parts a 50 + b 50 − used b 12 − lost 0) = 88"
	Mode    quota.Mode
	Reason  quota.Reason
	Text    string // why, in words
	Peers   []Term // every other region, in topology order
}

// Term is what one other region contributes.
type Term struct {
	Region   string
	Part     int64
	Weight   int64
	Estimate int64 // as it was given, whether or not it was subtracted
	InView   bool  // it is in M
	State    State
	Age      time.Duration // of what was last heard of it; Never
	Reason   string        // why it is not in M; "" when it is
}

// Explain is Ceiling with every term shown. It allocates, and is meant for answers
// that ask for it.
func (v *View) Explain(units int64, f quota.FailMode, estimates []int64, lost int64) Explanation {
	t := v.terms(units, f, estimates, lost)
	e := Explanation{Part: t.Parts[v.self], Text: v.why()}
	e.Ceiling, e.Closed = Ceiling(t)
	e.Mode, e.Reason = v.Mode(f)
	e.Formula = v.formula(t)
	for k, p := range v.peers {
		if k == v.self {
			continue
		}
		term := Term{
			Region: p.Region, Part: t.Parts[k], Weight: v.division.weights[k], InView: v.members.Has(k),
			State: p.State, Age: p.Heard, Reason: p.Text,
		}
		if k < len(estimates) {
			term.Estimate = estimates[k]
		}
		if term.Reason == "" && !term.InView {
			term.Reason = v.why()
		}
		e.Peers = append(e.Peers, term)
	}
	return e
}

// formula writes out what Ceiling computes, term by term.
func (v *View) formula(t Terms) string {
	units, closed := Ceiling(t)
	if closed {
		return fmt.Sprintf("nothing while blind (%v: %s) = 0", v.reason, strings.Join(v.about, ", "))
	}
	widened := !v.blind() || t.widens()
	var parts, used, beyond []string
	for k, part := range t.Parts {
		name := v.regions[k]
		switch {
		case k == t.Self:
			parts = append(parts, fmt.Sprintf("%s %d", name, part))
		case widened || t.Members.Has(k):
			parts = append(parts, fmt.Sprintf("%s %d", name, part))
			used = append(used, fmt.Sprintf(" − used %s %d%s", name, t.estimate(k), v.note(t, k)))
		default:
			beyond = append(beyond, fmt.Sprintf(" − beyond its part %s max(0, %d − %d)", name, t.estimate(k), part))
		}
	}
	return fmt.Sprintf("max(0, parts %s%s%s − lost %d) = %d", strings.Join(parts, " + "),
		strings.Join(used, ""), strings.Join(beyond, ""), max(0, t.Lost), units)
}

// note qualifies the estimate of a region outside M that is subtracted nevertheless.
func (v *View) note(t Terms, k int) string {
	if t.Fail == quota.FailOpen && !t.Members.Has(k) && !t.Current.Has(k) {
		return " (silent, counted as idle)"
	}
	return ""
}
