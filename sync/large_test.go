package sync_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// What is too large for one message goes out in several: changes, the rolling snapshot, and
// the snapshot that is asked for.
func TestTooLargeGoesOutInPieces(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		eu.bus.Limit(1 << 10)
		for i := range 5_000 {
			eu.totals.Admit(int64(1+i), eu.cell(uint64(i)))
		}
		sleep(2*time.Second + oneWay)
		if got, want := us.totals.Of("eu"), eu.totals.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("of changes us knows %d of %d", len(got), len(want))
		}
		b := w.join("us", "b", 20, 0)
		sleep(15 * time.Second)
		if p := b.knows(eu); !p.Synced || !maps.Equal(b.totals.Of("eu"), eu.totals.Of("eu")) {
			t.Errorf("of a digest us knows %d of %d: %+v", len(b.totals.Of("eu")), len(eu.totals.Of("eu")), p)
		}
		eu.bus.Limit(400) // less than a slice of the rolling snapshot
		c := eu.cell(1)
		g := wire.Group{Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket}
		for i := range uint64(5_000) {
			g.IDs, g.Generations, g.Units = append(g.IDs, i), append(g.Generations, c.Generation), append(g.Units, 9_000)
		}
		if err := eu.totals.Fold("eu", eu.timeUS(), w.now(), []wire.Group{g}); err != nil {
			t.Fatal(err)
		}
		sleep(30*time.Second + oneWay)
		if got, want := us.totals.Of("eu"), eu.totals.Of("eu"); !maps.Equal(got, want) {
			t.Errorf("of what rolls by us knows %d of %d, or other units", len(got), len(want))
		}
		if n := eu.counter("regiond.sync.publish_errors", "", ""); n != 0 {
			t.Errorf("%d messages counted as not taken", n)
		}
		if n := eu.log.count("the bus takes no messages; peers do not hear this process"); n != 0 {
			t.Errorf("said %d times that the bus takes nothing", n)
		}
	}, "eu", "us", "ap")
}

// A total that is too large by itself is left out and counted; all others pass.
func TestTooLargeTotalIsLeftOut(t *testing.T) {
	bubble(t, func(w *world) {
		nodes := three(w)
		eu, us := nodes[0], nodes[1]
		eu.bus.Limit(250)
		large := eu.cell(50)
		large.Limit = strings.Repeat("x", 300)
		small := map[ledger.Cell]int64{}
		for i := range 100 {
			small[eu.cell(uint64(i))] = 3
			eu.totals.Admit(3, eu.cell(uint64(i)))
		}
		eu.totals.Admit(3, large)
		sleep(2*time.Second + oneWay)
		if got := us.totals.Of("eu"); !maps.Equal(got, small) {
			t.Errorf("of changes us knows %d of %d", len(got), len(small))
		}
		if n := eu.counter("regiond.sync.publish_errors", "", ""); n == 0 {
			t.Error("what was left out is not counted")
		}
		b := w.join("us", "b", 20, 0)
		sleep(5 * time.Second)
		if p := b.knows(eu); !p.Synced || !maps.Equal(b.totals.Of("eu"), small) {
			t.Errorf("of a digest us knows %d of %d: %+v", len(b.totals.Of("eu")), len(small), p)
		}
	}, "eu", "us", "ap")
}
