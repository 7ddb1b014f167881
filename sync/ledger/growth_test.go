package ledger

import (
	"testing"

	"pgregory.net/rapid"
)

// TestGrowth holds a path to the log of what it was told: a list of slots and units. By the end
// of each slot less than a level is missing, and nothing more than there was.
func TestGrowth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g growth
		var had [slots + 1]int64 // units by the end of so many slots
		units, at := int64(0), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			slot := at + rapid.SampledFrom([]int64{-70, -1, 0, 0, 0, 1, 1, 2, 5, 40}).Draw(t, "slots")
			at = max(at, min(slots-1, slot)) // a path does not go back
			more := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 100), rapid.Int64Range(1, 1<<45)).Draw(t, "more")
			g.grow(slot, units, units+more)
			units += more
			if rapid.Bool().Draw(t, "guessed") { // which changes nothing of the path
				g[1] ^= guessed
			}
			for i := at + 1; i <= slots; i++ {
				had[i] = units
			}
		}
		by := func(ended int64) int64 {
			if at := g.end(ended); at < never {
				return (at - ended + 1) << shiftOf(units)
			}
			return units
		}
		level, least := int64(1)<<shiftOf(units), int64(0)
		for i := range int64(slots + 1) {
			n := by(i)
			if n > had[i] || n < least || n <= had[i]-level {
				t.Fatalf("by the end of %d slots %d of %d units, it had %d; levels of %d", i, n, units, had[i], level)
			}
			least = n
		}
		windowUS := rapid.SampledFrom([]int64{1, 63, 64, 1000, 60_000_000, 2_678_400_000_000}).Draw(t, "W")
		before := units
		for _, us := range rapid.SliceOf(rapid.Int64Range(0, windowUS-1)).Draw(t, "us") {
			slot := us * slots / windowUS
			most := by(slot) + min(by(slot+1)-by(slot), by(slot)-by(max(0, slot-1))+2*level)
			if left := g.left(units, us, windowUS); left > units-by(slot) || left < units-most {
				t.Fatalf("%d are left in slot %d, between %d and %d", left, slot, units-most, units-by(slot))
			}
		}
		for us := int64(0); us < windowUS; us += max(1, windowUS/1000) {
			left := g.left(units, us, windowUS)
			if left > before || left < 0 {
				t.Fatalf("%d µs after the bucket %d are left, %d before", us, left, before)
			}
			before = left
		}
	})
}

// TestForeignPaths: whatever path comes with a counter, if it fits it fades by itself from no more than
// all units to none, and grows into one that fits.
func TestForeignPaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := growth{rapid.Uint64().Draw(t, "low"), rapid.Uint64().Draw(t, "high")}
		for range 2 { // few ones fit
			g[0] &= rapid.Uint64().Draw(t, "mask of low")
			g[1] &= rapid.Uint64().Draw(t, "mask of high")
		}
		units := rapid.Int64Range(1, 1<<42).Draw(t, "units")
		more := rapid.Int64Range(1, 1<<42).Draw(t, "more")
		if !g.fits(units) {
			return
		}
		const windowUS = 6400
		before := units
		for us := range int64(windowUS) {
			left := g.left(units, us, windowUS)
			if left < 0 || left > before {
				t.Fatalf("path %x: %d of %d units are left after %d µs, %d before", g, left, units, us, before)
			}
			before = left
		}
		g.grow(rapid.Int64Range(-1, 70).Draw(t, "slot"), units, units+more)
		if !g.fits(units + more) {
			t.Fatalf("path %x does not fit %d units, and grew from one that fitted", g, units+more)
		}
	})
}
