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

// usedExactly is prev·(1−f) rounded up plus cur, in rationals.
func usedExactly(b quota.Buckets, now, window int64) int64 {
	left := big.NewRat(window-(now-b.Start), window)
	left.Mul(left, new(big.Rat).SetInt64(b.Prev))
	up := new(big.Int).Add(left.Num(), new(big.Int).Sub(left.Denom(), big.NewInt(1)))
	return up.Quo(up, left.Denom()).Int64() + b.Cur
}

func anyBuckets(t *rapid.T, window int64) (b quota.Buckets, now int64) {
	b.Start = window * rapid.Int64Range(0, 1<<51/window).Draw(t, "bucket")
	b.Prev, b.Cur = anyUnits(t, 0, "prev"), anyUnits(t, 0, "cur")
	return b, b.Start + rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, window / 2, window - 1}), rapid.Int64Range(0, window-1),
	).Draw(t, "into the bucket")
}

func TestBucketsUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := anyWindow(t)
		b, now := anyBuckets(t, window)
		if got, want := b.Used(now, window), usedExactly(b, now, window); got != want {
			t.Fatalf("%+v uses %d at %d, want %d", b, got, now, want)
		}
	})
}

func TestBucketsAt(t *testing.T) {
	b := quota.Buckets{Start: 7000, Prev: 3, Cur: 5}
	for _, row := range []struct {
		now  int64
		want quota.Buckets
	}{
		{7000, b},
		{7999, b},
		{8000, quota.Buckets{Start: 8000, Prev: 5}},
		{8999, quota.Buckets{Start: 8000, Prev: 5}},
		{9000, quota.Buckets{Start: 9000}},
		{99_999, quota.Buckets{Start: 99_000}},
	} {
		if got := b.At(row.now, 1000); got != row.want {
			t.Errorf("at %d: %+v, want %+v", row.now, got, row.want)
		}
	}
}

// TestBucketsFits: the cost fits at the time that Fits names and not one
// microsecond before, across the edge of the bucket as well.
func TestBucketsFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := anyWindow(t)
		b, now := anyBuckets(t, window)
		ceiling := anyUnits(t, 1, "ceiling")
		cost := min(ceiling, anyUnits(t, 1, "cost"))
		fitsAt := func(at int64) bool {
			then := b.At(at, window)
			return usedExactly(then, at, window)+cost <= ceiling
		}
		at := b.Fits(now, window, ceiling, cost)
		if at < now || !fitsAt(at) {
			t.Fatalf("%+v at %d: %d of %d does not fit at %d", b, now, cost, ceiling, at)
		}
		if at > now && fitsAt(at-1) {
			t.Fatalf("%+v at %d: %d of %d fits a microsecond before %d", b, now, cost, ceiling, at)
		}
	})
}

func TestBucketsEmpties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := anyWindow(t)
		b, now := anyBuckets(t, window)
		if rapid.Bool().Draw(t, "nothing now") {
			b.Cur = 0
		}
		if rapid.Bool().Draw(t, "nothing before") {
			b.Prev = 0
		}
		at := b.Empties(now, window)
		if then := b.At(at, window); at < now || then.Used(at, window) != 0 {
			t.Fatalf("%+v at %d is not empty at %d", b, now, at)
		}
		if at > now {
			if then := b.At(at-1, window); then.Used(at-1, window) == 0 {
				t.Fatalf("%+v at %d is empty before %d", b, now, at)
			}
		}
	})
}

func TestBucketsAddStopsWhereNoAnswerChanges(t *testing.T) {
	b := quota.Buckets{}
	for range 6 {
		b = b.Add(quota.MaxUnits)
	}
	if b.Cur != 4*quota.MaxUnits {
		t.Errorf("six reports of MaxUnits hold %d", b.Cur)
	}
	if b = (quota.Buckets{Cur: 3}).Add(4); b.Cur != 7 {
		t.Errorf("3 and 4 are %d", b.Cur)
	}
}

// TestBucketsReshape: what was used at the last charge is used then, and gone less than
// two of the new windows later.
func TestBucketsReshape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := anyWindow(t), anyWindow(t)
		b, newest := anyBuckets(t, from)
		r := b.Reshape(newest, from, to)
		if from == to {
			if r != b {
				t.Fatalf("%+v became %+v under its own window", b, r)
			}
			return
		}
		if r.Start != newest-newest%to || r.Used(newest, to) != usedExactly(b, newest, from) {
			t.Fatalf("%+v of %d became %+v of %d at %d", b, from, r, to, newest)
		}
		if at := r.Empties(newest, to); at > newest+2*to {
			t.Fatalf("%+v of %d became %+v of %d, which is not empty before %d", b, from, r, to, at)
		}
	})
}
