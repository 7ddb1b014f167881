package ledger_test

import (
	"slices"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// flatten gives the counters of a region in groups, and holds these to their form:
// columns of equal length, no group twice, ids in order, so many entries at most.
func flatten(t tester, region string, entries int, groups []wire.Group) []ledger.Cell {
	var cells []ledger.Cell
	seen := map[ledger.Cell]bool{}
	for _, g := range groups {
		name := ledger.Cell{Limit: g.Limit, WindowUS: g.WindowUS, BucketUS: g.BucketUS, Region: region, Bucket: g.Bucket}
		if seen[name] || len(g.IDs) == 0 || len(g.IDs) != len(g.Generations) || len(g.IDs) != len(g.Units) || !slices.IsSorted(g.IDs) {
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
		t.Fatalf("%d totals, at most %d were asked for", len(cells), entries)
	}
	slices.SortFunc(cells, compareCells)
	return cells
}
