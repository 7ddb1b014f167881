package sync_test

import (
	"reflect"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

func TestRestartReplacesTheFormerLife(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		us := nodes[1]
		nodes[0].kill()
		again := w.join("eu", "a", 10, 0)
		sleep(time.Second)
		if p := us.knows(again); !p.Synced || p.AckedAt == 0 {
			t.Errorf("the new life: %+v", p)
		}
		if len(us.Peers()) != 2 {
			t.Errorf("us knows %d processes", len(us.Peers()))
		}
	}, "eu", "us", "ap")
}

// The host's clock was set back between two lives: the later has the older boot.
func TestOlderBootIsBelievedOnceTheNewerIsSilent(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		us := nodes[1]
		nodes[2].kill() // ap, boot 3
		again := w.join("ap", "a", 1, 0)
		sleep(time.Second)
		if _, known := us.peer(again); known {
			t.Error("an older boot was believed while the newer is fresh")
		}
		sleep(2 * time.Second)
		if p := us.knows(again); !p.Synced {
			t.Errorf("%+v", p)
		}
	}, "eu", "us", "ap")
}

func TestSiblingsFoldEachOther(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		b := w.join("eu", "b", 9, 0)
		sleep(time.Second)
		c := b.cell(1)
		b.totals.Admit(4, c)
		sleep(300 * time.Millisecond)
		if got := nodes[0].totals.Snapshot()[c]; got != 4 {
			t.Errorf("its sibling counts %d", got)
		}
		if p := nodes[0].knows(b); !p.Synced || p.AckedAt == 0 {
			t.Errorf("%+v", p)
		}
		us := nodes[1]
		b.stop()
		sleep(300 * time.Millisecond)
		if _, known := us.peer(b); known || len(us.Peers()) != 2 {
			t.Error("us still knows b, or no longer a")
		}
	}, "eu", "us", "ap")
}

// What comes late or twice says nothing new about its author.
func TestLateMessagesChangeNothing(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		var sent []meshsync.Message
		eu.bus.Spy(func(m meshsync.Message) { sent = append(sent, m) })
		sleep(time.Second)
		eu.bus.Spy(nil)
		sleep(time.Second)
		before := us.Peers()
		for _, m := range sent {
			us.bus.Inject(m.Subject, m.Data)
		}
		sleep(0)
		if after := us.Peers(); !reflect.DeepEqual(before, after) {
			t.Errorf("before: %+v\nafter: %+v", before, after)
		}
		// The newest beat of all acknowledges less than those before.
		b := wire.Heartbeat{From: eu.self, Seq: us.knows(eu).Seq + 1, TimeUS: eu.timeUS(), Acks: []wire.Ack{{Process: us.self, Seq: 1, ReceivedUS: 1}}}
		us.bus.Inject(meshsync.SubjectHeartbeat+"eu", wire.AppendHeartbeat(nil, &b))
		acked := us.knows(eu).AckedAt
		sleep(0)
		if p := us.knows(eu); p.AckedAt != acked || p.Seq != b.Seq {
			t.Errorf("acknowledged at %v, now %+v", acked, p)
		}
	}, "eu", "us", "ap")
}

// A bus may bring back what we published.
func TestOwnMessagesAreNoNews(t *testing.T) {
	bubble(t, func(w *world) {
		eu := three(w)[0]
		var sent []meshsync.Message
		eu.bus.Spy(func(m meshsync.Message) { sent = append(sent, m) })
		eu.Resync() // a request, too
		eu.totals.Admit(1, eu.cell(1))
		sleep(time.Second)
		eu.bus.Spy(nil)
		before := eu.Peers()
		for _, m := range sent {
			eu.bus.Inject(m.Subject, m.Data)
		}
		eu.bus.Inject(meshsync.SubjectSnapshot+"eu", wire.AppendSnapshotRequest(nil, &wire.SnapshotRequest{From: eu.self}))
		sleep(0)
		if !reflect.DeepEqual(before, eu.Peers()) {
			t.Errorf("before: %+v\nafter: %+v", before, eu.Peers())
		}
		answers := eu.counter("regiond.sync.snapshots_published", "", "")
		sleep(time.Second)
		if n := eu.counter("regiond.sync.snapshots_published", "", ""); n != answers {
			t.Error("answered a request of its own")
		}
	}, "eu", "us", "ap")
}

