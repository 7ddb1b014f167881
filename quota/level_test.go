package quota_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// exact is a level as a rational number of units.
func exact(v quota.Level, window int64) *big.Rat {
	r := big.NewRat(v.Frac, window)
	return r.Add(r, new(big.Rat).SetInt64(v.Units))
}

// drained is what a level has fallen to after so long, in rationals.
func drained(v quota.Level, elapsed, units, window int64) *big.Rat {
	rate := new(big.Rat).Mul(big.NewRat(units, window), new(big.Rat).SetInt64(elapsed))
	if left := rate.Sub(exact(v, window), rate); left.Sign() > 0 {
		return left
	}
	return new(big.Rat)
}

func anyLevel(t *rapid.T, window int64) quota.Level {
	return quota.Level{
		Units: anyUnits(t, 0, "level"),
		Frac:  rapid.OneOf(rapid.SampledFrom([]int64{0, 1, window - 1}), rapid.Int64Range(0, window-1)).Draw(t, "frac"),
	}
}

func TestLevelDrain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, units := anyWindow(t), anyUnits(t, 1, "L")
		v := anyLevel(t, window)
		elapsed := rapid.OneOf(
			rapid.SampledFrom([]int64{0, 1, window - 1, window, window + 1}), rapid.Int64Range(0, 1<<52),
		).Draw(t, "elapsed")
		got, want := v.Drain(elapsed, units, window), drained(v, elapsed, units, window)
		if exact(got, window).Cmp(want) != 0 || got.Units < 0 || got.Frac < 0 || got.Frac >= window {
			t.Fatalf("%+v is %+v after %d at %d per %d, want %v", v, got, elapsed, units, window, want)
		}
	})
}

// TestLevelFalls: the level has fallen so far at the time that Falls names, and
// had not one microsecond before.
func TestLevelFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window, units := anyWindow(t), anyUnits(t, 1, "L")
		v := anyLevel(t, window)
		left := anyUnits(t, 0, "left")
		most := new(big.Rat).SetInt64(left)
		if slow := new(big.Rat).Quo(new(big.Rat).Mul(exact(v, window), new(big.Rat).SetInt64(window)), new(big.Rat).SetInt64(units)); slow.Cmp(new(big.Rat).SetInt64(1<<62)) > 0 {
			t.Skip("validation refuses what takes so long to drain")
		}
		after := v.Falls(left, units, window)
		if after < 0 || drained(v, after, units, window).Cmp(most) > 0 {
			t.Fatalf("%+v is not at %d after %d", v, left, after)
		}
		if after > 0 && drained(v, after-1, units, window).Cmp(most) <= 0 {
			t.Fatalf("%+v is at %d a microsecond before %d", v, left, after)
		}
	})
}

func TestLevelUsed(t *testing.T) {
	for _, row := range []struct {
		v    quota.Level
		used int64
	}{{quota.Level{}, 0}, {quota.Level{Frac: 1}, 1}, {quota.Level{Units: 3}, 3}, {quota.Level{Units: 3, Frac: 999}, 4}} {
		if got := row.v.Used(); got != row.used {
			t.Errorf("%+v uses %d, want %d", row.v, got, row.used)
		}
	}
}

func TestLevelAdd(t *testing.T) {
	for _, row := range []struct{ units, add, capacity, want int64 }{
		{0, 1, 5, 1},
		{5, 5, 5, 10},
		{19, 1, 5, 20},
		{20, 1, 5, 20},
		{0, quota.MaxUnits, 5, 20},
		{4 * quota.MaxUnits, quota.MaxUnits, quota.MaxUnits, 4 * quota.MaxUnits},
	} {
		got := quota.Level{Units: row.units, Frac: 7}.Add(row.add, row.capacity)
		if got != (quota.Level{Units: row.want, Frac: 7}) {
			t.Errorf("%d and %d under %d: %+v, want %d", row.units, row.add, row.capacity, got, row.want)
		}
	}
}

// TestLevelReshape never forgets a fraction, and adds less than a grain of the
// new window to it.
func TestLevelReshape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := anyWindow(t), anyWindow(t)
		v, capacity := anyLevel(t, from), anyUnits(t, 1, "capacity")
		got := v.Reshape(from, to, capacity)
		if got.Frac < 0 || got.Frac >= to {
			t.Fatalf("%+v of %d became %+v of %d", v, from, got, to)
		}
		if v.Units >= 4*capacity {
			if got.Units != 4*capacity {
				t.Fatalf("%+v became %+v under %d", v, got, capacity)
			}
			return
		}
		more := new(big.Rat).Sub(exact(got, to), exact(v, from))
		if more.Sign() < 0 || more.Cmp(big.NewRat(1, to)) >= 0 {
			t.Fatalf("%+v of %d became %+v of %d: %v more", v, from, got, to, more)
		}
		if from == to && got != v {
			t.Fatalf("%+v became %+v under its own window", v, got)
		}
	})
}
