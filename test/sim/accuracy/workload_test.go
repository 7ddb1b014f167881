package accuracy

import (
	"math"
	"testing"
	"time"
)

// TestArrivals: as many in all as the demand says, as many in
// the hot region, in order, and the same for the same seed.
func TestArrivals(t *testing.T) {
	const windows, regions = 26.0, 5 // whole rounds of the crowd
	for _, w := range Workloads() {
		want, steps := 0.0, 100_000
		for i := range steps {
			want += w.demand(windows*float64(i)/float64(steps)) * Limit * windows / float64(steps)
		}
		come := newArrivals(w, Seed, regions, time.Minute)
		again := newArrivals(w, Seed, regions, time.Minute)
		got, hot, lastUS := 0, 0, int64(0)
		for {
			a := come.next()
			if b := again.next(); a != b {
				t.Fatalf("%s: one seed gave %v and %v", w.Name, a, b)
			}
			if a.US >= int64(windows*float64(time.Minute.Microseconds())) {
				break
			}
			if a.US < lastUS || a.Region < 0 || a.Region >= regions {
				t.Fatalf("%s: %v after %d µs", w.Name, a, lastUS)
			}
			lastUS = a.US
			got++
			if at := float64(a.US) / float64(time.Minute.Microseconds()); a.Region == max(0, w.hot(at, regions)) {
				hot++
			}
		}
		if off := math.Abs(float64(got)-want) / math.Sqrt(want); off > 4 {
			t.Errorf("%s: %d arrivals in %v windows, want about %.0f", w.Name, got, windows, want)
		}
		share := hotShare
		if w.hot(0, regions) == everywhere {
			share = 1.0 / regions
		}
		if off := math.Abs(float64(hot)-share*float64(got)) / math.Sqrt(share*float64(got)); off > 4 {
			t.Errorf("%s: %d of %d arrivals are at the hot region, want a share of %.2f", w.Name, hot, got, share)
		}
	}
}
