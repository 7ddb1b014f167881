package quota_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// The fraction of a bucket that lies in the window, as a fraction; of one that is
// shorter than the window, all or nothing.
func TestCountedIsTheOverlapRoundedUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := rapid.Int64Range(1, quota.MaxWindow.Microseconds()).Draw(t, "W")
		length := window
		if rapid.Bool().Draw(t, "fine") {
			length = rapid.Int64Range(1, window).Draw(t, "length")
		}
		start := rapid.Int64Range(-1<<50, 1<<50).Draw(t, "start")
		now := start + rapid.Int64Range(-2*length, 2*(length+window)).Draw(t, "after")
		units := rapid.Int64Range(0, quota.MaxCounter).Draw(t, "units")
		inside := max(0, min(length, start+length-(now-window)))
		if inside > 0 && length < window {
			inside = length
		}
		share := new(big.Rat).Mul(big.NewRat(inside, length), new(big.Rat).SetInt64(units))
		want := new(big.Int).Add(share.Num(), new(big.Int).Sub(share.Denom(), big.NewInt(1)))
		want.Quo(want, share.Denom())
		if got := quota.Counted(units, start, length, window, now); got != want.Int64() {
			t.Fatalf("%d of %d count, want %v", got, units, want)
		}
	})
}

// A bucket as long as the window fades by its overlap; a shorter one counts whole while any
// of it is in the window.
func TestCountedEdges(t *testing.T) {
	for window, rows := range map[int64][]struct{ now, want int64 }{
		1000:   {{-1, 100}, {0, 100}, {999, 100}, {1000, 100}, {1001, 100}, {1010, 99}, {1500, 50}, {1999, 1}, {2000, 0}, {9000, 0}},
		10_000: {{-1, 100}, {0, 100}, {10_000, 100}, {10_500, 100}, {10_999, 100}, {11_000, 0}, {90_000, 0}},
	} {
		for _, row := range rows {
			if got := quota.Counted(100, 0, 1000, window, row.now); got != row.want {
				t.Errorf("window %d at %d: %d, want %d", window, row.now, got, row.want)
			}
		}
	}
}

func TestBucketsCoverTheWindow(t *testing.T) {
	for _, row := range []struct {
		window  time.Duration
		buckets int
		want    int64
	}{
		{time.Minute, 0, 60_000_000},
		{time.Minute, 2, 60_000_000},
		{time.Minute, 11, 6_000_000},
		{time.Second, 4, 333_334}, // three of them are a second and a little
		{time.Millisecond, quota.MaxGlobalBuckets, 17},
	} {
		l := quota.Limit{Window: row.window, GlobalBuckets: row.buckets}
		got := l.BucketUS()
		if full := int64(max(row.buckets, 2) - 1); got != row.want || got*full < l.WindowUS() || (got-1)*full >= l.WindowUS() {
			t.Errorf("%v in %d: %d µs, want %d", row.window, row.buckets, got, row.want)
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
