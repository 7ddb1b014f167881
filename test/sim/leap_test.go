package sim

import (
	"fmt"
	"testing"
	"time"
)

// TestLeapIsExact: a world that leaps over beats at rest gives the answers and the views
// of one that plays each of them, and ends in the same state.
func TestLeapIsExact(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{31} {
		leaps, plays := fateTo(t, seed, false), fateTo(t, seed, true)
		if leaps.stats.Leapt < leapLeast || plays.stats.Leapt != 0 {
			t.Errorf("seed %d leapt over %v, and over %v where every beat is played", seed, leaps.stats.Leapt, plays.stats.Leapt)
		}
		if leaps.Told() != plays.Told() {
			t.Errorf("seed %d tells another story with every beat played: %x and %x", seed, leaps.Told(), plays.Told())
		}
		if a, b := state(leaps.World), state(plays.World); a != b {
			t.Errorf("seed %d ends otherwise with every beat played:\n%s\n%s", seed, a, b)
		}
	}
}

const (
	leapWorld = 14 * time.Minute
	leapLeast = time.Minute
)

func fateTo(t *testing.T, seed uint64, everyBeat bool) *Fate {
	t.Helper()
	f, err := newFate(seed, leapWorld, everyBeat)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range f.Run() {
		t.Errorf("seed %d, every beat %t: %s: %s", seed, everyBeat, v.Name, v.Text)
	}
	return f
}

// state is what every process knows and will do next, in words.
func state(w *World) string {
	s := fmt.Sprintln(w.now)
	for _, p := range w.living() {
		v := p.ceilings.View()
		s += fmt.Sprintf("%s/%s: sent %d, the last %x, due %v, looks %v\n%+v\n%+v %+v\n%+v\n", p.self.Region, p.self.Instance,
			p.bus.published, p.bus.last, p.mesh.DueIdle(), p.look, p.mesh.Peers(), v.Advertised(), v.Peers(), p.ceilings.Ledger().Snapshot())
	}
	return s
}
