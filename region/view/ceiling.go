package view

import "github.com/regiond/regiond/quota"

// Terms is everything that a ceiling is made of. Regions stand in topology order.
type Terms struct {
	Parts []int64 // s: what each region may claim of the limit; they sum to at most L
	// Estimates is what each region is believed to have used, whole units, rounded up
	// by whoever made them. Our own is not looked at.
	Estimates []int64
	Self      int
	Members   Set // M in use, ourselves included
	Current   Set // the regions whose estimates hold, counted on or not
	// Lost is what we admitted and our store has forgotten. It is subtracted like a
	// peer's, so that a store that forgets does not hand out its limit again.
	Lost int64
	Fail quota.FailMode
	// Joining and Frozen: we do not know yet, or not any more, what the others used.
	Joining, Frozen bool
}

// Ceiling is how many units region i, Self, may hold in its window: the only way in
// which what is known elsewhere enters a decision. It is never negative and never
// more than the sum of all parts.
//
//	max(0, Σ j∈M s(j)  −  Σ j∈M, j≠i est(j)  −  lost  −  Σ k∉M max(0, est(k) − s(k)))
//
// M is the group in use, except where the fail mode widens it:
//
//	             | sees all | blind: M smaller than all                  | joining  | frozen
//	-------------+----------+--------------------------------------------+----------+-------------
//	 share       | L − used | M as it is: what the group may claim       | own part | own part
//	 open        | L − used | all; est 0 for regions that are not heard  | own part | all, est 0
//	 closed      | L − used | 0, and closed is true                      | own part | 0, closed
//
// "own part" is the formula with M = {i}: what others used beyond their parts is
// still subtracted. Nothing is closed while joining, or a region could not start
// alone.
//
// Why a subtraction for k∉M: it may have used our part while it counted on us. If it
// holds no more than its own, nothing is subtracted, so groups that do not see each
// other use their parts, which sum to L, and no more.
func Ceiling(t Terms) (units int64, closed bool) {
	all := t.Members.Len() == len(t.Parts)
	if !all && t.shuts() {
		return 0, true
	}
	widened := all || t.widens()
	for k, part := range t.Parts {
		estimate := t.estimate(k)
		switch {
		case k == t.Self:
			units += part
		case widened || t.Members.Has(k):
			units += part - estimate
		default:
			units -= max(0, estimate-part)
		}
	}
	return max(0, units-cap50(t.Lost)), false
}

// shuts reports whether being blind means to admit nothing.
func (t *Terms) shuts() bool { return t.Fail == quota.FailClosed && !t.Joining }

// widens reports whether being blind means to reckon with all parts nevertheless.
func (t *Terms) widens() bool { return t.Fail == quota.FailOpen && !t.Joining }

// estimate is what is subtracted for the k-th region.
func (t *Terms) estimate(k int) int64 {
	idle := t.widens() && t.Members.Len() < len(t.Parts) && !t.Current.Has(k)
	if k == t.Self || k >= len(t.Estimates) || idle {
		return 0
	}
	return cap50(t.Estimates[k])
}

// cap50 keeps a hundred terms from overflowing; a limit has at most 2⁴⁰ units, and
// beyond that nothing is left of it anyway.
func cap50(units int64) int64 { return min(max(0, units), 1<<50) }
