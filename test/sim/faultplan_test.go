package sim_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/regiond/regiond/test/sim"
)

// shortSeeds are worlds for every run of the tests; make sim runs hundreds.
const (
	shortSeeds = 3
	shortWorld = 6 * time.Minute
)

// TestFaultPlanSeeds runs worlds that are known to show each mistake within minutes of
// virtual time.
func TestFaultPlanSeeds(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]struct {
		seed  uint64
		lasts time.Duration
	}{
		"counters-are-added-instead-of-merged":   {2, time.Minute},
		"two-generations-are-taken-for-one":      {1, 11 * time.Minute},
		"parts-of-the-dead-are-claimed":          {1, time.Minute},
		"groups-are-used-before-they-are-agreed": {2, time.Minute},
		"gossip-alone-decides-who-is-silent":     {1, time.Minute},
		"lost-counters-are-not-subtracted":       {2, time.Minute},
		"whoever-flapped-is-back-at-once":        {5, 2 * time.Minute},
		"live-counters-are-evicted":              {1, time.Minute},
		"what-the-store-lost-is-forgotten":       {1, 11 * time.Minute},
		"what-is-over-still-counts":              {2, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := sim.Plan{Seed: w.seed, Lasts: w.lasts}.Run()
			tell(t, &r)
		})
	}
}

func tell(t *testing.T, r *sim.Report) {
	t.Helper()
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	for i := range r.Failed {
		v := &r.Failed[i]
		t.Errorf("seed %d, at %v: %s: %s\nreplay: %s\n%s", v.Seed, v.At, v.Name, v.Text, v.Replay(), v.Last)
	}
}

// TestFaultPlans: whatever happens, all invariants hold.
func TestFaultPlans(t *testing.T) {
	t.Parallel()
	var checks, lost int64
	for seed := range uint64(shortSeeds) {
		r := sim.Plan{Seed: seed + 1, Lasts: shortWorld}.Run()
		tell(t, &r)
		checks, lost = checks+r.Stats.Checks, lost+r.Stats.Lost
	}
	if checks == 0 || lost == 0 {
		t.Errorf("%d checks, %d messages lost: no check was made, or no fault happened", checks, lost)
	}
}

// TestSameFaultPlan: a seed gives the same trace each time, on one core and on several.
func TestSameFaultPlan(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := uint64(21); seed < 23; seed++ {
		var sums [2]uint64
		for i := range sums {
			runtime.GOMAXPROCS(1 + i)
			f, err := sim.NewFaultPlan(seed, shortWorld)
			if err != nil {
				t.Fatal(err)
			}
			f.Run()
			sums[i] = f.Hash()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d gave two traces, %x and %x: something depends on the order of a map, or on time", seed, sums[0], sums[1])
		}
	}
}
