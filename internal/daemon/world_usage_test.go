package daemon

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// TestWorldSiblings: processes of a region come, stop and die, and a Redis forgets,
// while all ask; nothing is counted twice and nothing is lost. At rest all ledgers
// of all processes hold the same, and it is what was admitted.
func TestWorldSiblings(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(100_000, time.Hour, ""), func(w *world) {
		w.startAll()
		time.Sleep(200 * time.Millisecond)
		h := newTruth(w, 100_000, time.Hour)
		dice := rand.New(rand.NewPCG(9, 9))
		traffic := func() {
			for range 60 {
				p := w.alive[dice.IntN(len(w.alive))]
				h.ask(p, 1+dice.Int64N(9))
				time.Sleep(time.Duration(dice.Int64N(int64(40 * time.Millisecond))))
			}
		}
		eu, us := w.regions[0], w.regions[1]
		for _, act := range []struct {
			what string
			do   func()
		}{
			{"one process a region", func() {}},
			{"a second in eu-west", func() { eu.start("two").awaitReady() }},
			{"a third in eu-west, a second in us-east", func() { eu.start("three").awaitReady(); us.start("two").awaitReady() }},
			{"the first of eu-west stops", func() { eu.one().stop() }},
			{"the second of eu-west is killed", func() { eu.one().kill() }},
			{"it starts again", func() { eu.start("two").awaitReady() }},
			{"the Redis of us-east is flushed", func() { us.redis.FlushAll() }},
		} {
			act.do()
			traffic()
			took := w.await(act.what+": all hold the same", 2*time.Second, func() bool { return w.difference(h) == "" })
			t.Logf("%-40s %d processes hold the same %v after the last check", act.what, len(w.alive), took)
		}
	})
}

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

// held is what a ledger has of a region, by limit, bucket, epoch and partition.
func (p *node) held(of *nodeRegion) map[string]int64 {
	all := map[string]int64{}
	for groups := range p.replication.ceilings.Ledger().Live(of.name, 0, wire.MaxEntries) {
		for _, g := range groups {
			for i, id := range g.IDs {
				all[fmt.Sprint(g.Limit, " ", g.WindowUS, " ", g.Bucket, " ", id, " ", g.Generations[i])] += g.Units[i]
			}
		}
	}
	return all
}

// difference says what two processes disagree in, or what is not as it was; "" for
// nothing.
func (w *world) difference(h *truth) string {
	for i, s := range w.regions {
		first := w.alive[0].held(s)
		total := int64(0)
		for _, units := range first {
			total += units
		}
		if used := h.judge.Used(i, w.now()); total != used {
			return fmt.Sprintf("%s admitted %d, and %s holds %d", s.name, used, w.alive[0].home.name, total)
		}
		for _, p := range w.alive[1:] {
			if d := cmp.Diff(first, p.held(s)); d != "" {
				return fmt.Sprintf("of %s, %s and %s/%s hold:\n%s", s.name, w.alive[0].home.name, p.home.name, p.options.Instance, d)
			}
			if p.home != s {
				if got := p.estimate(s); got != total {
					return fmt.Sprintf("%s/%s estimates %d for %s, and it is %d", p.home.name, p.options.Instance, got, s.name, total)
				}
			}
		}
	}
	return ""
}

// TestWorldReportsAreNoExcess: a region whose reports go far beyond the limit counts with the
// others as one that used it up, and raises no alarm with any of them.
func TestWorldReportsAreNoExcess(t *testing.T) {
	t.Parallel()
	const limit = 900
	inWorld(t, worldOf(limit, 10*time.Minute, ""), func(w *world) {
		w.startAll()
		for range 5 {
			if _, err := w.regions[0].one().limiter.Report(t.Context(), quota.Request{Tenant: "acme", Cost: limit - 1}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		for _, s := range w.regions[1:] {
			p := s.one()
			if n := p.estimate(w.regions[0]); n != limit {
				t.Errorf("%s counts %d units, want %d", s.name, n, limit)
			}
			if n := p.sum("regiond_peer_excess_units_total"); n != 0 {
				t.Errorf("%s finds %v units too many", s.name, n)
			}
		}
	})
}
