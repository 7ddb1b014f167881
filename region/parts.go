package region

import "github.com/regiond/regiond/quota"

// Parts divides units among regions in proportion to their weights, in whole
// units that sum to exactly units. It rounds the running total, not each part, so
// errors do not add up: each part is less than one unit away from the exact share.
// Weights and units are not negative; if all weights are 0, so is every part.
//
//	Parts({1, 1, 1}, 100) = {33, 34, 33}
//	Parts({3, 1}, 10)     = {8, 2}
//	Parts({1, 1, 1}, 1)   = {0, 1, 0}
//
// A part does not always grow with units: Parts({1, 1, 1}, 2) is {1, 0, 1}. What
// matters is that no unit is allocated twice.
func Parts(weights []int64, units int64) []int64 {
	var total int64
	for _, w := range weights {
		total += w
	}
	parts := make([]int64, len(weights))
	var upTo, given int64
	for i, w := range weights {
		upTo += w
		next := share(units, upTo, total)
		parts[i] = next - given
		given = next
	}
	return parts
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
