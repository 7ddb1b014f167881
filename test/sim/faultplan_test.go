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

// TestCorpus: what has once shown a mistake, within minutes of virtual time, does not any more.
func TestCorpus(t *testing.T) {
	t.Parallel()
	plans, err := sim.Corpus()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		if p.Lasts > 0 && p.Lasts <= 11*time.Minute {
			r := p.Run()
			tell(t, &r)
		}
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
			f := sim.NewFaultPlan(seed, shortWorld)
			f.Run()
			sums[i] = f.Hash()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d gave two traces, %x and %x: something depends on the order of a map, or on time", seed, sums[0], sums[1])
		}
	}
}
