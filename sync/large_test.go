package sync_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// What is too large for one message is published in several: changes, the rolling snapshot,
// and a snapshot.
func TestTooLargeIsDivided(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		eu.bus.Limit(1 << 10)
		for i := range 5_000 {
			eu.counters.Admit(int64(1+i), eu.cell(uint64(i)))
		}
		sleep(2*time.Second + oneWay)
		if got, want := us.counters.Of("eu"), eu.counters.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("of changes us has %d of %d", len(got), len(want))
		}
		b := w.join("us", "b", 20, 0)
		sleep(15 * time.Second)
		if p := b.knows(eu); !p.Synced || !maps.Equal(b.counters.Of("eu"), eu.counters.Of("eu")) {
			t.Errorf("of a snapshot us/b has %d of %d: %+v", len(b.counters.Of("eu")), len(eu.counters.Of("eu")), p)
		}
		eu.bus.Limit(400) // less than a slice of the rolling snapshot
		c := eu.cell(1)
		g := wire.Group{Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket}
		for i := range uint64(5_000) {
			g.IDs, g.Generations, g.Units = append(g.IDs, i), append(g.Generations, c.Generation), append(g.Units, 9_000)
		}
		if err := eu.counters.Fold("eu", eu.timeUS(), w.now(), []wire.Group{g}); err != nil {
			t.Fatal(err)
		}
		sleep(30*time.Second + oneWay)
		if got, want := us.counters.Of("eu"), eu.counters.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("of the rolling snapshot us has %d of %d, or other units", len(got), len(want))
		}
		if n := eu.counter("regiond.sync.publish_errors", "", ""); n != 0 {
			t.Errorf("%d messages counted as refused", n)
		}
		if n := eu.log.count("the bus takes no messages; peers receive nothing from this process"); n != 0 {
			t.Errorf("logged %d times that the bus takes no messages", n)
		}
	})
}

// A counter that is too large by itself is dropped and counted; all others are published.
func TestTooLargeCounterIsDropped(t *testing.T) {
	meet(t, func(w *world, eu, us, _ *node) {
		eu.bus.Limit(250)
		large := eu.cell(50)
		large.Limit = strings.Repeat("x", 300)
		small := map[ledger.Cell]int64{}
		for i := range 100 {
			small[eu.cell(uint64(i))] = 3
			eu.counters.Admit(3, eu.cell(uint64(i)))
		}
		eu.counters.Admit(3, large)
		sleep(2*time.Second + oneWay)
		if got := us.counters.Of("eu"); !maps.Equal(got, small) {
			t.Errorf("of changes us has %d of %d", len(got), len(small))
		}
		if n := eu.counter("regiond.sync.publish_errors", "", ""); n == 0 {
			t.Error("what was dropped is not counted")
		}
		b := w.join("us", "b", 20, 0)
		sleep(5 * time.Second)
		if p := b.knows(eu); !p.Synced || !maps.Equal(b.counters.Of("eu"), small) {
			t.Errorf("of a snapshot us/b has %d of %d: %+v", len(b.counters.Of("eu")), len(small), p)
		}
	})
}
