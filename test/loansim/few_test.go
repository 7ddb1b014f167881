package loansim_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/test/loansim"
)

// TestFew: in no window of a second are loans more than a point worse than shares that are not lent. With fewer units than regions
// all take turns: of those that are asked for three limits a window, at most one in a hundred gets nothing in twenty windows.
func TestFew(t *testing.T) {
	t.Parallel()
	for _, f := range loansim.Fews() {
		if f.Window == time.Minute { // these take minutes
			continue
		}
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			const worlds = 20
			p := f.Play(worlds)
			loans, fixed := p.Used()
			t.Logf("%.1f %% used, %.1f %% with fixed shares; the least of a region was %d, and %d got nothing", loans, fixed, p.Least, p.Starved)
			if loans < fixed-1 {
				t.Errorf("%.1f %% used, and %.1f %% with fixed shares", loans, fixed)
			}
			if f.Times >= 3 && p.Starved*100 > int64(worlds*f.Asking) {
				t.Errorf("of %d regions %d got nothing", worlds*f.Asking, p.Starved)
			}
		})
	}
}
