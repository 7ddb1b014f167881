package view

import (
	"math/bits"

	"github.com/regiond/regiond/quota"
)

// Set is a set of regions by their place in the topology, 0…127; a topology has at
// most quota.MaxRegions. The zero value is empty.
type Set [2]uint64

// Has reports whether the i-th region is in the set.
func (s Set) Has(i int) bool { return s[i>>6]>>(i&63)&1 == 1 }

// With returns the set with the i-th region in it.
func (s Set) With(i int) Set {
	s[i>>6] |= 1 << (i & 63)
	return s
}

func (s Set) without(i int) Set {
	s[i>>6] &^= 1 << (i & 63)
	return s
}

// Len is how many regions are in the set.
func (s Set) Len() int { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// Terms is everything that a ceiling is computed from. Regions are in topology order.
type Terms struct {
	Shares []int64 // s: each region's share of the limit; they add up to at most L
	// Estimates is the estimated usage of each region, in whole units, rounded up. Our
	// own is ignored. What follows those in Shares are regions that are not in the
	// topology any more: their share is 0.
	Estimates []int64
	Self      int
	Members   Set // M in use, ourselves included
	Current   Set // the regions whose usage is known, counted on or not
	// Lost is what we admitted and our store has lost. It is subtracted like a peer's
	// usage, so that a store that loses data does not grant its limit again.
	Lost int64
	Fail quota.FailMode
	// Joining: the usage of the others is not known yet.
	Joining bool
}

// Ceiling is how many units region i, Self, may hold in its window: the only way in
// which usage elsewhere affects a decision. It is never negative and never more than
// the sum of all shares.
//
//	max(0, Σ j∈M s(j)  −  Σ j∈M, j≠i est(j)  −  lost  −  Σ k∉M max(0, est(k) − s(k)))
//
// M is the group in use, except where the fail mode widens it:
//
//	             | sees all | partitioned: M smaller than all            | joining   | process paused
//	-------------+----------+--------------------------------------------+-----------+---------------
//	 share       | L − used | M as it is: the shares of the group        | own share | own share
//	 open        | L − used | all; est 0 for regions not in Current      | own share | all, est 0
//	 closed      | L − used | 0, and closed is true                      | own share | 0, closed
//
// "own share" is the formula with M = {i}: what others used above their shares is
// still subtracted. Nothing is closed while joining, or a region could not start
// alone.
//
// The subtraction for k∉M is there because k may have used our share while it counted
// on us. If it holds no more than its own, nothing is subtracted, so groups that do
// not see each other use their shares, which add up to L, and no more. A region that was
// taken out of the topology is such a k, with share 0, until all that it used is over.
func Ceiling(t Terms) (units int64, closed bool) {
	all := t.Members.Len() == len(t.Shares)
	if !all && t.closes() {
		return 0, true
	}
	widened := all || t.widens()
	for k, share := range t.Shares {
		estimate := t.estimate(k)
		switch {
		case k == t.Self:
			units += share
		case widened || t.Members.Has(k):
			units += share - estimate
		default:
			units -= max(0, estimate-share)
		}
	}
	for k := len(t.Shares); k < len(t.Estimates); k++ {
		units -= cap50(t.Estimates[k])
	}
	return max(0, units-cap50(t.Lost)), false
}

func (t *Terms) closes() bool { return t.Fail == quota.FailClosed && !t.Joining }

func (t *Terms) widens() bool { return t.Fail == quota.FailOpen && !t.Joining }

// estimate is what is subtracted for the k-th region.
func (t *Terms) estimate(k int) int64 {
	idle := t.widens() && t.Members.Len() < len(t.Shares) && !t.Current.Has(k)
	if k == t.Self || k >= len(t.Estimates) || idle {
		return 0
	}
	return cap50(t.Estimates[k])
}

// cap50 keeps a hundred terms from overflowing; a limit has at most 2⁴⁰ units, and
// beyond that nothing of it is left anyway.
func cap50(units int64) int64 { return min(max(0, units), 1<<50) }
