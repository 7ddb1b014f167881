package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/region/state"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/test/gossiptest"
	"github.com/regiond/regiond/test/meshtest"
)

// spend asks in tens until one is denied, and returns what was admitted.
func (p *node) spend() (units int64) {
	p.w.t.Helper()
	for p.ask(10).Allowed {
		units += 10
	}
	return units
}

// A split through a region: one of its processes reaches only the regions on one side, the
// other only those on the other, and both reach its Redis. Neither may give the region's
// share to its side.
func TestWorldSplitThroughARegion(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(600, time.Hour, ""), func(w *world) {
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		w.bus.SetAll(meshtest.Link{Latency: oneWay}, "eu-west", "us-east", "us-east#2", "ap-south")
		eu.start("one")
		us.start("one")
		us.start("two", func(o *Options) {
			bus := w.bus.Join("us-east#2")
			o.WrapBus = func(meshsync.Bus) meshsync.Bus { return bus }
		})
		ap.start("one")
		w.await("every region sees every other", 20*time.Second, w.global)
		time.Sleep(time.Minute)
		for _, a := range []string{"eu-west", "us-east"} {
			for _, b := range []string{"us-east#2", "ap-south"} {
				w.bus.Set(a, b, meshtest.Link{Cut: true})
				w.bus.Set(b, a, meshtest.Link{Cut: true})
			}
		}
		for _, a := range []string{eu.addr(0), us.addr(0)} {
			for _, b := range []string{us.addr(1), ap.addr(0)} {
				w.air.Set(a, b, gossiptest.Path{Cut: true})
				w.air.Set(b, a, gossiptest.Path{Cut: true})
			}
		}
		for range 300 { // at no time do the groups overlap
			time.Sleep(50 * time.Millisecond)
			e, a := eu.one().replication.ceilings.View(), ap.one().replication.ceilings.View()
			if e.Members().Has(1) && a.Members().Has(1) && (!e.Members().Has(2) || !a.Members().Has(0)) {
				t.Errorf("eu-west and ap-south both count on us-east, and not on each other: %v %v", e.Members(), a.Members())
			}
		}
		sum := eu.one().spend() + ap.one().spend() + us.processes[0].spend() + us.processes[1].spend()
		if sum > 600 {
			t.Errorf("%d of 600 are admitted", sum)
		}
		t.Logf("%d of 600 are admitted", sum)
		w.bus.SetAll(meshtest.Link{Latency: oneWay}, "eu-west", "us-east", "us-east#2", "ap-south")
		w.air.SetUsual(gossiptest.Path{Latency: oneWay})
		for _, a := range []string{eu.addr(0), us.addr(0)} {
			for _, b := range []string{us.addr(1), ap.addr(0)} {
				w.air.Set(a, b, gossiptest.Path{Latency: oneWay})
				w.air.Set(b, a, gossiptest.Path{Latency: oneWay})
			}
		}
		took := w.await("healed", time.Minute, w.global)
		t.Logf("healed after %v", took)
	})
}

// A process that starts again while its region is cut off, with other weights, still goes
// by the shares of the revision that the others have.
func TestWorldRestartWithOtherWeightsWhileCut(t *testing.T) {
	t.Parallel()
	onRedises(t, "revision: 1\n"+worldOf(600, time.Hour, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		for _, to := range []int{1, 2} {
			w.cut(0, to, true)
			w.cut(to, 0, true)
		}
		time.Sleep(10 * time.Second)
		eu.one().stop()

		w.text = strings.Replace(w.text, "{name: eu-west,", "{name: eu-west, weight: 8,", 1)
		if err := eu.attempt("one"); err == nil || errors.Is(err, state.ErrAway) || !strings.Contains(err.Error(), "set revision: 2") {
			t.Errorf("other weights under the same revision: %v", err)
		}
		old := w.text
		w.text = strings.Replace(w.text, "revision: 1", "revision: 2", 1)
		p := eu.start("one")
		time.Sleep(10 * time.Second)
		sum := p.spend() + w.regions[1].one().spend()
		time.Sleep(time.Second)
		if sum += w.regions[2].one().spend(); sum > 600 {
			t.Errorf("%d of 600 are admitted", sum)
		}
		t.Logf("%d of 600 are admitted", sum)

		w.text = old
		if err := eu.attempt("two"); err == nil || !strings.Contains(err.Error(), "revision 2 is in force") {
			t.Errorf("a lower revision: %v", err)
		}
	})
}

// While Redis is away at the start, nothing is known of earlier revisions: a process keeps
// to its own share until it has read them.
func TestWorldStartsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(600, time.Hour, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		eu.one().stop()
		eu.away.Store(true)
		p := eu.start("one", func(o *Options) { o.Processes = 2 })
		time.Sleep(10 * time.Second)
		if units := p.spend(); units != 100 {
			t.Errorf("%d of 600 are admitted, want 200 ÷ 2 processes", units)
		}
		eu.away.Store(false)
		w.await("its Redis is back", 20*time.Second, w.global)
	})
}

// A loss of any kind ends the epoch of a region's store, when it is noticed: by a check, or
// by a probe.
func TestWorldLossEndsTheEpoch(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		what string
		key  string // that begins so is lost
		asks bool
	}{
		{"a usage counter", "rl:{acme}:t.", true},
		{"the life", "rl:life", false},
	} {
		onRedises(t, worldOf(600, time.Hour, ""), func(w *world) {
			w.startAll()
			eu := w.regions[0]
			eu.one().ask(10)
			time.Sleep(5 * time.Second)
			before := eu.one().replication.state.Store()
			for _, key := range eu.redis.Keys() {
				if strings.HasPrefix(key, row.key) {
					eu.redis.Del(key)
				}
			}
			if row.asks {
				eu.one().ask(10)
				if now := eu.one().replication.state.Store(); now == before {
					t.Errorf("%s: a check has noticed the loss, and the epoch is still %v", row.what, now)
				}
			}
			time.Sleep(3 * state.TurnEvery)
			after := eu.one().replication.state.Store()
			if before.Epoch == 0 || after.Epoch == 0 || after.Epoch == before.Epoch || after.Lost == 0 {
				t.Errorf("%s: the epoch was %v and is %v", row.what, before, after)
			}
			if other := w.regions[1].one().replication.state.Store(); other.Lost != 0 {
				t.Errorf("%s: another region's epoch is %v", row.what, other)
			}
		})
	}
}
