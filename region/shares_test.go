package region_test

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

func TestShares(t *testing.T) {
	for _, row := range []struct {
		weights []int64
		units   int64
		want    []int64
	}{
		{[]int64{1}, 600, []int64{600}},
		{[]int64{2, 1, 1}, 600, []int64{300, 150, 150}},
		{[]int64{1, 1, 1}, 100, []int64{33, 34, 33}},
		{[]int64{3, 1}, 10, []int64{8, 2}}, // 7.5 is rounded up, once
		{[]int64{1, 1, 1}, 0, []int64{0, 0, 0}},
		{[]int64{1, 1, 1}, 1, []int64{0, 1, 0}},
		{[]int64{1, 1, 1}, 2, []int64{1, 0, 1}}, // one unit more, one region less
		{[]int64{1, 1_000_000}, 5, []int64{0, 5}},
		{[]int64{0, 0}, 5, []int64{0, 0}},
		{[]int64{0, 1}, 5, []int64{0, 5}},
		{nil, 5, nil},
		// The largest product: 2⁴⁰ units and a hundred regions of weight 10⁶.
		{slices.Repeat([]int64{quota.MaxWeight}, 4), quota.MaxUnits, slices.Repeat([]int64{quota.MaxUnits / 4}, 4)},
	} {
		if got := region.Shares(row.weights, row.units); !slices.Equal(got, row.want) {
			t.Errorf("Shares(%v, %d) = %v, want %v", row.weights, row.units, got, row.want)
		}
	}
}

// exactShares is Shares by the book: exact fractions, rounded half up.
func exactShares(weights []int64, units int64) []int64 {
	total := new(big.Int)
	for _, w := range weights {
		total.Add(total, big.NewInt(w))
	}
	shares := make([]int64, len(weights))
	upTo, given := new(big.Int), new(big.Int)
	for i, w := range weights {
		upTo.Add(upTo, big.NewInt(w))
		// ⌊(2·units·upTo + total) / 2·total⌋
		next := new(big.Int).Mul(big.NewInt(2*units), upTo)
		next.Add(next, total).Div(next, new(big.Int).Mul(big.NewInt(2), total))
		shares[i] = new(big.Int).Sub(next, given).Int64()
		given = next
	}
	return shares
}

func drawWeights(t *rapid.T) []int64 {
	most := rapid.SampledFrom([]int64{1, 3, 100, quota.MaxWeight}).Draw(t, "most")
	return rapid.SliceOfN(rapid.Int64Range(1, most), 1, quota.MaxRegions).Draw(t, "weights")
}

func drawUnits(t *rapid.T) int64 {
	most := rapid.SampledFrom([]int64{1, 10, 1000, quota.MaxUnits}).Draw(t, "mostUnits")
	return rapid.Int64Range(0, most).Draw(t, "units")
}

func TestSharesSumToTheLimitAndAreExactWithinOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights, units := drawWeights(t), drawUnits(t)
		shares := region.Shares(weights, units)
		if want := exactShares(weights, units); !slices.Equal(shares, want) {
			t.Fatalf("shares %v, want %v", shares, want)
		}
		var sum, total int64
		for i := range shares {
			sum += shares[i]
			total += weights[i]
		}
		if sum != units {
			t.Fatalf("shares %v sum to %d, want %d", shares, sum, units)
		}
		for i, share := range shares {
			// |share − units·w/total| < 1, as integers: |share·total − units·w| < total.
			off := new(big.Int).Mul(big.NewInt(share), big.NewInt(total))
			off.Sub(off, new(big.Int).Mul(big.NewInt(units), big.NewInt(weights[i])))
			if share < 0 || off.CmpAbs(big.NewInt(total)) >= 0 {
				t.Fatalf("share %d of %d is %d, a unit or more away from its share", i, units, share)
			}
		}
	})
}

// A floor is at most the share under each of its topologies, and less than a unit below
// the smallest.
func TestFloorIsTheSmallestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		units := rapid.Int64Range(0, quota.MaxUnits).Draw(t, "units")
		if rapid.Bool().Draw(t, "few") {
			units %= 50
		}
		var floor region.Floor
		least := map[string]int64{"a": units, "b": units, "c": units, "d": units}
		for range rapid.IntRange(1, 4).Draw(t, "topologies") {
			var named []quota.Weight
			var weights []int64
			for i, w := range drawWeights(t)[:] {
				if i < len(names) && w > 0 {
					named, weights = append(named, quota.Weight{Region: names[i], Weight: w}), append(weights, w)
				}
			}
			if len(named) == 0 {
				continue
			}
			floor = floor.Min(region.FloorOf(named))
			shares := region.Shares(weights, units)
			for _, name := range names {
				i := slices.IndexFunc(named, func(w quota.Weight) bool { return w.Region == name })
				if i < 0 {
					least[name] = 0
				} else {
					least[name] = min(least[name], shares[i])
				}
			}
		}
		for _, name := range names {
			if got := floor.Share(name, units); floor != nil && (got > least[name] || got < least[name]-1) {
				t.Fatalf("the floor of %s is %d of %d, its smallest share %d: %v", name, got, units, least[name], floor)
			}
		}
	})
}
