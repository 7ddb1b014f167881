package sync_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/meshtest"
	"github.com/regiond/regiond/sync/wire"
)

// chunks has a process's snapshot chunks noted as they are published, until they are
// looked at.
func (n *node) chunks() func() []wire.Usage {
	var seen []wire.Usage
	n.bus.Spy(func(m meshsync.Message) {
		if !strings.HasPrefix(m.Subject, meshsync.SubjectUsage) {
			return
		}
		if u, err := wire.DecodeUsage(m.Data); err == nil && u.Chunk.Snapshot != 0 {
			seen = append(seen, *u)
		}
	})
	return func() []wire.Usage {
		n.bus.Spy(nil)
		return seen
	}
}

// However many join, they share one snapshot, in order and within the caps.
func TestOneDigestForAllWhoJoin(t *testing.T) {
	bubble(t, func(w *world) {
		w.chunk = 1000
		nodes := three(w)
		eu := nodes[0]
		for i := range 5_000 {
			eu.totals.Admit(1, eu.cell(uint64(i)))
		}
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
		if own != 5 || back != 1 {
			t.Errorf("%d chunks of eu's own totals and %d of what it knows of us", own, back)
		}
		for _, n := range joined {
			if p := n.knows(eu); !p.Synced || !maps.Equal(n.totals.Of("eu"), eu.totals.Of("eu")) {
				t.Errorf("us/%s knows %d of 5,000: %+v", n.self.Instance, len(n.totals.Of("eu")), p)
			}
		}
	}, "eu", "us", "ap")
}

// A process is not digested before the last chunk is folded.
func TestDigestedMeansAllOfIt(t *testing.T) {
	bubble(t, func(w *world) {
		w.chunk = 1000
		eu := three(w)[0]
		for i := range 5_000 {
			eu.totals.Admit(1, eu.cell(uint64(i)))
		}
		sleep(time.Second)
		b := w.join("us", "b", 20, 0)
		missing, digested := 0, false
		for range 200 {
			sleep(5 * time.Millisecond)
			known := len(b.totals.Of("eu"))
			if known > 1000 && known < 5000 {
				missing++
			}
			p, _ := b.peer(eu)
			digested = p.Synced
			if digested && known != 5000 {
				t.Fatalf("digested with %d of 5000 totals", known)
			}
		}
		if missing == 0 || !digested {
			t.Errorf("seen half done %d times; digested at the end: %v", missing, digested)
		}
	}, "eu", "us", "ap")
}

// A restarted process whose store is empty gets back what its peers know of it.
func TestEchoGivesBackWhatARegionLost(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		for i := range 100 {
			eu.totals.Admit(3, eu.cell(uint64(i)))
		}
		sleep(time.Second)
		before := eu.totals.Of("eu")
		eu.kill()
		sleep(3 * time.Second)
		again := w.join("eu", "a", 30, 0)
		sleep(900 * time.Millisecond)
		if !maps.Equal(again.totals.Of("eu"), before) {
			t.Errorf("of 100 totals %d came back", len(again.totals.Of("eu")))
		}
		if got := again.totals.Take(1000, true); len(got) != 0 {
			t.Errorf("%d of them are considered unpublished", len(got))
		}
		sent := us.chunks()
		sleep(10 * time.Second)
		if n := len(sent()); n != 0 {
			t.Errorf("all is there, and us still sent %d chunks", n)
		}
	}, "eu", "us", "ap")
}

// An echo is for the region whose counters it holds; others take it for a sign of
// life, and not for news.
func TestEchoIsForItsRegionOnly(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us, ap := nodes[0], nodes[1], nodes[2]
		c := eu.cell(77)
		echo := wire.AppendUsage(nil, &wire.Usage{
			From: us.self, Seq: ap.knows(us).Seq + 1, TimeUS: us.timeUS(), Origin: "eu", Chunk: wire.Chunk{Snapshot: 99, Count: 1},
			Groups: []wire.Group{{Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket, IDs: []uint64{c.ID}, Generations: []int64{c.Generation}, Units: []int64{8}}},
		})
		us.kill()
		sleep(oneWay)
		for _, n := range []*node{eu, ap} {
			n.bus.Inject(meshsync.SubjectUsage+"us", echo)
			sleep(0)
			want := map[string]int64{"eu": 8}[n.self.Region]
			if got := n.totals.Snapshot()[c]; got != want {
				t.Errorf("%s counts %d of what eu lost", n.self.Region, got)
			}
			if p := n.knows(us); w.now() != p.ReceivedAt {
				t.Errorf("%s heard us %v ago", n.self.Region, w.now()-p.ReceivedAt)
			}
			if refused := n.counter("regiond.sync.refused", "", ""); refused != 0 {
				t.Errorf("%s refused %d messages", n.self.Region, refused)
			}
		}
	}, "eu", "us", "ap")
}

