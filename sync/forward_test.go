package sync_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// A cut that moves puts a region into another group. The new group must learn what the
// former one used, although no process in it receives from whoever used it.
func TestForwardsToTheNewGroup(t *testing.T) {
	meet(t, func(w *world, eu, _, ap *node) {
		cut := meshtest.Link{Cut: true}
		w.net.SetAll(cut, "eu", "ap")
		w.net.SetAll(cut, "us", "ap")
		sleep(3 * time.Second)
		eu.admit(100, 67)
		sleep(time.Second)
		w.net.SetAll(cut, "eu", "us")
		w.net.SetAll(meshtest.Link{Latency: oneWay}, "us", "ap")
		sleep(1500 * time.Millisecond) // before us is counted on again
		if got, want := ap.counters.Of("eu"), eu.counters.Of("eu"); len(want) != 100 || !maps.Equal(got, want) {
			t.Errorf("ap has %d of the %d counters of eu", len(got), len(want))
		}
	})
}

// forward is the next message of n to a process, a snapshot of counters of eu, whose clock is given.
func (n *node) forward(to *node, clockUS int64, groups []wire.Group) []byte {
	return wire.Append(nil, &wire.Usage{
		Head: wire.Head{From: n.self, Seq: to.knows(n).Seq + 1}, TimeUS: n.timeUS(), Origin: "eu", OriginTimeUS: clockUS,
		Chunk: wire.Chunk{Snapshot: 99, Count: 1}, Groups: groups,
	})
}

// Forwarded counters of a region that is received directly are ignored.
func TestForwardedIsIgnoredWhileReceived(t *testing.T) {
	meet(t, func(_ *world, eu, us, ap *node) {
		c := eu.cell(77)
		forward := func() int64 {
			ap.inject(meshsync.SubjectUsage+"us", us.forward(ap, eu.timeUS(), group(c, 8)))
			sleep(0)
			return ap.counters.Snapshot()[c]
		}
		if n := forward(); n != 0 {
			t.Errorf("eu is received, and ap counts %d that us forwarded", n)
		}
		eu.kill()
		sleep(2 * time.Second)
		if n := forward(); n != 8 {
			t.Errorf("eu is silent, and ap counts %d of 8 that us forwarded", n)
		}
	})
}

// Who forwards counters of a region, or returns ours, cannot have them fade sooner by a path of its own.
func TestForwardedPathIsIgnored(t *testing.T) {
	meet(t, func(_ *world, eu, us, ap *node) {
		c := eu.cell(0)
		eu.kill()
		sleep(2 * time.Second)
		groups := group(c, 600)
		groups[0].Growth = []uint64{1<<64 - 1<<37, 1<<36 - 1} // all units in the first slot
		ap.inject(meshsync.SubjectUsage+"us", us.forward(ap, c.Bucket*c.WindowUS+c.WindowUS/2, groups))
		sleep(0)
		var used [8]int64
		ap.counters.Estimates(0, c.WindowUS, quota.MaxCounter, ap.w.now()+35*time.Second, used[:])
		if n := used[ap.counters.Region("eu")]; n < 400 {
			t.Errorf("us says that eu used 600 in half a minute, and 5 s into its fade ap counts %d", n)
		}
	})
}

// A process that starts behind a cut gets the counters of the region that it cannot
// receive from another. If that one's connection breaks meanwhile, it sends all of them
// again, because the requester takes the end of its own counters for the end of everything.
func TestForwardsToANewProcess(t *testing.T) {
	for name, disturb := range map[string]func(us *node){
		"undisturbed": func(*node) {},
		"a connection that breaks": func(us *node) {
			sleep(1550 * time.Millisecond) // after 1.3 s of silence the counters are requested
			us.bus.Down()
			sleep(150 * time.Millisecond) // the snapshot begins, and is refused
			us.bus.Up()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				eu, us := w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0)
				w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
				sleep(time.Second)
				eu.admit(1, 67)
				sleep(time.Second)
				w.net.SetAll(meshtest.Link{Cut: true}, "eu", "ap")
				ap := w.join("ap", "a", 3, 0)
				disturb(us)
				sleep(2 * time.Second)
				if got, want := ap.counters.Of("eu"), eu.counters.Of("eu"); len(want) != 1 || !maps.Equal(got, want) {
					t.Errorf("ap has %v of eu, us has %v", got, us.counters.Of("eu"))
				}
			}, "eu", "us", "ap")
		})
	}
}

// Buckets are numbered by the clock of their region, however far that is from the clock of
// the process that forwards them: a forwarded counter counts as long as one that was
// received, also when it is forwarded once more, and for as long more as it took to be forwarded.
func TestForwardedCountsByItsRegionsClock(t *testing.T) {
	for _, skew := range []time.Duration{0, 2150 * time.Millisecond, -40 * time.Second, 80 * time.Minute, -5 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) { bubble(t, func(w *world) { forwardTwice(w, skew) }, "eu", "us", "ap", "sa") })
	}
}

func forwardTwice(w *world, skew time.Duration) {
	start := func(region string, skew time.Duration) *node {
		n := w.newNode(region, "a", startUS, skew)
		n.counters = newCounters(n)
		n.start(n.counters)
		return n
	}
	w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
	eu, us := start("eu", skew), start("us", 0)
	sleep(time.Second)
	eu.admit(1, 60)
	sleep(time.Second)
	eu.kill()
	ap := start("ap", 7*time.Second)
	sleep(3 * time.Second)
	us.kill() // its ledger is still read here
	sa := start("sa", -9*time.Second)
	sleep(3 * time.Second)
	const forwarding = 7 // seconds since eu admitted it
	counts := slices.Repeat([]int64{60}, forwarding)
	for range 120 {
		want := estimate(us)
		counts = append(counts, want)
		for _, n := range []*node{ap, sa} {
			if got := estimate(n); got < want || got > counts[len(counts)-1-forwarding] {
				w.t.Fatalf("after %v us counts %d of eu and %s %d", w.now()-time.Hour, want, n.self.Region, got)
			}
		}
		sleep(time.Second)
	}
	if n := estimate(us); n != 0 {
		w.t.Errorf("two windows later us still counts %d", n)
	}
}

// estimate is what n counts now of eu's usage of id 0.
func estimate(n *node) int64 {
	var used [8]int64
	n.counters.Estimates(0, time.Minute.Microseconds(), quota.MaxCounter, n.w.now(), used[:])
	return used[n.counters.Region("eu")]
}
