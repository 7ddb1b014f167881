package sync_test

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// A change is published within a tick, one that is urgent at once.
func TestChangesArriveInTime(t *testing.T) {
	for urgentAbove, within := range map[int64]time.Duration{
		neverUrgent: meshsync.TickEvery + oneWay + 20*time.Millisecond, 3: 10*time.Millisecond + oneWay,
	} {
		meet(t, func(w *world, _, _, _ *node) {
			for i := range 20 {
				sleep(time.Duration(7*i) * time.Millisecond)
				from := w.nodes[i%3]
				from.counters.UrgentAbove = urgentAbove
				c := from.cell(uint64(i))
				from.counters.Admit(5, c)
				sleep(within)
				for _, n := range w.nodes {
					if got := n.counters.Snapshot()[c]; got != 5 {
						t.Errorf("change %d: %s counts %d of it after %v", i, n.self.Region, got, within)
					}
				}
			}
		})
	}
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
		// One in 10 ms, and one of changes at each tick.
		if n := len(sent(meshsync.SubjectUsage)); n < 90 || n > 100+10 {
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
			b, err := wire.Decode[*wire.Heartbeat](m.Data)
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

// corrupting is a bus that spoils usage while on.
type corrupting struct {
	meshsync.Bus
	on atomic.Bool
}

func (b *corrupting) Publish(subject string, data []byte, header ...meshsync.Field) error {
	if b.on.Load() && strings.HasPrefix(subject, meshsync.SubjectUsage) {
		data = []byte("?")
	}
	return b.Bus.Publish(subject, data, header...)
}

// Usage that peers refuse is missing, until it comes in a form that they can read: then what
// changed meanwhile is sent, and nothing else.
func TestRefusedUsageIsMissing(t *testing.T) {
	bubble(t, func(w *world) {
		us, b := w.join("us", "a", 2, 0), &corrupting{}
		eu := w.newNode("eu", "a", 1, 0)
		eu.via = func(bus meshsync.Bus) meshsync.Bus {
			b.Bus = bus
			return b
		}
		eu.counters = newCounters(eu)
		eu.start(eu.counters)
		eu.admit(1000, 1)
		sleep(2 * time.Second)
		b.on.Store(true)
		since := w.now()
		eu.admit(7, 1)
		sleep(10 * time.Second)
		if p := us.knows(eu); p.MissingSince < since || p.MissingSince > since+time.Second || p.Heartbeats < 20 {
			t.Errorf("refused since %v: %+v", since, p)
		}
		b.on.Store(false)
		sent := eu.chunks()
		sleep(time.Second)
		filled := 0
		for _, u := range sent() {
			for _, g := range u.Groups {
				filled += len(g.IDs)
			}
		}
		if p := us.knows(eu); p.MissingSince != 0 || filled != 7 || !maps.Equal(us.counters.Of("eu"), eu.counters.Of("eu")) {
			t.Errorf("filled with %d counters: %+v", filled, p)
		}
	}, "eu", "us")
}
