package loansim

import "testing"

// TestFaults plays a few worlds; `go run ./test/loansim/cmd faults` plays more.
func TestFaults(t *testing.T) {
	t.Parallel()
	for seed := range int64(6) {
		if w := Fault(seed+1, 30_000_000); w.Oracle.Worst > 0 {
			t.Error(w)
		}
	}
}

// TestOracleSeesAShareTooLarge: what the oracle counts is near the bound, or it would show nothing.
func TestOracleSeesAShareTooLarge(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 1, Regions: 3, Bound: 60, Window: 1_000_000, Delay: 20 * ms}
	for _, more := range []int64{0, 1} {
		w := NewWorld(o)
		w.regions[0].book.Share += more
		for w.now < 4_000_000 {
			w.Step()
			for i := range w.regions {
				w.Check(i, 1)
			}
		}
		if w.Oracle.Worst != more {
			t.Errorf("with %d units too many the worst window is %d above the bound", more, w.Oracle.Worst)
		}
	}
}

// TestUtilisation holds the policy to what it reached, less a little.
func TestUtilisation(t *testing.T) {
	t.Parallel()
	o := Options{Seed: 1, Regions: 3, Bound: 600, Window: 10_000_000, Delay: 120_000}
	for _, d := range Demands {
		if r := Play(o, d, 3); r.Utilisation < 97 || r.Over > 0 {
			t.Errorf("%s: %+v", d.Name, r)
		}
	}
}
