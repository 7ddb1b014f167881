package daemon

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldUsageTravels: a usage change is in every peer's estimate within a tick,
// the way there, and 20 ms; a quarter of a second at worst.
func TestWorldUsageTravels(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(10_000, time.Hour, ""), func(w *world) {
		w.startAll()
		dice := rand.New(rand.NewPCG(5, 5))
		var took []time.Duration
		used := make([]int64, len(w.regions))
		for i := range 150 {
			time.Sleep(time.Duration(dice.Int64N(int64(700 * time.Millisecond)))) // no phase of a tick is special
			s := w.regions[i%3]
			cost := 1 + 60*dice.Int64N(2) // far from urgent, or urgent
			if !s.one().ask(cost).Allowed {
				w.t.Fatal("denied far below the limit")
			}
			used[i%3] += cost
			took = append(took, w.awaitBy("the change is everywhere", time.Second, time.Millisecond, func() bool {
				for _, peer := range w.regions {
					if peer != s && peer.one().estimate(s) < used[i%3] {
						return false
					}
				}
				return true
			}))
		}
		slices.Sort(took)
		median, worst := took[len(took)/2], took[len(took)-1]
		t.Logf("a change is in both peers' estimates after %v (median), %v (worst), %v one way", median, worst, oneWay)
		if median > 100*time.Millisecond+oneWay+20*time.Millisecond || worst > worldLate {
			t.Errorf("median %v and worst %v, promised are 200 ms and 250 ms", median, worst)
		}
	})
}

// TestWorldSilence: how soon a region that is gone is missed, and how soon it is
// counted on again.
func TestWorldSilence(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		pairs  [][2]int // one way
		within time.Duration
	}{
		{"silence", [][2]int{{0, 1}, {1, 0}, {0, 2}, {2, 0}}, 1800 * time.Millisecond},
		{"one way out", [][2]int{{0, 1}}, 2500 * time.Millisecond},
		{"one way in", [][2]int{{2, 0}}, 2500 * time.Millisecond},
	} {
		inWorld(t, worldOf(600, time.Minute, ""), func(w *world) {
			var noticed, healed time.Duration
			w.startAll()
			for i := range 2 {
				time.Sleep(61*time.Second + time.Duration(i)*137*time.Millisecond) // in good standing, at any phase
				for _, p := range row.pairs {
					w.cut(p[0], p[1], true)
				}
				noticed = max(noticed, w.await(row.name, 4*time.Second, func() bool {
					return !slices.ContainsFunc(row.pairs, func(p [2]int) bool {
						return w.regions[p[0]].one().mode() == quota.ModeGlobal || w.regions[p[1]].one().mode() == quota.ModeGlobal
					})
				}))
				time.Sleep(5 * time.Second)
				for _, p := range row.pairs {
					w.cut(p[0], p[1], false)
				}
				healed = max(healed, w.await("healed", 10*time.Second, w.global))
			}
			t.Logf("%-12s noticed on both sides after %v at worst, global again %v after it healed", row.name, noticed, healed)
			if noticed > row.within {
				t.Errorf("%s: noticed after %v, promised are %v", row.name, noticed, row.within)
			}
			// Three beats of good behaviour are the hysteresis of a first time.
			if most := 2*time.Second + 1500*time.Millisecond; healed > most {
				t.Errorf("%s: global %v after healing, promised are %v", row.name, healed, most)
			}
		})
	}
}
