//go:build chaos && linux

package chaos_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/chaos"
	"github.com/regiond/regiond/test/chaos/judge"
)

// TestReservations: while holders crash, repeat their settles and go to other regions, and regiond, Redis and the lines between
// regions fail, no window of a region has more than its limit settled and held, and in the end nothing is held.
func TestReservations(t *testing.T) {
	w := chaos.Start(t, world())
	holders := w.Hold(1)
	for _, f := range []chaos.Fault{
		w.Kill(chaos.Regiond, us), w.Freeze(chaos.Redis, us), w.Partition([]string{eu}, []string{us, ap}),
	} {
		time.Sleep(2 * time.Second)
		if err := f.Inject(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if err := f.Heal(); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(2 * time.Second)
	all, objects := holders.End()
	most, exceeded := judge.Held(all, judge.Limit{Units: chaos.HeldUnits, Window: chaos.HeldWindow})
	pending, replayed := holders.Seen()
	settled, elsewhere, overrun, late := 0, 0, 0, 0
	for _, r := range all {
		if s := r.Settled; s != nil {
			settled++
			if s.Region != r.Region {
				elsewhere++
			}
			if s.Overrun > 0 {
				overrun++
			}
			if !s.Released {
				late++
			}
		}
	}
	t.Logf("%d reservations; %d settled, %d of them in another region, %d above what was held, %d no longer held; %d answers pending, %d replayed; at most %d of %d units",
		len(all), settled, elsewhere, overrun, late, pending, replayed, most, chaos.HeldUnits)
	for _, o := range append(append(objects, exceeded...), holders.Free()...) {
		t.Error(o)
	}
	for what, n := range map[string]int{"settled elsewhere": elsewhere, "overrun": overrun, "late": late, "pending": pending, "replayed": replayed, "never settled": len(all) - settled} {
		if n == 0 {
			t.Errorf("none was %s", what)
		}
	}
	if most < chaos.HeldUnits/2 {
		t.Errorf("at most %d of %d units were settled or held", most, chaos.HeldUnits)
	}
}
