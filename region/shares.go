package region

import (
	"cmp"
	"slices"

	"github.com/regiond/regiond/quota"
)

// Shares divides units among regions in proportion to their weights by D'Hondt, in whole units that sum to exactly
// units: each unit goes to the region with the largest weight ÷ (its share + 1), the first by name of equal ones. A
// share never falls as units grow, and is never below ⌊units·weight/total⌋. Weights and units are not negative; if
// all weights are 0, so is every share.
//
//	Shares({a 1, b 1, c 1}, 100) = {34, 33, 33}
//	Shares({a 3, b 1}, 10)       = {8, 2}
//	Shares({a 1, b 1, c 1}, 1)   = {1, 0, 0}
func Shares(weights []quota.Weight, units int64) []int64 {
	shares, order, total := make([]int64, len(weights)), make([]int, len(weights)), int64(0)
	for i, w := range weights {
		order[i] = i
		total += w.Weight
	}
	if total == 0 {
		return shares
	}
	rest := units
	for i, w := range weights {
		shares[i], _ = quota.MulDiv(units, w.Weight, total)
		rest -= shares[i]
	}
	next := func(i, j int) int { // below 0: i gets a unit before j; at most 10⁶ times 2⁴⁰+1
		return cmp.Or(cmp.Compare(weights[j].Weight*(shares[i]+1), weights[i].Weight*(shares[j]+1)),
			cmp.Compare(weights[i].Region, weights[j].Region))
	}
	for ; rest > 0; rest-- { // fewer than there are regions
		shares[slices.MinFunc(order, next)]++
	}
	return shares
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
