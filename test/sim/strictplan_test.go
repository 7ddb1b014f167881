package sim

import (
	"testing"
	"time"
)

// strictWorlds are worlds for every run of the tests; `go run ./test/sim/cmd/sim -strict`
// runs thousands.
const (
	strictWorlds = 4
	strictWorld  = 6 * time.Minute
)

// TestStrictPlans: no window of all regions together is above a bound, whatever happens.
func TestStrictPlans(t *testing.T) {
	t.Parallel()
	var played, all time.Duration
	for seed := range uint64(strictWorlds) {
		r := Plan{Strict: true, Seed: seed + 1, Lasts: strictWorld}.Run()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for i := range r.Failed {
			v := &r.Failed[i]
			t.Errorf("seed %d, at %v: %s: %s\nreplay: %s\n%s", v.Seed, v.At, v.Name, v.Text, v.Replay(), v.Last)
		}
		played, all = played+r.Played, all+r.RegionTime
	}
	t.Logf("%v of %v played", played, all)
	if 20*played < all {
		t.Errorf("of %v only %v were played: the bound was hardly ever near", all, played)
	}
}

// TestAimedPlans: the same of worlds with one kind of fault alone, which random ones seldom reach. Each is played enough.
func TestAimedPlans(t *testing.T) {
	t.Parallel()
	for _, fault := range strictFaults() {
		if !fault.aimed {
			continue
		}
		r := Plan{Strict: true, Seed: 1, Lasts: strictWorld, Only: fault.word}.Run()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for i := range r.Failed {
			v := &r.Failed[i]
			t.Errorf("at %v: %s: %s\nreplay: %s\n%s", v.At, v.Name, v.Text, v.Replay(), v.Last)
		}
		t.Logf("%s: %d faults, %v of %v played", fault.word, r.Faults[fault.word], r.Played, r.RegionTime)
		if r.Faults[fault.word] == 0 || 20*r.Played < r.RegionTime {
			t.Errorf("%s: %d faults, and of %v only %v were played", fault.word, r.Faults[fault.word], r.RegionTime, r.Played)
		}
	}
}

// TestSameStrictPlan: a seed gives the same trace each time.
func TestSameStrictPlan(t *testing.T) {
	t.Parallel()
	var sums [2]uint64
	for i := range sums {
		f, err := NewStrictPlan(3, 3*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		f.Run()
		sums[i] = f.Hash()
	}
	if sums[0] != sums[1] {
		t.Errorf("one seed gave two traces, %x and %x: something depends on the order of a map, or on time", sums[0], sums[1])
	}
}

// TestStrictJudgeSees: a store that forgets what it admitted and does not notice shows.
func TestStrictJudgeSees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		f, err := NewStrictPlan(seed+1, strictWorld)
		if err != nil {
			t.Fatal(err)
		}
		f.heedless = true
		var forget func()
		forget = func() {
			f.regions[0].store.clear()
			f.regions[0].store.writes = nil
			f.At(f.now+time.Second, forget)
		}
		f.At(0, forget)
		if len(f.Run()) > 0 {
			return
		}
	}
	t.Error("five worlds with a store that forgets each second, and no window is above a bound")
}