// The echo of a process that remembers nothing is not that of its region: a sibling
// that is heard later is asked as well.
func TestEchoIsOwedByEachProcess(t *testing.T) {
	bubble(t, func(w *world) {
		old, us := w.join("eu", "a", 1, 0), w.join("us", "a", 2, 0)
		sleep(time.Second)
		us.totals.Admit(31, us.cell(1))
		want := us.totals.Of("us")
		sleep(time.Second)
		old.bus.Down()
		us.kill()
		w.join("eu", "b", 3, 0)
		again := w.join("us", "a", 4, 0)
		sleep(time.Second)
		if got := again.totals.Of("us"); len(got) != 0 {
			t.Fatalf("nobody who is heard knows anything, and us got %v", got)
		}
		old.bus.Up()
		sleep(3 * time.Second)
		if got := again.totals.Of("us"); len(want) != 1 || !maps.Equal(got, want) {
			t.Errorf("us got %v back, not %v", got, want)
		}
	}, "eu", "us")
}

// Requests and chunks get lost; the process goes on asking until it has the echo.
func TestEchoIsAskedForUntilItCame(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu := nodes[0]
		eu.totals.Admit(3, eu.cell(1))
		sleep(time.Second)
		before := eu.totals.Of("eu")
		eu.kill()
		sleep(3 * time.Second)
		w.net.SetAll(meshtest.Link{Latency: oneWay, Loss: 0.5}, "eu", "us", "ap")
		again := w.join("eu", "a", 30, 0)
		sleep(30 * time.Second)
		if !maps.Equal(again.totals.Of("eu"), before) {
			t.Error("nothing came back in 30 s")
		}
	}, "eu", "us", "ap")
}

// What a cut hid is there two seconds after it heals, without a change to carry it.
func TestHealedCutIsCaughtUpWithByDigests(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		for _, d := range []time.Duration{200 * time.Millisecond, time.Second, time.Minute} {
			w.net.SetAll(meshtest.Link{Cut: true}, "eu", "us")
			for i := range 50 {
				for _, n := range nodes {
					n.totals.Admit(2, n.cell(uint64(i)))
				}
			}
			sleep(d)
			w.net.SetAll(meshtest.Link{Latency: oneWay}, "eu", "us")
			sleep(2 * time.Second)
			same(t, nodes...)
		}
	}, "eu", "us", "ap")
}

// A bus that comes back says so; both sides then catch up although neither was
// silent long enough to be missed.
func TestReconnectCatchesUp(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		nodes[0].bus.Down()
		sleep(50 * time.Millisecond)
		for _, n := range nodes {
			n.totals.Admit(2, n.cell(7))
		}
		sleep(300 * time.Millisecond)
		sent := nodes[0].chunks()
		requests := nodes[0].counter("regiond.sync.published", "kind", "request")
		nodes[0].bus.Up()
		sleep(time.Millisecond)
		if n := nodes[0].counter("regiond.sync.published", "kind", "request") - requests; n != 2 {
			t.Errorf("eu asked %d regions for digests", n)
		}
		sleep(2 * time.Second)
		if chunks := sent(); len(chunks) != 1 {
			t.Errorf("eu published %d chunks of its own accord", len(chunks))
		}
		same(t, nodes...)
	}, "eu", "us", "ap")
}

// While a sibling is missed, whoever asks for our counters has us read the store
// again: only that knows what the sibling admitted last.
func TestMissedSiblingHasTheStoreReadAgain(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		b := w.join("eu", "b", 9, 0)
		sleep(2 * time.Second)
		us.Resync()
		sleep(time.Second)
		if eu.rereads != 0 {
			t.Errorf("read again %d times though all are heard", eu.rereads)
		}
		b.kill()
		sleep(2 * time.Second)
		us.Resync()
		sleep(time.Second)
		if eu.rereads != 1 {
			t.Errorf("read again %d times", eu.rereads)
		}
	}, "eu", "us", "ap")
}

