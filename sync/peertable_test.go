package sync_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

func TestRestart(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		eu.kill()
		again := w.join("eu", "a", 10, 0)
		sleep(time.Second)
		us.knows(again)
		synced(t, us, 2)
	})
}

// The host's clock was set back before a restart: the new process has the older boot, and is
// accepted once the other is silent.
func TestRestartWithAnOlderBoot(t *testing.T) {
	meet(t, func(w *world, _, us, ap *node) {
		ap.kill() // boot 3
		again := w.join("ap", "a", 1, 0)
		sleep(time.Second)
		if _, known := us.peer(again); known {
			t.Error("accepted while the newer boot is not silent")
		}
		sleep(2 * time.Second)
		if p := us.knows(again); !p.Synced {
			t.Errorf("%+v", p)
		}
	})
}

func TestSiblings(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		b := w.join("eu", "b", 9, 0)
		sleep(time.Second)
		c := b.cell(1)
		b.counters.Admit(4, c)
		sleep(300 * time.Millisecond)
		if got := eu.counters.Snapshot()[c]; got != 4 {
			t.Errorf("its sibling counts %d", got)
		}
		if p := eu.knows(b); !p.Synced || p.AckedAt == 0 {
			t.Errorf("%+v", p)
		}
		b.stop()
		sleep(300 * time.Millisecond)
		if _, known := us.peer(b); known || len(us.Peers()) != 2 {
			t.Error("us still knows b, or no longer a")
		}
	})
}

// The newest heartbeat may acknowledge less than those before.
func TestAcknowledgementsDoNotGoBack(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		acked := us.knows(eu).AckedAt
		b := wire.Heartbeat{
			Head: wire.Head{From: eu.self, Seq: us.knows(eu).Seq + 1}, TimeUS: eu.timeUS(),
			Acks: []wire.Ack{{Process: us.self, Seq: 1, ReceivedUS: 1}},
		}
		us.inject(meshsync.SubjectHeartbeat+"eu", wire.Append(nil, &b))
		sleep(0)
		if p := us.knows(eu); p.AckedAt != acked || p.Seq != b.Seq {
			t.Errorf("acknowledged at %v, now %+v", acked, p)
		}
	})
}

// A bus may return our own messages; they change nothing.
func TestOwnMessages(t *testing.T) {
	meet(t, func(_ *world, eu, _, _ *node) {
		sent := eu.spy()
		eu.admit(1, 1)
		sleep(time.Second)
		own := sent("")
		before := eu.Peers()
		for _, m := range own {
			eu.bus.Inject(m.Subject, m.Data)
		}
		eu.inject(meshsync.SubjectSnapshot+"eu", wire.Append(nil, &wire.SnapshotRequest{From: eu.self}))
		sleep(0)
		if !reflect.DeepEqual(before, eu.Peers()) {
			t.Errorf("before: %+v\nafter: %+v", before, eu.Peers())
		}
		snapshots := eu.counter("regiond.sync.snapshots_published")
		sleep(time.Second)
		if n := eu.counter("regiond.sync.snapshots_published"); n != snapshots {
			t.Error("a snapshot for a request of its own")
		}
	})
}

func TestLateMessagesOfAProcessThatLeft(t *testing.T) {
	meet(t, func(_ *world, eu, us, ap *node) {
		sent := eu.spy()
		sleep(time.Second)
		late := sent("")
		eu.stop()
		sleep(time.Second)
		us.bus.Inject(late[len(late)-1].Subject, late[len(late)-1].Data)
		sleep(0)
		if _, known := us.peer(eu); known || !us.Left(eu.self) {
			t.Error("it is back")
		}
		if us.Left(quota.Process{Region: "eu", Instance: eu.self.Instance, Boot: eu.self.Boot + 1}) || us.Left(ap.self) {
			t.Error("Left is true of others")
		}
		if n := us.counter("regiond.sync.refused", "reason", "stale"); n != 1 {
			t.Errorf("%d refused as stale", n)
		}
	})
}

// Of two processes with one name the second publishes nothing until the first has left.
func TestDuplicate(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		second := w.join("eu", "a", 50, 0)
		sleep(4 * time.Second)
		if duplicate, yes := second.Duplicate(); !yes || duplicate != eu.self {
			t.Errorf("the second sees %+v, %v", duplicate, yes)
		}
		if duplicate, yes := eu.Duplicate(); yes {
			t.Errorf("the first sees %+v", duplicate)
		}
		if p := us.knows(eu); !p.Synced || w.now()-p.ReceivedAt > time.Second {
			t.Errorf("of the first: %+v", p)
		}
		c := eu.cell(1)
		eu.counters.Admit(4, c)
		sleep(300 * time.Millisecond)
		if got := us.counters.Snapshot()[c]; got != 4 {
			t.Errorf("us counts %d of what the first admitted", got)
		}
		eu.stop()
		sleep(time.Second)
		if duplicate, yes := second.Duplicate(); yes {
			t.Errorf("the first left, the second still sees %+v", duplicate)
		}
		if p := us.knows(second); w.now()-p.ReceivedAt > time.Second {
			t.Errorf("of the second: %+v", p)
		}
	})
}

func TestForgetting(t *testing.T) {
	meet(t, func(_ *world, eu, us, ap *node) {
		dead := func(p quota.Process) {
			us.members.Lock()
			defer us.members.Unlock()
			us.members.Entry(p).Gossip.State = members.Dead
		}
		dead(eu.self)
		sleep(time.Second)
		us.knows(eu) // it is not silent
		eu.kill()
		ap.kill()
		dead(quota.Process{Region: "ap", Instance: "a", Boot: ap.self.Boot + 1}) // another run of it
		sleep(members.SilentAfter + oneWay + meshsync.TickEvery + time.Millisecond)
		if us.knows(ap); len(us.Peers()) != 1 {
			t.Errorf("us knows %d processes", len(us.Peers()))
		}
		sleep(meshsync.ForgetAfter)
		if len(us.Peers()) != 0 {
			t.Error("five minutes later us still knows one")
		}
	})
}

func TestRegionsThatLeaveTheTopologyAreForgotten(t *testing.T) {
	meet(t, func(w *world, _, us, _ *node) {
		w.reload("eu", "us")
		sleep(time.Second)
		if peers := us.Peers(); len(peers) != 1 || peers[0].Region != "eu" {
			t.Errorf("%+v", peers)
		}
		if n := us.counter("regiond.sync.refused", "reason", "unknown_region"); n < 2 {
			t.Errorf("%d messages of unknown regions were refused", n)
		}
	})
}
