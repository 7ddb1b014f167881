package sync_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/test/meshtest"
)

// Processes that start at once sync within a second, although their links take 150 ms.
func TestMeetingTakesLessThanASecond(t *testing.T) {
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: 150 * time.Millisecond}, w.regions...)
		nodes := []*node{w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0), w.join("us", "b", 3, 0), w.join("ap", "a", 4, 0)}
		sleep(900 * time.Millisecond)
		for _, n := range nodes {
			synced(t, n, 3)
		}
	}, "eu", "us", "ap")
}

// synced fails unless n knows that many processes, has the snapshots of all, and an
// acknowledgement from each.
func synced(t *testing.T, n *node, peers int) {
	t.Helper()
	for _, p := range n.Peers() {
		if !p.Synced || p.AckedAt == 0 {
			t.Errorf("%s/%s has no snapshot or no ack of %s/%s: %+v", n.self.Region, n.self.Instance, p.Region, p.Instance, p)
		}
	}
	if len(n.Peers()) != peers {
		t.Errorf("%s/%s knows %d processes, want %d", n.self.Region, n.self.Instance, len(n.Peers()), peers)
	}
}

// Peers has what heartbeats carry, and when they came.
func TestHeartbeatsShowInPeers(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		want := meshsync.Advertised{Members: []string{"ap", "eu", "us"}, Topology: 9, Weights: []quota.Weight{{Region: "eu", Weight: 2}}}
		eu.advertise(want)
		eu.HeartbeatSoon()
		sleep(2 * time.Second)
		for _, n := range w.nodes {
			synced(t, n, 2)
			for _, p := range n.Peers() {
				switch {
				case p.Heartbeats < 6, p.RTT != 2*oneWay,
					w.now()-p.ReceivedAt > meshsync.TickEvery+meshsync.HeartbeatEvery+oneWay,
					w.now()-p.AckedAt > meshsync.HeartbeatEvery+2*oneWay+meshsync.HeartbeatEvery:
					t.Errorf("%s knows of %s at %v: %+v", n.self.Region, p.Region, w.now(), p)
				}
			}
		}
		p := us.knows(eu)
		if p.Key != eu.key().Fingerprint() {
			t.Errorf("us knows eu's key as %x, it is %x", p.Key, eu.key().Fingerprint())
		}
		if got := (meshsync.Advertised{Members: p.Members, Topology: p.Topology, Weights: p.Weights}); !reflect.DeepEqual(got, want) {
			t.Errorf("eu advertised %+v, us has %+v", want, got)
		}
		if got, want := p.ClockUS, eu.timeUS()-(w.now()-p.ReceivedAt+oneWay).Microseconds(); got != want {
			t.Errorf("eu's clock was %d µs when it sent its newest message, us has %d", want, got)
		}
	})
}

// An exchange gives the true difference of two clocks on a symmetric path.
func TestExchangeShowsTheOffset(t *testing.T) {
	meet(t, func(_ *world, _, us, _ *node) {
		us.mu.Lock()
		defer us.mu.Unlock()
		seen := map[int64]bool{}
		for _, e := range us.exchanges {
			seen[((e.ReceivedUS-e.SentUS)+(e.RepliedUS-e.ReturnedUS))/2] = true
			if delay := (e.ReturnedUS - e.SentUS) - (e.RepliedUS - e.ReceivedUS); delay != 2*oneWay.Microseconds() {
				t.Errorf("a round trip of %d µs", delay)
			}
		}
		if !seen[-3_000_000] || !seen[-63_000_000] || len(seen) != 2 {
			t.Errorf("offsets of eu and ap: %v", seen)
		}
	})
}

// A one-way cut shows in AckedAt on the open side.
func TestOneWayCutShowsInAcked(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		sleep(time.Second)
		cut := w.now()
		w.net.Set("eu", "us", meshtest.Link{Cut: true})
		sleep(5 * time.Second)
		if p := us.knows(eu); w.now()-p.ReceivedAt < 4*time.Second {
			t.Error("us receives from eu across a cut")
		}
		p := eu.knows(us)
		if w.now()-p.ReceivedAt > time.Second {
			t.Error("eu does not receive from us, though that way is open")
		}
		if p.AckedAt > cut || p.AckedAt < cut-meshsync.HeartbeatEvery {
			t.Errorf("cut at %v, and us acknowledged what eu sent at %v", cut, p.AckedAt)
		}
		w.net.Set("eu", "us", meshtest.Link{Latency: oneWay})
		sleep(2 * time.Second)
		p = eu.knows(us)
		if age := w.now() - p.AckedAt; age > 2*meshsync.HeartbeatEvery+2*oneWay {
			t.Errorf("healed, and the newest ack is for %v ago", age)
		}
	})
}

