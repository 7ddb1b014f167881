package sizing

import (
	"math"
	"testing"
)

// TestPredict: a thousand decisions a second, half of them remembered, worked out by
// hand: 0.5 · 10 + 0.5 · (40 + 1 · 2 + 2 · 5 + 1 · 8) = 35 µs for regiond, and
// 0.5 · (4 + 0.5 + 6 + 3) = 6.75 µs for Redis.
func TestPredict(t *testing.T) {
	prices := Prices{
		Decision: Price{40, 4}, Memory: Price{10, 0}, Limit: Price{2, 0.5}, Partition: Price{5, 3}, Global: Price{8, 3},
	}
	sizes := Sizes{Partition: 200, Unit: 10, Total: 190}
	got := prices.Predict(&sizes, &Plan{
		Rate: 1000, Remembered: 0.5, Limits: 4, Partitions: 3, Globals: 1, Live: 1000, Units: 5000, Buckets: 600,
	})
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if !near(got.Cores.Regiond, 0.035) || !near(got.Cores.Redis, 0.00675) || !near(got.RedisMemory, 364_000) {
		t.Errorf("%+v", got)
	}
}

func TestMinus(t *testing.T) {
	if got := (Price{5, 1}).minus(Price{3, 2}); got != (Price{2, 0}) {
		t.Errorf("%+v", got)
	}
}

// TestMeasure: what made the bytes is found in them again.
func TestMeasure(t *testing.T) {
	want := Sizes{Partition: 200, Unit: 11, Total: 190}
	stored := func(partitions, units, buckets float64) Stored {
		return Stored{partitions*200 + units*11 + buckets*190, partitions, units, buckets}
	}
	var got Sizes
	got.Measure(stored(9000, 40_000, 0), stored(50, 40_000, 0), stored(9500, 41_000, 12_000))
	if math.Abs(got.Partition-want.Partition) > 1e-6 || math.Abs(got.Unit-want.Unit) > 1e-6 || math.Abs(got.Total-want.Total) > 1e-6 {
		t.Errorf("%+v", got)
	}
	var prices Prices
	prices.Measure(Price{40, 4}, Price{42, 5}, Price{45, 7}, Price{48, 6}, Price{10, 0})
	if want := (Prices{Price{40, 4}, Price{10, 0}, Price{2, 1}, Price{5, 3}, Price{8, 2}}); prices != want {
		t.Errorf("%+v", prices)
	}
}
