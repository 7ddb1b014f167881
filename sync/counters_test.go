package sync_test

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// counters is a ledger whose own counters are admitted by name.
type counters struct {
	*ledger.Ledger
	// UrgentAbove is how many unpublished units of a counter are urgent; at least 1.
	UrgentAbove int64
	n           *node
	mu          sync.Mutex
	units       map[meshtest.Cell]int64
}

// neverUrgent is more than any test admits.
const neverUrgent = quota.MaxUnits / 1000

func newCounters(n *node) *counters {
	c := &counters{UrgentAbove: neverUrgent, n: n, units: map[meshtest.Cell]int64{}}
	var err error
	c.Ledger, err = ledger.New(ledger.Options{
		Self: n.self.Region, Boot: startUS + n.self.Boot, Now: n.w.now,
		Limit:   func(string) (int64, bool) { return 600, true },
		Regions: func() int { return len(n.w.regions) },
		Most:    func(string, int64) int64 { return math.MaxInt64 },
	})
	if err != nil {
		n.w.t.Fatal(err)
	}
	return c
}

// Admit adds units to each of some counters of our own, and has our store hold them.
func (c *counters) Admit(units int64, cells ...meshtest.Cell) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cell := range cells {
		c.units[cell] += units
		// A change is urgent above 1 % of the limit divided by the number of peers.
		s := ledger.Series{
			ID: cell.ID, Limit: cell.Limit, WindowUS: cell.WindowUS,
			Units: c.UrgentAbove * 100 * int64(len(c.n.w.regions)-1),
		}
		c.Record(&s, quota.Counter{Bucket: cell.Bucket, Generation: cell.Generation, Units: c.units[cell]}, quota.Gauge{}, c.n.timeUS())
	}
}

// Live gives pieces of the world's size.
func (c *counters) Live(origin string, since uint64, entries int) iter.Seq[[]wire.Group] {
	return c.Ledger.Live(origin, since, cmp.Or(c.n.w.chunk, entries))
}

// Checks are those that the test sampled.
func (c *counters) Checks() []trace.SpanContext {
	if c.n.checks == nil {
		return c.Ledger.Checks()
	}
	return c.n.checks()
}

// Resets are those that the test made.
func (c *counters) Resets() map[string][]wire.Cut {
	if c.n.resets == nil {
		return c.Ledger.Resets()
	}
	return c.n.resets
}

// Snapshot is all that is held, by name.
func (c *counters) Snapshot() map[meshtest.Cell]int64 {
	held := map[meshtest.Cell]int64{}
	for _, cell := range meshtest.Cells(c.Ledger) {
		units := cell.Units
		cell.Units = 0
		held[cell] = units
	}
	return held
}

// Of is what is held of a region.
func (c *counters) Of(region string) map[meshtest.Cell]int64 {
	held := c.Snapshot()
	maps.DeleteFunc(held, func(cell meshtest.Cell, _ int64) bool { return cell.Region != region })
	return held
}
