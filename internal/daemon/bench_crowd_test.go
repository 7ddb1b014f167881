//go:build unix

package daemon

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/global"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// benchCluster gives the key that partitions are hashed with.
const benchCluster = "bench"

// benchLimit is the one limit of the benchmarks' policy, global unless told otherwise.
func benchLimit() quota.Limit {
	return quota.Limit{Name: "sustained", Units: 600, Window: time.Minute, Scope: quota.ScopeGlobal}
}

// benchTenant is an id of 12 bytes, as the goals are stated for.
func benchTenant(i int) string { return fmt.Sprintf("t%011d", i) }

// benchCrowd is partitions of one region of which so many change in each tick, one unit
// each: none is urgent, and all change once before any changes again.
type benchCrowd struct {
	First, Count int // the tenants from First on, so many
	Changed      int // in a tick
	Buckets      int // in how many each is used already when it begins
}

// benchCrowded is a crowd in a ledger.
type benchCrowded struct {
	benchCrowd
	ledger *ledger.Ledger
	limit  quota.Limit
	shape  *limiter.Shape
	key    wire.Key
	timeUS func() int64
	began  int64    // by that clock
	ids    []uint64 // of all, when they change
	done   int      // changes so far
}

func newBenchCrowded(c benchCrowd, l *ledger.Ledger, timeUS func() int64) *benchCrowded {
	cd := &benchCrowded{benchCrowd: c, ledger: l, limit: benchLimit(), key: wire.NewKey(nil, benchCluster), timeUS: timeUS, began: timeUS()}
	cd.shape = limiter.NewShape([]*quota.Limit{&cd.limit})
	if c.Changed > 0 {
		cd.ids = make([]uint64, c.Count)
		for i := range cd.ids {
			cd.ids[i] = global.PartitionID(cd.key, cd.total(c.First+i))
		}
	}
	return cd
}

// total is the key of a tenant's usage total, as a regiond makes it.
func (c *benchCrowded) total(tenant int) string {
	prefix := string(quota.AppendPrefix(nil, benchTenant(tenant)))
	return c.shape.Totals(prefix, "standard", nil)[0]
}

func (c *benchCrowded) id(tenant int) uint64 {
	if c.ids == nil {
		return global.PartitionID(c.key, c.total(tenant))
	}
	return c.ids[tenant-c.First]
}

// uses has a tenant's total in a bucket be so many units.
func (c *benchCrowded) uses(tenant int, units, storeUS int64) {
	s := ledger.Series{
		ID: c.id(tenant), Limit: "standard." + c.limit.Name, Units: c.limit.Units,
		WindowUS: c.limit.WindowUS(), BucketUS: c.limit.BucketUS(),
	}
	c.ledger.Record(&s, quota.Counter{Bucket: storeUS / s.BucketUS, Generation: c.epoch(tenant), Units: units}, storeUS)
}

// epoch is when a tenant's key was made: keys are as old as the traffic that keeps
// them alive, here up to a day.
func (c *benchCrowded) epoch(tenant int) int64 {
	return c.began - int64(scattered(tenant)%uint64((24*time.Hour).Microseconds()))
}

// told has the ledger learn of another region what fill is of ours.
func (c *benchCrowded) told(region string, at time.Duration) error {
	now := c.timeUS()
	g := wire.Group{Limit: "standard." + c.limit.Name, WindowUS: c.limit.WindowUS(), BucketUS: c.limit.BucketUS()}
	for back := range int64(c.Buckets) {
		g.Bucket = now/g.BucketUS - back
		for first := 0; first < c.Count; first += wire.MaxEntries {
			g.IDs, g.Generations, g.Units = g.IDs[:0], g.Generations[:0], g.Units[:0]
			for i := c.First + first; i < c.First+min(first+wire.MaxEntries, c.Count); i++ {
				g.IDs = append(g.IDs, c.id(i))
				g.Generations, g.Units = append(g.Generations, c.epoch(i)), append(g.Units, benchUnits(i, 0))
			}
			if err := c.ledger.Fold(region, now, at, []wire.Group{g}); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchUnits is what a tenant has used in a bucket after so many changes.
func benchUnits(tenant, changes int) int64 {
	return 1 + int64(scattered(tenant)>>32%100) + int64(changes)
}

// scattered is a number that looks like any other.
func scattered(i int) uint64 {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>27
}

// fill is what they used before it begins, and what others were told of long ago:
// who joins later learns of it by a digest.
func (c *benchCrowded) fill() {
	now := c.timeUS()
	for back := int64(c.Buckets) - 1; back >= 0; back-- {
		for i := range c.Count {
			c.uses(c.First+i, benchUnits(c.First+i, 0), now-back*c.limit.BucketUS())
		}
	}
	for len(c.ledger.Take(1<<20, true)) > 0 {
	}
}

// stride is coprime with the counts used, so that neighbours do not change together.
const benchStride = 97

// change has so many more of them change.
func (c *benchCrowded) change(count int) {
	now := c.timeUS()
	for range count {
		tenant := c.First + c.done*benchStride%c.Count
		c.uses(tenant, benchUnits(tenant, 1+c.done/c.Count), now)
		c.done++
	}
}

// smear is how often some of a tick's changes come: requests are not bundled.
const smear = 10 * time.Millisecond

// run has them change until ctx ends, however late it gets to it.
func (c *benchCrowded) run(ctx context.Context) {
	often := time.NewTicker(smear)
	defer often.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-often.C:
			due := int(time.Since(began) * time.Duration(c.Changed) / meshsync.TickEvery)
			c.change(due - c.done)
		}
	}
}

// TestBenchCrowd: a tick has as many changes as it should, of that many partitions,
// none is urgent, and all partitions change once before any does again.
func TestBenchCrowd(t *testing.T) {
	us := time.Now().UnixMicro()
	l, err := ledger.New(ledger.Options{
		Self: benchSelf, Boot: us, Now: func() time.Duration { return 0 },
		Limit: func(string) (int64, bool) { return 600, true }, Regions: func() int { return 3 },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newBenchCrowded(benchCrowd{First: 7, Count: 1_000, Changed: 50, Buckets: 2}, l, func() int64 { return us })
	c.fill()
	<-l.Urgent() // what it began with was
	for round := 1; round <= 2; round++ {
		units := map[uint64]int64{}
		for range c.Count / c.Changed {
			c.change(c.Changed)
			if len(l.Urgent()) > 0 {
				t.Error("a change of one unit is urgent")
			}
			taken := 0
			for _, g := range l.Take(1<<20, true) {
				taken += len(g.IDs)
				for i, id := range g.IDs {
					units[id] = g.Units[i]
				}
			}
			if taken != c.Changed {
				t.Fatalf("%d changes in a tick of %d", taken, c.Changed)
			}
		}
		for i := c.First; i < c.First+c.Count; i++ {
			if got := units[c.id(i)]; got != benchUnits(i, round) {
				t.Fatalf("tenant %d has used %d in round %d, want %d", i, got, round, benchUnits(i, round))
			}
		}
	}
}
