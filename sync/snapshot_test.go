package sync_test

import (
	"maps"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// chunks returns a function that ends the recording of the snapshots that n publishes, and
// returns their chunks.
func (n *node) chunks() func() []wire.Usage {
	sent := n.spy()
	return func() (chunks []wire.Usage) {
		for _, m := range sent(meshsync.SubjectUsage) {
			if u, err := wire.Decode[*wire.Usage](m.Data); err == nil && u.Chunk.Snapshot != 0 {
				chunks = append(chunks, *u)
			}
		}
		return chunks
	}
}

// All that join within a moment share one snapshot.
func TestOneSnapshotForAll(t *testing.T) {
	meet(t, func(w *world, eu, _, _ *node) {
		w.chunk = 1000
		eu.admit(5_000, 1)
		sleep(time.Second)
		sent := eu.chunks()
		var joined []*node
		for i, name := range []string{"b", "c", "d", "e"} {
			joined = append(joined, w.join("us", name, int64(20+i), 0))
			sleep(40 * time.Millisecond)
		}
		sleep(time.Second)
		var own, back int
		for _, u := range sent() {
			if u.Origin == "" {
				own++
			} else {
				back++
			}
		}
		if own != 5 || back != 0 {
			t.Errorf("%d chunks of eu's own counters and %d of us's", own, back)
		}
		for _, n := range joined {
			if p := n.knows(eu); !p.Synced || !maps.Equal(n.counters.Of("eu"), eu.counters.Of("eu")) {
				t.Errorf("us/%s knows %d of 5,000: %+v", n.self.Instance, len(n.counters.Of("eu")), p)
			}
		}
	})
}

// A process is not synced by a snapshot that another has requested of what changed lately.
func TestSyncedMeansAllOfIt(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		x := quota.Process{Region: "eu", Instance: "x", Boot: 9}
		for i, u := range []wire.Usage{{Number: 1}, {Chunk: wire.Chunk{Snapshot: 1, Count: 1, Since: 1, UpTo: 1}}} {
			u.Head, u.TimeUS = wire.Head{From: x, Seq: uint64(1 + i)}, eu.timeUS()
			us.inject(meshsync.SubjectUsage+"eu", wire.Append(nil, &u))
		}
		sleep(0)
		if p := us.knows(&node{self: x}); p.Synced || p.Complete != 1 {
			t.Errorf("%+v", p)
		}
	})
}

// A restarted process whose store is empty gets its counters back from peers, and requests
// them until it has them, however many messages are lost. It publishes them, since others may lack them.
func TestOwnStateIsReturned(t *testing.T) {
	for _, row := range []struct {
		loss float64
		in   time.Duration
	}{{0, 900 * time.Millisecond}, {0.5, 30 * time.Second}} {
		meet(t, func(w *world, eu, us, _ *node) {
			eu.admit(100, 3)
			sleep(time.Second)
			before := eu.counters.Of("eu")
			eu.kill()
			sleep(3 * time.Second)
			w.net.SetAll(meshtest.Link{Latency: oneWay, Loss: row.loss}, w.regions...)
			again := w.join("eu", "a", 30, 0)
			published := again.spy()
			sleep(row.in)
			if !maps.Equal(again.counters.Of("eu"), before) {
				t.Errorf("at a loss of %v %d of 100 counters were returned", row.loss, len(again.counters.Of("eu")))
			}
			changes := 0
			for _, m := range published(meshsync.SubjectUsage) {
				if u, err := wire.Decode[*wire.Usage](m.Data); err == nil && u.Number > 0 && len(u.Groups) > 0 {
					changes += len(u.Groups[0].IDs)
				}
			}
			if changes != 100 {
				t.Errorf("at a loss of %v it published %d of 100", row.loss, changes)
			}
			if got := again.counters.Take(1000, true, 1); len(got) != 0 {
				t.Errorf("%d of them are considered unpublished", len(got))
			}
			sent := us.chunks()
			sleep(10 * time.Second)
			if n := len(sent()); row.loss == 0 && n != 0 {
				t.Errorf("nothing is missing, and us still sent %d chunks", n)
			}
		})
	}
}

// Own state is requested from each process of a region: a sibling may have started later and
// have none.
func TestOwnStateOfEachProcess(t *testing.T) {
	bubble(t, func(w *world) {
		old, us := w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0)
		sleep(time.Second)
		us.counters.Admit(31, us.cell(1))
		want := us.counters.Of("us")
		sleep(time.Second)
		old.bus.Down()
		us.kill()
		w.join("eu", "b", 3, 0)
		again := w.join("us", "a", 4, 0)
		sleep(time.Second)
		if got := again.counters.Of("us"); len(got) != 0 {
			t.Fatalf("us got %v, which only a disconnected process has", got)
		}
		old.bus.Up()
		sleep(3 * time.Second)
		if got := again.counters.Of("us"); len(want) != 1 || !maps.Equal(got, want) {
			t.Errorf("us got %v back, not %v", got, want)
		}
	}, "eu", "us")
}