// A lost heartbeat is no gap, and no silence.
func TestLostHeartbeatIsNoSilence(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		before, requests := us.knows(eu).Heartbeats, us.counter("regiond.sync.published", "kind", "request")
		for range 10 {
			w.net.Set("eu", "us", meshtest.Link{Cut: true})
			sleep(400 * time.Millisecond)
			w.net.Set("eu", "us", meshtest.Link{Latency: oneWay})
			sleep(1400 * time.Millisecond)
		}
		if p := us.knows(eu); !p.Synced || p.Heartbeats < before+25 {
			t.Errorf("before: %d heartbeats; after: %+v", before, p)
		}
		gaps, requests := us.counter("regiond.sync.gaps", "region", "eu"), us.counter("regiond.sync.published", "kind", "request")-requests
		if gaps != 0 || requests != 0 {
			t.Errorf("%d gaps, %d requests", gaps, requests)
		}
	})
}

// A process that was paused finds all peers silent, logs it, and syncs again.
func TestPausedProcess(t *testing.T) {
	meet(t, func(_ *world, _, us, _ *node) {
		us.jump.Add(int64(10 * time.Second))
		sleep(0)
		for _, p := range us.Peers() {
			if us.now()-p.ReceivedAt < 9*time.Second {
				t.Errorf("received while it was paused: %+v", p)
			}
		}
		sleep(1500 * time.Millisecond)
		for _, p := range us.Peers() {
			if !p.Synced || p.Heartbeats > 4 {
				t.Errorf("not synced anew: %+v", p)
			}
		}
		if n := len(us.log.Lines("the mesh's tick came late: this process stood still or is overloaded")); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
	})
}

// Changed signals what a view depends on.
func TestChanged(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		us.changed()
		sleep(5 * time.Second)
		if us.changed() {
			t.Error("nothing has changed")
		}
		eu.advertise(meshsync.Advertised{Members: []string{"eu", "us"}, Topology: 7})
		eu.HeartbeatSoon()
		sleep(oneWay)
		if !us.changed() {
			t.Error("eu's members have changed")
		}
		w.net.Set("eu", "us", meshtest.Link{Cut: true})
		sleep(2 * time.Second)
		us.changed()
		w.net.Set("eu", "us", meshtest.Link{})
		sleep(500 * time.Millisecond)
		if !us.changed() {
			t.Error("eu is received again")
		}
		sleep(5 * time.Second)
		us.changed()
		eu.stop()
		sleep(oneWay)
		if !us.changed() {
			t.Error("eu left")
		}
	})
}

// changedWithin is the time, in steps of 10 ms, after which Changed signals; -1: it does not
// in d.
func (n *node) changedWithin(d time.Duration) (after time.Duration) {
	for ; after < d; after += 10 * time.Millisecond {
		sleep(10 * time.Millisecond)
		if n.changed() {
			return after
		}
	}
	return -1
}

// changed takes the signal of Changed.
func (n *node) changed() bool {
	select {
	case <-n.members.Changed():
		return true
	default:
		return false
	}
}

// Counters that were unpublished for a second make a process count as silent: Changed signals
// that at once, and when they are published.
func TestChangedByUnsentCounters(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		sleep(5 * time.Second)
		us.changedWithin(10 * time.Millisecond) // takes an earlier signal
		eu.bus.Refuse(meshsync.SubjectUsage)
		eu.counters.Admit(1, eu.cell(1))
		if after := us.changedWithin(3 * time.Second); after < time.Second || after > time.Second+meshsync.HeartbeatEvery+2*oneWay {
			t.Errorf("signalled %v after eu's counters began to wait", after)
		}
		if after := us.changedWithin(3 * time.Second); after >= 0 {
			t.Errorf("signalled again %v later without a change", after)
		}
		eu.bus.Refuse("")
		if after := us.changedWithin(3 * time.Second); after < 0 || after > meshsync.TickEvery+2*oneWay {
			t.Errorf("signalled %v after the counters could be published", after)
		}
	})
}

// A bus that takes nothing is logged at once, but not where it has taken nothing yet and no peer misses the process.
func TestBusThatConnectsLate(t *testing.T) {
	bubble(t, func(w *world) {
		n := w.newNode("eu", "a", 1, 0)
		n.bus.Refuse("rl.")
		n.counters = newCounters(n)
		n.start(n.counters)
		for _, step := range []struct {
			after   time.Duration
			refuses string
			lines   int
		}{{members.SilentAfter, "rl.", 0}, {time.Second, "", 1}, {time.Second, "rl.", 1}, {time.Second, "rl.", 2}} {
			sleep(step.after)
			if got := len(n.log.Lines("the bus takes no messages; peers receive nothing from this process")); got != step.lines {
				t.Errorf("%d lines, want %d", got, step.lines)
			}
			n.bus.Refuse(step.refuses)
		}
	}, "eu")
}

// HeartbeatSoon sends one in 20 ms at most.
func TestHeartbeatsAreCoalesced(t *testing.T) {
	meet(t, func(_ *world, eu, _, _ *node) {
		sent := eu.spy()
		for range 1000 {
			eu.HeartbeatSoon()
			sleep(time.Millisecond)
		}
		if n := len(sent(meshsync.SubjectHeartbeat)); n < 48 || n > 51 {
			t.Errorf("%d heartbeats in a second", n)
		}
	})
}
