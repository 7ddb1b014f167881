package sync_test

import (
	"maps"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/meshtest"
	"github.com/regiond/regiond/sync/wire"
)

// A cut that moves leaves a region between two groups, one after the other. What
// the first group has used, with that region's part too, the second has to hear,
// although nobody in it hears who used it.
func TestRelayTellsTheNewGroupWhatTheOldOneUsed(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, ap := nodes[0], nodes[2]
		cut := meshtest.Link{Cut: true}
		w.net.SetAll(cut, "eu", "ap")
		w.net.SetAll(cut, "us", "ap")
		sleep(3 * time.Second)
		for i := range 100 {
			eu.totals.Admit(67, eu.cell(uint64(i)))
		}
		sleep(time.Second)
		w.net.SetAll(cut, "eu", "us")
		w.net.SetAll(meshtest.Link{Latency: oneWay}, "us", "ap")
		sleep(1500 * time.Millisecond) // before us is counted on again
		if got, want := ap.totals.Of("eu"), eu.totals.Of("eu"); len(want) != 100 || !maps.Equal(got, want) {
			t.Errorf("ap knows %d of the %d totals of eu", len(got), len(want))
		}
	}, "eu", "us", "ap")
}

// Whom we hear speaks for itself: what others tell of it changes nothing.
func TestRelayOfWhoIsHeardIsIgnored(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us, ap := nodes[0], nodes[1], nodes[2]
		c := eu.cell(77)
		relay := func() []byte {
			return wire.AppendUsage(nil, &wire.Usage{
				From: us.self, Seq: ap.knows(us).Seq + 1, TimeUS: us.timeUS(), Origin: "eu",
				Groups: []wire.Group{{Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket, IDs: []uint64{c.ID}, Generations: []int64{c.Generation}, Units: []int64{8}}},
			})
		}
		ap.bus.Inject(meshsync.SubjectUsage+"us", relay())
		sleep(0)
		if n := ap.totals.Snapshot()[c]; n != 0 {
			t.Errorf("eu is heard, and us made ap count %d for it", n)
		}
		eu.kill()
		sleep(2 * time.Second)
		ap.bus.Inject(meshsync.SubjectUsage+"us", relay())
		sleep(0)
		if n := ap.totals.Snapshot()[c]; n != 8 {
			t.Errorf("eu is gone, and ap counts %d of what us knows of it", n)
		}
	}, "eu", "us", "ap")
}

// Who starts behind a cut never heard the region that it misses; its neighbours
// have.
func TestRelayToANewcomer(t *testing.T) {
	bubble(t, func(w *world) {
		eu, us := w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0)
		w.net.SetAll(meshtest.Link{Latency: oneWay}, "eu", "us", "ap")
		sleep(time.Second)
		eu.totals.Admit(67, eu.cell(1))
		sleep(time.Second)
		w.net.SetAll(meshtest.Link{Cut: true}, "eu", "ap")
		ap := w.join("ap", "a", 3, 0)
		sleep(2 * time.Second)
		if got, want := ap.totals.Of("eu"), eu.totals.Of("eu"); len(want) != 1 || !maps.Equal(got, want) {
			t.Errorf("ap knows %v of eu, us knows %v", got, us.totals.Of("eu"))
		}
	}, "eu", "us", "ap")
}

// A connection that is lost and returns while relays are under way starts the answer
// anew. Who asked takes our own counters for the end of it, so the relays have to come
// again with them.
func TestRelayOutlivesALostConnection(t *testing.T) {
	bubble(t, func(w *world) {
		eu, us := w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0)
		w.net.SetAll(meshtest.Link{Latency: oneWay}, "eu", "us", "ap")
		sleep(time.Second)
		eu.totals.Admit(67, eu.cell(1))
		sleep(time.Second)
		w.net.SetAll(meshtest.Link{Cut: true}, "eu", "ap")
		ap := w.join("ap", "a", 3, 0)
		sleep(1550 * time.Millisecond) // who is not heard after 1.3 s is missed, and asked for
		us.bus.Down()
		sleep(150 * time.Millisecond) // the answer begins, and is refused
		us.bus.Up()
		sleep(2 * time.Second)
		if got, want := ap.totals.Of("eu"), eu.totals.Of("eu"); len(want) != 1 || !maps.Equal(got, want) {
			t.Errorf("ap knows %v of eu, us knows %v", got, us.totals.Of("eu"))
		}
	}, "eu", "us", "ap")
}

// Buckets are numbered by the clock of the region that they are of, however far that is
// from the teller's: a counter that is relayed counts where it was told as long as it does
// where it was heard, and so it is when it is relayed once more.
func TestRelayCountsByItsRegionsClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 2150 * time.Millisecond, -40 * time.Second, 80 * time.Minute, -5 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) { bubble(t, func(w *world) { relayTwice(w, skew) }, "eu", "us", "ap", "sa") })
	}
}

func relayTwice(w *world, skew time.Duration) {
	ledgerOf := func(n *node) *counters {
		n.totals = newCounters(n)
		n.start(n.totals)
		return n.totals
	}
	w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
	eu, us := w.newNode("eu", "a", epochUS, skew), w.newNode("us", "a", epochUS, 0)
	first, heard := ledgerOf(eu), ledgerOf(us)
	sleep(time.Second)
	first.Admit(60, eu.cell(1))
	sleep(time.Second)
	eu.kill()
	relayed := ledgerOf(w.newNode("ap", "a", epochUS, 7*time.Second))
	sleep(3 * time.Second)
	us.kill() // its ledger is still read here
	again := ledgerOf(w.newNode("sa", "a", epochUS, -9*time.Second))
	sleep(3 * time.Second)
	const slack = 3 // the way, a moment each time, in which a counter fades a little less
	for range 110 {
		want := believed(w, heard)
		for name, l := range map[string]*counters{"ap": relayed, "sa": again} {
			if got := believed(w, l); got < want || got > want+slack {
				w.t.Fatalf("%v on, us counts %d of eu and %s %d", w.now()-time.Hour, want, name, got)
			}
		}
		sleep(time.Second)
	}
	if n := believed(w, heard); n != 0 {
		w.t.Errorf("two windows later us still counts %d: it is not seen to fade", n)
	}
}

// believed is what is counted now of what eu has used of id 1.
func believed(w *world, l *counters) int64 {
	var used [8]int64
	l.Estimates(1, time.Minute.Microseconds(), w.now(), used[:])
	return used[l.Region("eu")]
}
