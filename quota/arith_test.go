package quota_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// anyUnits draws tiny, huge and edge numbers of units, from least to MaxUnits.
func anyUnits(t *rapid.T, least int64, label string) int64 {
	switch rapid.IntRange(0, 3).Draw(t, label+" size") {
	case 0:
		return max(least, rapid.Int64Range(0, 10).Draw(t, label))
	case 1:
		return quota.MaxUnits - rapid.Int64Range(0, 3).Draw(t, label)
	default:
		return rapid.Int64Range(least, quota.MaxUnits).Draw(t, label)
	}
}

// anyWindow draws a window in µs.
func anyWindow(t *rapid.T) int64 {
	most := quota.MaxWindow.Microseconds()
	return rapid.OneOf(
		rapid.SampledFrom([]int64{1000, 1001, 1_000_000, 60_000_000, 86_400_000_000, most - 1, most}),
		rapid.Int64Range(1000, most),
	).Draw(t, "W")
}

func TestMulDiv(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Int64Range(0, math.MaxInt64).Draw(t, "a")
		b := rapid.Int64Range(0, math.MaxInt64).Draw(t, "b")
		d := rapid.Int64Range(1, math.MaxInt64).Draw(t, "d")
		product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want, rest := new(big.Int).QuoRem(product, big.NewInt(d), new(big.Int))
		if !want.IsInt64() || want.Int64() == math.MaxInt64 {
			t.Skip("does not fit")
		}
		q, r := quota.MulDiv(a, b, d)
		if q != want.Int64() || r != rest.Int64() {
			t.Fatalf("%d·%d÷%d = %d rest %d, want %d rest %d", a, b, d, q, r, want, rest)
		}
		up := want.Int64()
		if rest.Sign() > 0 {
			up++
		}
		if got := quota.MulDivUp(a, b, d); got != up {
			t.Fatalf("⌈%d·%d÷%d⌉ = %d, want %d", a, b, d, got, up)
		}
	})
}

func TestMulDivPanicsWhereTheQuotientDoesNotFit(t *testing.T) {
	for _, row := range [][3]int64{{math.MaxInt64, math.MaxInt64, 1}, {1, 1, 0}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("MulDiv%v returned", row)
				}
			}()
			quota.MulDiv(row[0], row[1], row[2])
		}()
	}
}
