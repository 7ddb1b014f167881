package region

import "github.com/regiond/regiond/quota"

// Shares divides units among regions in proportion to their weights, in whole
// units that sum to exactly units. It rounds the running total, not each share, so
// errors do not add up: each share is less than one unit away from the exact share.
// Weights and units are not negative; if all weights are 0, so is every share.
//
//	Shares({1, 1, 1}, 100) = {33, 34, 33}
//	Shares({3, 1}, 10)     = {8, 2}
//	Shares({1, 1, 1}, 1)   = {0, 1, 0}
//
// A share does not always grow with units: Shares({1, 1, 1}, 2) is {1, 0, 1}. What
// matters is that no unit is allocated twice.
func Shares(weights []int64, units int64) []int64 {
	var total int64
	for _, w := range weights {
		total += w
	}
	shares := make([]int64, len(weights))
	var upTo, given int64
	for i, w := range weights {
		upTo += w
		next := share(units, upTo, total)
		shares[i] = next - given
		given = next
	}
	return shares
}

// share is units·upTo/total rounded half up, for 0 ≤ upTo ≤ total; the quotient
// never exceeds units.
func share(units, upTo, total int64) int64 {
	if total == 0 {
		return 0
	}
	q, r := quota.MulDiv(units, upTo, total)
	if r >= total-r {
		q++
	}
	return q
}

// Floor is the least share that each region has of any limit under one or more
// topologies. A region that one of them lacks has no share and no entry. nil is the floor
// under no topology, which bounds nothing.
type Floor map[string]Fraction

// Fraction is Weight of Total, both positive.
type Fraction struct {
	Weight int64 `json:"weight"`
	Total  int64 `json:"total"`
}

// FloorOf returns the floor under one topology, of positive weights.
func FloorOf(weights []quota.Weight) Floor {
	total := int64(0)
	for _, w := range weights {
		total += w.Weight
	}
	f := make(Floor, len(weights))
	for _, w := range weights {
		f[w.Region] = Fraction{w.Weight, total}
	}
	return f
}

// Min returns the floor under the topologies of both. It changes neither.
func (f Floor) Min(g Floor) Floor {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	least := make(Floor, len(f))
	for name, a := range f {
		if b, ok := g[name]; ok {
			if least[name] = b; a.Weight*b.Total <= b.Weight*a.Total { // at most 10⁶ times 10⁸
				least[name] = a
			}
		}
	}
	return least
}

// Share is the most units that a region may use of a limit: never more than its share
// under any of the topologies, and less than one unit below the smallest fraction.
func (f Floor) Share(region string, units int64) int64 {
	g, ok := f[region]
	if !ok {
		return 0
	}
	q, _ := quota.MulDiv(units, g.Weight, g.Total)
	return q
}