// After a reconnect both sides catch up, although neither was silent for SilentAfter.
func TestReconnectCatchesUp(t *testing.T) {
	meet(t, func(w *world, eu, _, _ *node) {
		eu.bus.Down()
		sleep(50 * time.Millisecond)
		for _, n := range w.nodes {
			n.admit(1, 2)
		}
		sleep(300 * time.Millisecond)
		sent := eu.chunks()
		requests := eu.counter("regiond.sync.published", "kind", "request")
		eu.bus.Up()
		sleep(time.Millisecond)
		sleep(2 * time.Second)
		if n := eu.counter("regiond.sync.published", "kind", "request") - requests; n != 2 {
			t.Errorf("eu requested %d times what it missed", n)
		}
		if chunks := sent(); len(chunks) != 0 {
			t.Errorf("eu published %d chunks unrequested", len(chunks))
		}
		same(t, w.nodes...)
	})
}

// A snapshot of many chunks is followed by a pause, however often it is requested.
func TestSnapshotsPause(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		w.chunk = 1000
		eu.admit(10_000, 1)
		sleep(time.Second)
		sent := eu.chunks()
		for i := range uint64(100) {
			request := wire.SnapshotRequest{From: us.self, To: eu.self, Request: 1000 + i}
			eu.inject(meshsync.SubjectSnapshot+"eu", wire.Append(nil, &request))
			sleep(100 * time.Millisecond)
		}
		snapshots := map[uint64]bool{}
		for _, u := range sent() {
			snapshots[u.Chunk.Snapshot] = true
		}
		// Ten chunks take 360 ms; then there is a pause of twice that.
		if len(snapshots) < 8 || len(snapshots) > 10 {
			t.Errorf("%d snapshots in ten seconds", len(snapshots))
		}
	})
}

// While its chunks arrive a snapshot is not requested again, however long it takes.
func TestOneRequestForALongSnapshot(t *testing.T) {
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		w.chunk = 1
		eu := w.join("eu", "a", 1, 0)
		eu.admit(200, 1)
		sleep(time.Second)
		us := w.join("us", "a", 2, 0)
		sent := us.spy()
		sleep(10 * time.Second)
		requests := len(sent(meshsync.SubjectSnapshot))
		if p := us.knows(eu); !p.Synced || requests != 1 {
			t.Errorf("a snapshot of eight seconds: %d requests, %+v", requests, p)
		}
	}, "eu", "us")
}

// same fails unless all hold the same counters.
func same(t *testing.T, nodes ...*node) {
	t.Helper()
	want := nodes[0].counters.Snapshot()
	for _, n := range nodes[1:] {
		if got := n.counters.Snapshot(); !maps.Equal(got, want) {
			t.Errorf("%s/%s has %d counters, %s/%s %d, or other units", n.self.Region, n.self.Instance, len(got),
				nodes[0].self.Region, nodes[0].self.Instance, len(want))
		}
	}
}

// A bus may deliver before it accepts messages. A request that it refuses is repeated with
// the first message that it accepts, and not a second later.
func TestRefusedRequest(t *testing.T) {
	bubble(t, func(w *world) {
		eu := w.join("eu", "a", 10, 0)
		eu.counters.Admit(3, eu.cell(1))
		sleep(time.Second)
		us := w.newNode("us", "a", 20, 0)
		us.counters = newCounters(us)
		us.inject(meshsync.SubjectHeartbeat+"eu", wire.Append(nil, &wire.Heartbeat{
			Head: wire.Head{From: eu.self, Seq: 1}, TimeUS: eu.timeUS(), Members: []string{"eu"}, Topology: 7,
		}))
		us.bus.Down()
		us.start(us.counters)
		sleep(50 * time.Millisecond)
		if p := us.knows(eu); p.Synced {
			t.Errorf("us knows %+v before it could request a snapshot", p)
		}
		us.bus.Up()
		sleep(300 * time.Millisecond)
		if p := us.knows(eu); !p.Synced || !maps.Equal(us.counters.Of("eu"), eu.counters.Of("eu")) {
			t.Errorf("us knows %d of 1: %+v", len(us.counters.Of("eu")), p)
		}
	}, "eu", "us")
}
