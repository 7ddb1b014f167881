package sync_test

import (
	"context"
	"testing"
	"time"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/meshtest"
	"github.com/regiond/regiond/sync/wire"
)

// leaky is a bus that signals a loss after each message that it delivers.
type leaky struct {
	meshsync.Bus
	out         chan meshsync.Message
	gaps, drops chan struct{}
}

func (b *leaky) Messages() <-chan meshsync.Message { return b.out }
func (b *leaky) Gaps() <-chan struct{}             { return b.gaps }
func (b *leaky) Drops() <-chan struct{}            { return b.drops }

// run delivers until ctx ends, and signals a loss on one of the two channels.
func (b *leaky) run(ctx context.Context, lost chan struct{}) {
	for {
		select {
		case m := <-b.Bus.Messages():
			select {
			case b.out <- m:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
		select {
		case lost <- struct{}{}:
		default:
		}
	}
}

// However often a bus signals a loss, a process catches up once a second. A slow reader's
// snapshot is published to the end all the same; after a reconnect it begins anew.
func TestCatchUpOnceASecond(t *testing.T) {
	for _, c := range []struct {
		name   string
		lost   func(*leaky) chan struct{}
		synced bool
	}{
		{"the reader is too slow", func(b *leaky) chan struct{} { return b.drops }, true},
		{"the connection is new", func(b *leaky) chan struct{} { return b.gaps }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
				w.chunk = 1
				us := w.join("us", "a", 2, 0)
				us.counters.UrgentAbove = 1
				eu := w.newNode("eu", "a", 1, 0)
				eu.via = func(bus meshsync.Bus) meshsync.Bus {
					b := &leaky{bus, make(chan meshsync.Message), make(chan struct{}, 1), make(chan struct{}, 1)}
					go b.run(w.t.Context(), c.lost(b))
					return b
				}
				eu.counters = newCounters(eu)
				eu.admit(200, 1) // a snapshot of eight seconds
				eu.start(eu.counters)
				sent, received := 0, eu.counter("regiond.sync.received", "kind", "usage")
				eu.bus.Spy(func(m meshsync.Message) {
					if u, err := wire.DecodeUsage(m.Data); err != nil || u.Chunk.Snapshot == 0 {
						sent++
					}
				})
				for range 1000 { // for ten seconds, each ten milliseconds
					us.counters.Admit(2, us.cell(1))
					sleep(10 * time.Millisecond)
				}
				eu.bus.Spy(nil)
				if n := eu.counter("regiond.sync.received", "kind", "usage") - received; n < 900 {
					t.Errorf("eu received %d messages, too few for the test", n)
				}
				// A second has ten ticks, which roll, two heartbeats of its own, and a heartbeat and a
				// request to catch up.
				if sent > 10*(10+2+2)+10 {
					t.Errorf("eu sent %d messages beside its snapshot in ten seconds", sent)
				}
				if p := us.knows(eu); p.Synced != c.synced {
					t.Errorf("us has eu's snapshot: %v", p.Synced)
				}
			}, "eu", "us")
		})
	}
}
