package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/natsbus"
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

// TestWorldNATS is the world over a NATS server, in the same fake time.
func TestWorldNATS(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(100_000, time.Hour, ""), func(w *world) {
		server, err := natsbus.NewEmbedded(natsbus.EmbeddedOptions{Name: "world"})
		if err != nil {
			w.t.Fatal(err)
		}
		stop := w.inBackground(server.Run)
		defer stop()
		ends := make([]func(), len(w.regions))
		for i, s := range w.regions {
			bus, err := natsbus.New(natsbus.Options{Server: server, Region: s.name, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				w.t.Fatal(err)
			}
			ends[i] = w.inBackground(bus.Run)
			defer func() { ends[i]() }()
			s.start("one", func(o *Options) { o.WrapBus = func(meshsync.Bus) meshsync.Bus { return bus } })
		}
		defer func() {
			for len(w.alive) > 0 {
				w.alive[0].stop() // before what carries them
			}
		}()
		w.await("global", 10*time.Second, w.global)
		h := newTruth(w, 100_000, time.Hour)
		h.drive(4, 20*time.Second, 3, 30, 20, 10)
		took := w.await("all hold the same", 2*time.Second, func() bool { return w.difference(h) == "" })
		t.Logf("over NATS: %d checks, all hold the same %v after the last", h.asked, took)
		ends[0]()
		ends[0] = func() {}
		noticed := w.await("silence is noticed", 4*time.Second, func() bool { return !w.global() && w.alive[1].mode() == w.alive[0].mode() })
		t.Logf("over NATS: a region that lost its NATS is missed after %v", noticed)
		if noticed > 1800*time.Millisecond {
			t.Errorf("silence was noticed after %v, promised are 1.8 s", noticed)
		}
	})
}

// inBackground runs something until the returned func is called.
func (w *world) inBackground(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
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
