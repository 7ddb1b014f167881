package quota_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// The fraction of a bucket that lies in the window, as a fraction.
func TestCountedIsTheOverlapRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(1, quota.MaxWindow.Microseconds()).Draw(t, "W")
		start := rapid.Int64Range(-1<<50, 1<<50).Draw(t, "start")
		now := start + rapid.Int64Range(-2*window, 4*window).Draw(t, "after")
		units := rapid.Int64Range(0, quota.MaxCounter).Draw(t, "units")
		inside := max(0, min(window, start+window-(now-window)))
		share := new(big.Rat).Mul(big.NewRat(inside, window), new(big.Rat).SetInt64(units))
		want := new(big.Int).Add(share.Num(), new(big.Int).Sub(share.Denom(), big.NewInt(1)))
		want.Quo(want, share.Denom())
		if got := quota.Counted(units, start, window, now); got != want.Int64() {
			t.Fatalf("%d of %d count, want %v", got, units, want)
		}
	})
}

func TestCountedEdges(t *testing.T) {
	for _, row := range []struct{ now, want int64 }{
		{-1, 100}, {0, 100}, {999, 100}, {1000, 100}, {1001, 100}, {1010, 99}, {1500, 50}, {1999, 1}, {2000, 0}, {9000, 0},
	} {
		if got := quota.Counted(100, 0, 1000, row.now); got != row.want {
			t.Errorf("at %d: %d, want %d", row.now, got, row.want)
		}
	}
}

func TestSameKey(t *testing.T) {
	const generation = 1_795_198_405_260_197
	for _, row := range []struct {
		a, b int64
		want bool
	}{
		{generation, generation, true},
		{generation, generation + 999, true},
		{generation + 999, generation, true},
		{generation, generation + 1000, false},
		{generation + 1000, generation, false},
		{0, generation, false},
	} {
		if quota.SameKey(row.a, row.b) != row.want {
			t.Errorf("%d and %d: %v", row.a, row.b, !row.want)
		}
	}
}
