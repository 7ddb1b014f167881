package region_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// named are regions a, b, c … zz with weights.
func named(weights ...int64) []quota.Weight {
	l := make([]quota.Weight, len(weights))
	for i, w := range weights {
		l[i] = quota.Weight{Region: string([]rune{'a' + rune(i/26), 'a' + rune(i%26)}), Weight: w}
	}
	return l
}

func drawWeights(t *rapid.T) []int64 {
	most := rapid.SampledFrom([]int64{1, 3, 100, quota.MaxWeight}).Draw(t, "most")
	return rapid.SliceOfN(rapid.Int64Range(1, most), 1, quota.MaxRegions).Draw(t, "weights")
}

func drawUnits(t *rapid.T) int64 {
	most := rapid.SampledFrom([]int64{1, 10, 1000, quota.MaxUnits}).Draw(t, "mostUnits")
	return rapid.Int64Range(0, most).Draw(t, "units")
}

// TestSharesOfNoWeight: nobody has a share of nothing.
func TestSharesOfNoWeight(t *testing.T) {
	if got := region.Shares(named(0, 0), 5); !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("regions without weight share %v", got)
	}
}

// Dealt out one by one, each unit goes to the region with the largest quotient. So no share falls as units grow.
func TestSharesAreDealtOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := named(drawWeights(t)...)
		if idle := rapid.IntRange(0, len(weights)).Draw(t, "without weight"); idle < len(weights) { // one at least has some
			weights[idle].Weight = 0
			weights = append(weights, quota.Weight{Region: "zz", Weight: 1})
		}
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Shuffle(len(weights), func(i, j int) {
			weights[i], weights[j] = weights[j], weights[i]
		})
		dealt := make([]int64, len(weights))
		for units := range int64(300) {
			if got := region.Shares(weights, units); !slices.Equal(got, dealt) {
				t.Fatalf("%d units: shares %v, want %v", units, got, dealt)
			}
			best := 0
			for i, w := range weights {
				b := weights[best]
				if mine, its := w.Weight*(dealt[best]+1), b.Weight*(dealt[i]+1); mine > its || mine == its && w.Region < b.Region {
					best = i
				}
			}
			dealt[best]++
		}
	})
}

// With any number of units the shares add up to all of them, no region is below its floor, and none would rather have
// had a unit of another: D'Hondt.
func TestSharesSumToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights, units := named(drawWeights(t)...), drawUnits(t)
		shares, floor := region.Shares(weights, units), region.FloorOf(weights)
		var sum int64
		for i, w := range weights {
			sum += shares[i]
			if least := floor.Share(w.Region, units); shares[i] < least {
				t.Fatalf("the share of %s is %d of %d, below %d", w.Region, shares[i], units, least)
			}
			for j, o := range weights {
				if w.Weight*shares[j] > o.Weight*(shares[i]+1) {
					t.Fatalf("%s has %d and %s has %d of %d: a unit of the second should be the first's", w.Region, shares[i], o.Region, shares[j], units)
				}
			}
		}
		if sum != units {
			t.Fatalf("shares %v sum to %d, want %d", shares, sum, units)
		}
	})
}

// A floor is at most the share under each of its topologies, and the least of the exact fractions, rounded down.
func TestFloorIsTheSmallestShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}
		units := rapid.Int64Range(0, quota.MaxUnits).Draw(t, "units")
		if rapid.Bool().Draw(t, "few") {
			units %= 50
		}
		var floor region.Floor
		least, fraction := map[string]int64{}, map[string]int64{}
		for _, name := range names {
			least[name], fraction[name] = units, units
		}
		for range rapid.IntRange(1, 4).Draw(t, "topologies") {
			var weights []quota.Weight
			for i, w := range drawWeights(t) {
				if i < len(names) {
					weights = append(weights, quota.Weight{Region: names[i], Weight: w})
				}
			}
			floor = floor.Min(region.FloorOf(weights))
			shares := region.Shares(weights, units)
			for _, name := range names {
				i := slices.IndexFunc(weights, func(w quota.Weight) bool { return w.Region == name })
				if i < 0 {
					least[name], fraction[name] = 0, 0
					continue
				}
				least[name] = min(least[name], shares[i])
				fraction[name] = min(fraction[name], region.FloorOf(weights).Share(name, units))
			}
		}
		for _, name := range names {
			if got := floor.Share(name, units); got > least[name] || got != fraction[name] {
				t.Fatalf("the floor of %s is %d of %d, its smallest share %d, its smallest fraction %d: %v", name, got, units, least[name], fraction[name], floor)
			}
		}
	})
}

// Regions that go by other units of a limit at one time, and by other topologies, have together at most the largest of these units:
// each has at most its share of those.
func TestSharesOfVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := named(drawWeights(t)...)
		floor := region.FloorOf(weights).Min(region.FloorOf(named(drawWeights(t)...)))
		var sum, most int64
		for i, w := range weights {
			units := drawUnits(t)
			share := region.Shares(weights, units)[i]
			if rapid.Bool().Draw(t, "by all topologies") {
				share = min(share, floor.Share(w.Region, units))
			}
			sum, most = sum+share, max(most, units)
		}
		if sum > most {
			t.Fatalf("shares of at most %d sum to %d", most, sum)
		}
	})
}
