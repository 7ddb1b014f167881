package sync_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/meshtest"
	"github.com/regiond/regiond/sync/wire"
)

const oneWay = 80 * time.Millisecond

// three starts a process in each of three regions, far apart, with clocks that
// disagree, and lets them meet.
func three(w *world) []*node {
	w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
	nodes := []*node{
		w.join("eu", "a", 1, 0), w.join("us", "a", 2, 3*time.Second), w.join("ap", "a", 3, -time.Minute),
	}
	sleep(2 * time.Second)
	return nodes
}

func TestChangeReachesEveryPeerWithinATick(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		for i := range 20 {
			sleep(time.Duration(7*i) * time.Millisecond)
			from := nodes[i%3]
			c := from.cell(uint64(i))
			from.totals.Admit(5, c)
			sleep(meshsync.TickEvery + oneWay + 20*time.Millisecond)
			for _, n := range nodes {
				if got := n.totals.Snapshot()[c]; got != 5 {
					t.Errorf("change %d: %s counts %d of it", i, n.self.Region, got)
				}
			}
		}
	}, "eu", "us", "ap")
}

func TestUrgentChangeDoesNotWaitForTheTick(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu := nodes[0]
		eu.totals.UrgentAbove = 3
		for i := range 20 {
			c := eu.cell(uint64(i))
			eu.totals.Admit(4, c)
			sleep(10*time.Millisecond + oneWay)
			for _, n := range nodes[1:] {
				if got := n.totals.Snapshot()[c]; got != 4 {
					t.Errorf("change %d: %s counts %d of it", i, n.self.Region, got)
				}
			}
		}
	}, "eu", "us", "ap")
}

// More than an urgent message takes follows in the next ones, without another signal.
func TestManyUrgentChangesFollowEachOther(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w) // a tick has just passed
		eu, us := nodes[0], nodes[1]
		eu.totals.UrgentAbove = 1
		cells := make([]ledger.Cell, 10_000)
		for i := range cells {
			cells[i] = eu.cell(uint64(i))
		}
		eu.totals.Admit(2, cells...)
		sleep(25*time.Millisecond + oneWay)
		if n := len(us.totals.Of("eu")); n != 10_000 {
			t.Errorf("us knows %d of 10000", n)
		}
	}, "eu", "us", "ap")
}

func TestUrgentMessagesKeepTheirDistance(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu := nodes[0]
		eu.totals.UrgentAbove = 1
		sent := 0
		eu.bus.Spy(func(m meshsync.Message) {
			if strings.HasPrefix(m.Subject, meshsync.SubjectUsage) {
				sent++
			}
		})
		for range 1000 { // for a second, each millisecond
			eu.totals.Admit(2, eu.cell(1))
			sleep(time.Millisecond)
		}
		// One in 10 ms, one of changes at each tick, and one or two that roll.
		if sent < 90 || sent > 100+10+2 {
			t.Errorf("%d messages in a second", sent)
		}
	}, "eu", "us", "ap")
}

// What the bus does not take is not lost, and heartbeats do not claim that it was sent.
func TestOutboxOutlivesTheBus(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		var beats []wire.Heartbeat
		eu.bus.Spy(func(m meshsync.Message) {
			if b, err := wire.DecodeHeartbeat(m.Data); err == nil {
				beats = append(beats, *b)
			}
		})
		eu.bus.Refuse(meshsync.SubjectUsage)
		for round := range 50 {
			for i := range 1000 {
				if round == 0 || round == 49 && i%2 == 0 {
					eu.totals.Admit(2, eu.cell(uint64(i)))
				}
			}
			sleep(50 * time.Millisecond)
		}
		eu.bus.Refuse("")
		sleep(2*meshsync.TickEvery + oneWay)
		eu.bus.Spy(nil)
		if !maps.Equal(us.totals.Of("eu"), eu.totals.Of("eu")) {
			t.Errorf("us counts %d of eu's %d totals, or other units", len(us.totals.Of("eu")), len(eu.totals.Of("eu")))
		}
		worst := slices.MaxFunc(beats, func(a, b wire.Heartbeat) int { return cmp.Compare(a.UnsentMS, b.UnsentMS) })
		if last := beats[len(beats)-1]; worst.UnsentMS < 2000 || last.UnsentMS != 0 {
			t.Errorf("for 2.5 s nothing was taken; beats say %d ms, and at last %d", worst.UnsentMS, last.UnsentMS)
		}
	}, "eu", "us", "ap")
}

// A total that no message brought across still comes by with the rolling snapshot.
func TestRollingDigestHealsWhatNobodyMissed(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		for i := range 1000 {
			c := eu.cell(uint64(i))
			// Folded as a sibling's, it is published already and leaves by no other way.
			g := wire.Group{Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket, IDs: []uint64{c.ID}, Generations: []int64{c.Generation}, Units: []int64{9}}
			if err := eu.totals.Fold("eu", eu.timeUS(), w.now(), []wire.Group{g}); err != nil {
				t.Fatal(err)
			}
		}
		sleep(30*time.Second + oneWay)
		if got := len(us.totals.Of("eu")); got != 1000 {
			t.Errorf("us knows %d of 1000 totals", got)
		}
	}, "eu", "us", "ap")
}

// Few counters pass by once a second, not at every tick: one message is all of them.
func TestFewTotalsRollOnceASecond(t *testing.T) {
	bubble(t, func(w *world) {
		eu := three(w)[0]
		for i := range 32 {
			eu.totals.Admit(1, eu.cell(uint64(i)))
		}
		sleep(5 * time.Second)
		before := eu.counter("regiond.sync.published", "kind", "usage")
		sleep(20 * time.Second)
		if sent := eu.counter("regiond.sync.published", "kind", "usage") - before; sent < 19 || sent > 21 {
			t.Errorf("32 totals went by %d times in 20 s", sent)
		}
	}, "eu", "us", "ap")
}

func TestLeavingPublishesEverythingFirst(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		c := eu.cell(1)
		eu.totals.Admit(6, c)
		eu.stop()
		sleep(oneWay)
		if got := us.totals.Snapshot()[c]; got != 6 {
			t.Errorf("us counts %d", got)
		}
		if _, known := us.peer(eu); known {
			t.Error("us still knows a process that left")
		}
	}, "eu", "us", "ap")
}
