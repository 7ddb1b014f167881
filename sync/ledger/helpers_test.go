package ledger_test

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// startUS is a time on every region's store clock when the tests begin: ten seconds
// into a minute.
const startUS = int64(1_790_000_050_000_000)

// fakeClock is a process's monotonic clock, moved by hand.
type fakeClock struct{ us atomic.Int64 }

func (c *fakeClock) now() time.Duration { return time.Duration(c.us.Load()) * time.Microsecond }

func (c *fakeClock) advance(d time.Duration) { c.us.Add(d.Microseconds()) }

// tester is a test, by rapid or not.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// newLedger is a ledger of eu-west among two regions, where every L is 600.
func newLedger(tb tester, clock *fakeClock, change func(*ledger.Options)) *ledger.Ledger {
	tb.Helper()
	o := ledger.Options{
		Self: "eu-west", Boot: startUS, Now: clock.now,
		Limit:   func(string) (int64, bool) { return 600, true },
		Regions: func() int { return 2 },
		Most:    func(string, int64) int64 { return math.MaxInt64 },
	}
	if change != nil {
		change(&o)
	}
	l, err := ledger.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// sweep visits every series once.
func sweep(l *ledger.Ledger) {
	for range 64 {
		l.Sweep()
	}
}

// flatten gives the counters of a region in groups, and holds these to their form:
// columns of equal length, no group twice, ids in order, so many entries at most.
func flatten(t tester, region string, entries int, groups []wire.Group) []meshtest.Cell {
	var cells []meshtest.Cell
	seen := map[meshtest.Cell]bool{}
	for _, g := range groups {
		name := meshtest.Cell{Limit: g.Limit, WindowUS: g.WindowUS, Region: region, Bucket: g.Bucket}
		if seen[name] || len(g.IDs) == 0 || len(g.IDs) != len(g.Generations) || len(g.IDs) != len(g.Units) || !slices.IsSorted(g.Generations) {
			t.Fatalf("group %+v: twice, empty, uneven or out of order", g)
		}
		seen[name] = true
		for i, id := range g.IDs {
			c := name
			c.ID, c.Generation, c.Units = id, g.Generations[i], g.Units[i]
			cells = append(cells, c)
		}
	}
	if len(cells) > entries {
		t.Fatalf("%d counters, at most %d were asked for", len(cells), entries)
	}
	slices.SortFunc(cells, meshtest.Compare)
	return cells
}
