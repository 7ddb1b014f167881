package daemon

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldOvershoot asks for ten times the limit, unevenly, and counts every
// window of true time. What one big limiter would have refused is named unit by
// unit: the buckets forgot it, or it was under way, or it is a mistake.
func TestWorldOvershoot(t *testing.T) {
	const window = time.Minute
	for _, row := range []struct {
		name    string
		units   int64
		cost    int64
		buckets int
		moves   time.Duration
		lasts   time.Duration
	}{
		{"two buckets", 600, 1, 2, 0, 3 * time.Minute},
		{"two buckets, hot region moves", 600, 1, 2, 47 * time.Second, 210 * time.Second},
		{"eleven buckets", 600, 1, 11, 0, 2 * time.Minute},
		{"eleven buckets, hot region moves", 6000, 10, 11, 47 * time.Second, 150 * time.Second},
	} {
		more := ""
		if row.buckets != 2 {
			more = ", global_buckets: 11"
		}
		inWorld(t, worldOf(row.units, window, more), func(w *world) {
			w.startAll()
			h := newTruth(w, row.units, window, window/time.Duration(row.buckets-1))
			rate := 10 * float64(row.units) / window.Seconds()
			asks := evenly(0.7*rate, 0.25*rate, 0.05*rate)
			if row.moves != 0 {
				asks = moving(row.moves, 0.7*rate, 0.25*rate, 0.05*rate)
			}
			h.drive(7, row.lasts, row.cost, asks, nil)
			h.report(t, row.name)
			told := h.beyond
			if row.buckets != 2 {
				told = h.over
			}
			if h.share(told) > 5 {
				t.Errorf("%s: %.1f %% over the limit, promised are 5", row.name, h.share(told))
			}
			if h.unexplained > 0 {
				t.Errorf("%s: an admission went %d units past what a region with news of 250 ms ago could allow", row.name, h.unexplained)
			}
			// A limit that hardly admits anything would pass all of this.
			if got := h.all(w.now()); h.share(got) < 75 {
				t.Errorf("%s: with ten times the demand a window held only %.0f %% of the limit", row.name, h.share(got))
			}
		})
	}
}

// TestWorldNobodyIsDenied: demand of at most L in any two windows with fresh peers
// is admitted whole, in bursts or not.
func TestWorldNobodyIsDenied(t *testing.T) {
	const (
		units  = 600
		window = 10 * time.Second
	)
	for _, buckets := range []int{2, 11} {
		more := ""
		if buckets != 2 {
			more = ", global_buckets: 11"
		}
		inWorld(t, worldOf(units, window, more), func(w *world) {
			w.startAll()
			h := newTruth(w, units, window, window/time.Duration(buckets-1))
			deny := func(p *citizen, d quota.Decision) {
				if !d.Allowed {
					_, terms := p.explained("acme")
					t.Errorf("%d buckets: denied at %v in %s: %s", buckets, time.Since(w.began), p.site.name, terms.Formula)
				}
			}
			// Random traffic has no "any": half of the rate leaves room for its waves.
			h.drive(3, 6*window, 1, moving(7*time.Second, 12, 2.4, 0.6), deny)
			time.Sleep(2*window + oneWay)
			for i := range 4 { // all at once, each time elsewhere, as soon as may be
				for range units {
					p := w.sites[i%3].one()
					deny(p, h.ask(p, 1))
				}
				time.Sleep(2*window + oneWay)
			}
			t.Logf("%d buckets: %d checks, %d denied", buckets, h.asked, h.denied)
		})
	}
}
