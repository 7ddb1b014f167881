package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldClockSteps: when the clock of one region's Redis is moved, nobody counts
// for ever what was used by the old one, nobody is denied for more than two windows,
// and what is used by the new one is told.
func TestWorldClockSteps(t *testing.T) {
	const (
		units  = 300
		window = 5 * time.Second
	)
	onRedises(t, worldOf(units, window, ""), func(w *world) {
		w.startAll()
		time.Sleep(200 * time.Millisecond)
		eu := w.sites[0]
		text := ""
		for _, step := range []time.Duration{time.Hour, -time.Hour, 10 * time.Second, -10 * time.Second} {
			h := newTruth(w, units, window, window) // of nothing but yes and no
			asks := evenly(20, 4, 2)                // 260 of 300 in two windows
			h.drive(1, window, 1, asks, nil)
			eu.step(step)
			stepped := time.Now()
			last := time.Duration(0)
			h.drive(2, 3*window, 1, asks, func(p *citizen, d quota.Decision) {
				if !d.Allowed {
					last = time.Since(stepped)
				}
			})
			if last > 2*window {
				t.Errorf("a step of %v: somebody was denied %v after it", step, last)
			}
			text += fmt.Sprintf(" %v: %d denied, the last after %v;", step, h.denied, last.Round(time.Millisecond))
			w.forgotten(step, eu, 2*window+time.Second)
			eu.one().ask(7)
			w.await(fmt.Sprintf("what is used after a step of %v is told", step), time.Second, func() bool {
				return w.sites[1].one().estimate(eu) == 7 && w.sites[2].one().estimate(eu) == 7
			})
			w.forgotten(step, eu, 2*window+time.Second)
		}
		t.Logf("after a step of%s", text)
	})
}

// forgotten waits until peers do not count a region any more that uses nothing.
func (w *world) forgotten(step time.Duration, s *site, within time.Duration) {
	w.t.Helper()
	w.awaitBy(fmt.Sprintf("what was used around a step of %v fades", step), within, 200*time.Millisecond, func() bool {
		return w.sites[1].one().estimate(s) == 0 && w.sites[2].one().estimate(s) == 0
	})
}
