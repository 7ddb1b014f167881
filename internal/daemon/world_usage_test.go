package daemon

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// worldLate is how long after an admission some peer may still not know of it: a
// tick, the way, and what the promise leaves for work.
const worldLate = 250 * time.Millisecond

// TestWorldUsageTravels: what a region admits is in every peer's estimate after a tick of 100 ms, the way there, and 20 ms
// in the middle; a quarter of a second at worst.
func TestWorldUsageTravels(t *testing.T) {
	t.Parallel()
	inWorld(t, worldOf(10_000, time.Hour, ""), func(w *world) {
		w.startAll()
		dice := rand.New(rand.NewPCG(5, 5))
		var took []time.Duration
		used := make([]int64, len(w.regions))
		for i := range 60 {
			time.Sleep(time.Duration(dice.Int64N(int64(700 * time.Millisecond)))) // no phase of a tick is special
			from, s := i%len(w.regions), w.regions[i%len(w.regions)]
			cost := 1 + 60*dice.Int64N(2) // far from urgent, or urgent
			if !s.one().ask(cost).Allowed {
				t.Fatal("denied far below the limit")
			}
			used[from] += cost
			took = append(took, w.awaitBy("the change is everywhere", time.Second, time.Millisecond, func() bool {
				return !slices.ContainsFunc(w.regions, func(peer *nodeRegion) bool {
					return peer != s && peer.one().estimate(s) < used[from]
				})
			}))
		}
		slices.Sort(took)
		median, worst := took[len(took)/2], took[len(took)-1]
		if median > 100*time.Millisecond+oneWay+20*time.Millisecond || worst > worldLate {
			t.Errorf("a change is in the peers' estimates after %v, %v at worst; promised are 200 ms and %v", median, worst, worldLate)
		}
	})
}
