package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/sim"
)

// quiet is a world of so many regions without faults.
func quiet(t testing.TB, seed uint64, regions int) *sim.World {
	t.Helper()
	o := sim.Options{
		Seed: seed, Jitter: 5 * time.Millisecond,
		Policies: []quota.Policy{{Name: "standard", Limits: []quota.Limit{
			{Name: "all", Units: 600, Window: time.Minute, Scope: quota.ScopeGlobal},
		}, EnforcePercent: -1}},
	}
	for i := range regions {
		o.Regions = append(o.Regions, sim.RegionOptions{Name: fmt.Sprintf("r%02d", i)})
	}
	w, err := sim.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// drive asks so many checks a second, at random regions, until a moment.
func drive(w *sim.World, seed uint64, regions int, rate float64, until time.Duration) (modes map[quota.Mode]int) {
	dice := rand.New(rand.NewPCG(seed, 2))
	modes = map[quota.Mode]int{}
	for w.Now() < until {
		w.RunUntil(w.Now() + time.Duration(dice.ExpFloat64()/rate*float64(time.Second)))
		if a := w.Check(dice.IntN(regions), "acme", 1); a.Answered {
			modes[a.Decision.Mode]++
		}
	}
	return modes
}

// TestSameSeedSameWorld: everything is decided by the seed.
func TestSameSeedSameWorld(t *testing.T) {
	var sums [2]uint64
	for i := range sums {
		w := quiet(t, 7, 3)
		modes := drive(w, 7, 3, 50, 2*time.Minute)
		if modes[quota.ModeGlobal] < 5000 {
			t.Fatalf("modes %v: the regions do not see each other", modes)
		}
		sums[i] = w.Hash()
	}
	if sums[0] != sums[1] {
		t.Fatalf("one seed gave two worlds: %x and %x", sums[0], sums[1])
	}
}

func BenchmarkThirtyRegions(b *testing.B) {
	for b.Loop() {
		w := quiet(b, 7, 30)
		modes := drive(w, 7, 30, 100, 10*time.Minute)
		b.Log(modes, w.Stats())
	}
}

func BenchmarkIdleRegionHour(b *testing.B) {
	for b.Loop() {
		w := quiet(b, 7, 3)
		w.RunUntil(20 * time.Minute)
	}
}
