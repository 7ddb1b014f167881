package sync_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

func TestChangeIsPublishedWithinATick(t *testing.T) {
	meet(t, func(w *world, _, _, _ *node) {
		for i := range 20 {
			sleep(time.Duration(7*i) * time.Millisecond)
			from := w.nodes[i%3]
			c := from.cell(uint64(i))
			from.counters.Admit(5, c)
			sleep(meshsync.TickEvery + oneWay + 20*time.Millisecond)
			for _, n := range w.nodes {
				if got := n.counters.Snapshot()[c]; got != 5 {
					t.Errorf("change %d: %s counts %d of it", i, n.self.Region, got)
				}
			}
		}
	})
}

func TestUrgentChangeDoesNotWaitForTheTick(t *testing.T) {
	meet(t, func(w *world, eu, _, _ *node) {
		eu.counters.UrgentAbove = 3
		for i := range 20 {
			c := eu.cell(uint64(i))
			eu.counters.Admit(4, c)
			sleep(10*time.Millisecond + oneWay)
			for _, n := range w.nodes[1:] {
				if got := n.counters.Snapshot()[c]; got != 4 {
					t.Errorf("change %d: %s counts %d of it", i, n.self.Region, got)
				}
			}
		}
	})
}

// Urgent changes beyond one message follow in the next, without another signal.
func TestManyUrgentChanges(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		eu.counters.UrgentAbove = 1
		eu.admit(10_000, 2)
		sleep(25*time.Millisecond + oneWay)
		if n := len(us.counters.Of("eu")); n != 10_000 {
			t.Errorf("us knows %d of 10000", n)
		}
	})
}

func TestUrgentMessagesAreSpaced(t *testing.T) {
	meet(t, func(_ *world, eu, _, _ *node) {
		eu.counters.UrgentAbove = 1
		sent := eu.spy()
		for range 1000 { // for a second, each millisecond
			eu.admit(1, 2)
			sleep(time.Millisecond)
		}
		// One in 10 ms, one of changes at each tick, and one or two of the rolling snapshot.
		if n := len(sent(meshsync.SubjectUsage)); n < 90 || n > 100+10+2 {
			t.Errorf("%d messages in a second", n)
		}
	})
}

// What the bus refuses is not lost, and heartbeats have its age.
func TestRefusedChangesArePublishedLater(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		sent := eu.spy()
		eu.bus.Refuse(meshsync.SubjectUsage)
		for round := range 50 {
			for i := range 1000 {
				if round == 0 || round == 49 && i%2 == 0 {
					eu.counters.Admit(2, eu.cell(uint64(i)))
				}
			}
			sleep(50 * time.Millisecond)
		}
		eu.bus.Refuse("")
		sleep(2*meshsync.TickEvery + oneWay)
		var unsent []int64
		for _, m := range sent(meshsync.SubjectHeartbeat) {
			b, err := wire.DecodeHeartbeat(m.Data)
			if err != nil {
				t.Fatal(err)
			}
			unsent = append(unsent, b.UnsentMS)
		}
		if !maps.Equal(us.counters.Of("eu"), eu.counters.Of("eu")) {
			t.Errorf("us counts %d of eu's %d counters, or other units", len(us.counters.Of("eu")), len(eu.counters.Of("eu")))
		}
		if last := unsent[len(unsent)-1]; slices.Max(unsent) < 2000 || last != 0 {
			t.Errorf("for 2.5 s the bus refused all; heartbeats had %d ms at most, and at last %d", slices.Max(unsent), last)
		}
	})
}

// The rolling snapshot heals what no gap showed.
func TestRollingSnapshot(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		for i := range 1000 {
			c := eu.cell(uint64(i))
			// Merged as a sibling's, it counts as published.
			if err := eu.counters.Fold("eu", eu.timeUS(), w.now(), group(c, 9)); err != nil {
				t.Fatal(err)
			}
		}
		sleep(30*time.Second + oneWay)
		if got := len(us.counters.Of("eu")); got != 1000 {
			t.Errorf("us has %d of 1000 counters", got)
		}
	})
}

// A rolling snapshot of one message is repeated once a second, not at every tick.
func TestSmallRollingSnapshot(t *testing.T) {
	meet(t, func(_ *world, eu, _, _ *node) {
		eu.admit(32, 1)
		sleep(5 * time.Second)
		before := eu.counter("regiond.sync.published", "kind", "usage")
		sleep(20 * time.Second)
		if sent := eu.counter("regiond.sync.published", "kind", "usage") - before; sent < 19 || sent > 21 {
			t.Errorf("32 counters were published %d times in 20 s", sent)
		}
	})
}

// What is unpublished is published before leaving.
func TestLeave(t *testing.T) {
	meet(t, func(_ *world, eu, us, _ *node) {
		c := eu.cell(1)
		eu.counters.Admit(6, c)
		eu.stop()
		sleep(oneWay)
		if got := us.counters.Snapshot()[c]; got != 6 {
			t.Errorf("us counts %d", got)
		}
		if _, known := us.peer(eu); known {
			t.Error("us still knows a process that left")
		}
	})
}