func TestLateMessagesDoNotBringBackWhoLeft(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		var last meshsync.Message
		eu.bus.Spy(func(m meshsync.Message) { last = m })
		sleep(time.Second)
		eu.bus.Spy(nil)
		late := last
		eu.stop()
		sleep(time.Second)
		us.bus.Inject(late.Subject, late.Data)
		sleep(0)
		if _, known := us.peer(eu); known || !us.Left("eu", eu.self.Instance, eu.self.Boot) {
			t.Error("it is back")
		}
		if us.Left("eu", eu.self.Instance, eu.self.Boot+1) || us.Left("ap", nodes[2].self.Instance, nodes[2].self.Boot) {
			t.Error("others are said to have left")
		}
		if n := us.counter("regiond.sync.refused", "reason", "stale"); n != 1 {
			t.Errorf("%d refused as stale", n)
		}
	}, "eu", "us", "ap")
}

// The second of two processes with one name says so and keeps quiet; the first
// goes on for everybody.
func TestNameConflict(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		second := w.join("eu", "a", 50, 0)
		sleep(4 * time.Second)
		if rival, yes := second.Duplicate(); !yes || rival != eu.self {
			t.Errorf("the second sees %+v, %v", rival, yes)
		}
		if rival, yes := eu.Duplicate(); yes {
			t.Errorf("the first sees %+v", rival)
		}
		if p := us.knows(eu); !p.Synced || w.now()-p.ReceivedAt > time.Second {
			t.Errorf("of the first: %+v", p)
		}
		c := eu.cell(1)
		eu.totals.Admit(4, c)
		sleep(300 * time.Millisecond)
		if got := us.totals.Snapshot()[c]; got != 4 {
			t.Errorf("us counts %d of what the first admitted", got)
		}
		eu.stop()
		sleep(time.Second)
		if rival, yes := second.Duplicate(); yes {
			t.Errorf("the first left, the second still sees %+v", rival)
		}
		if p := us.knows(second); w.now()-p.ReceivedAt > time.Second {
			t.Errorf("of the second: %+v", p)
		}
	}, "eu", "us", "ap")
}

func TestForgetting(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us, ap := nodes[0], nodes[1], nodes[2]
		if us.Forget("eu", "a", 1) {
			t.Error("forgot a process that is heard")
		}
		eu.kill()
		ap.kill()
		sleep(meshsync.SilentAfter + oneWay + time.Millisecond)
		if us.Forget("eu", "a", 2) || !us.Forget("eu", "a", 1) {
			t.Error("must forget that life, and no other")
		}
		if us.knows(ap); len(us.Peers()) != 1 {
			t.Errorf("us knows %d processes", len(us.Peers()))
		}
		sleep(meshsync.ForgetAfter)
		if len(us.Peers()) != 0 {
			t.Error("five minutes later us still knows one")
		}
	}, "eu", "us", "ap")
}

func TestRegionsThatLeaveTheTopologyAreForgotten(t *testing.T) {
	bubble(t, func(w *world) {
		us := three(w)[1]
		w.reload("eu", "us")
		sleep(time.Second)
		if peers := us.Peers(); len(peers) != 1 || peers[0].Region != "eu" {
			t.Errorf("%+v", peers)
		}
		if n := us.counter("regiond.sync.refused", "reason", "unknown_region"); n < 2 {
			t.Errorf("%d messages of unknown regions were refused", n)
		}
	}, "eu", "us", "ap")
}