// A snapshot of many chunks rests after it, however often it is asked for.
func TestDigestsDoNotCrowdOutTheRest(t *testing.T) {
	bubble(t, func(w *world) {
		w.chunk = 1000
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		for i := range 10_000 {
			eu.totals.Admit(1, eu.cell(uint64(i)))
		}
		sleep(time.Second)
		request := wire.AppendSnapshotRequest(nil, &wire.SnapshotRequest{From: us.self})
		sent := eu.chunks()
		for range 100 {
			eu.bus.Inject(meshsync.SubjectSnapshot+"eu", request)
			sleep(100 * time.Millisecond)
		}
		digests := map[uint64]bool{}
		for _, u := range sent() {
			digests[u.Chunk.Snapshot] = true
		}
		// Ten chunks take 360 ms; then there is a rest of twice that.
		if len(digests) < 8 || len(digests) > 10 {
			t.Errorf("%d digests in ten seconds", len(digests))
		}
	}, "eu", "us", "ap")
}

// While chunks come in nobody asks again, however long the snapshot takes.
func TestNobodyAsksWhileADigestComesIn(t *testing.T) {
	bubble(t, func(w *world) {
		w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
		w.chunk = 1
		eu := w.join("eu", "a", 1, 0)
		for i := range 200 {
			eu.totals.Admit(1, eu.cell(uint64(i)))
		}
		sleep(time.Second)
		us := w.join("us", "a", 2, 0)
		requests := 0
		us.bus.Spy(func(m meshsync.Message) {
			if m.Subject == meshsync.SubjectSnapshot+"eu" {
				requests++
			}
		})
		sleep(10 * time.Second)
		us.bus.Spy(nil)
		if p := us.knows(eu); !p.Synced || requests != 1 {
			t.Errorf("a digest of eight seconds: asked %d times, %+v", requests, p)
		}
	}, "eu", "us")
}

// same fails unless all hold the same counters.
func same(t *testing.T, nodes ...*node) {
	t.Helper()
	want := nodes[0].totals.Snapshot()
	for _, n := range nodes[1:] {
		if got := n.totals.Snapshot(); !maps.Equal(got, want) {
			t.Errorf("%s/%s holds %d totals, %s/%s %d, or other units", n.self.Region, n.self.Instance, len(got),
				nodes[0].self.Region, nodes[0].self.Instance, len(want))
		}
	}
}

// A bus may deliver before it takes messages. What is asked for then is asked for
// with the first message that it takes, and not a second later.
func TestRefusedRequestIsNotPutOff(t *testing.T) {
	bubble(t, func(w *world) {
		eu := w.join("eu", "a", 10, 0)
		eu.totals.Admit(3, eu.cell(1))
		sleep(time.Second)
		us := w.newNode("us", "a", 20, 0)
		us.totals = newCounters(us)
		us.bus.Inject(meshsync.SubjectHeartbeat+"eu", wire.AppendHeartbeat(nil, &wire.Heartbeat{
			From: eu.self, Seq: 1, TimeUS: eu.timeUS(), Members: []string{"eu"}, Topology: 7,
		}))
		us.bus.Down()
		us.start(us.totals)
		sleep(50 * time.Millisecond)
		if p := us.knows(eu); p.Synced {
			t.Errorf("us knows %+v before it could ask", p)
		}
		us.bus.Up()
		sleep(300 * time.Millisecond)
		if p := us.knows(eu); !p.Synced || !maps.Equal(us.totals.Of("eu"), eu.totals.Of("eu")) {
			t.Errorf("us knows %d of 1: %+v", len(us.totals.Of("eu")), p)
		}
	}, "eu", "us")
}

// What is asked of many regions at once is asked in their order, so that the same seed
// gives the same run.
func TestRequestsGoOutInOrder(t *testing.T) {
	regions := []string{"ap", "eu", "in", "jp", "sa", "us", "za"}
	bubble(t, func(w *world) {
		var first *node
		for i, region := range regions {
			n := w.join(region, "a", int64(i+1), 0)
			if i == 0 {
				first = n
			}
		}
		sleep(5 * time.Second)
		var asked []string
		first.bus.Spy(func(m meshsync.Message) {
			if region, ok := strings.CutPrefix(m.Subject, meshsync.SubjectSnapshot); ok {
				asked = append(asked, region)
			}
		})
		first.Resync()
		sleep(100 * time.Millisecond)
		first.bus.Spy(nil)
		if !slices.Equal(asked, regions[1:]) {
			t.Errorf("asked in the order %v, want %v", asked, regions[1:])
		}
	}, regions...)
}
