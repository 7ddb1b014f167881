package quota_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

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
