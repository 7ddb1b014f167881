package meshtest

import (
	"cmp"
	"slices"

	"github.com/regiond/regiond/sync/ledger"
)

// Cell is a counter that a ledger holds.
type Cell struct {
	ID                 uint64
	Limit              string
	WindowUS           int64
	Region             string
	Bucket, Generation int64
	Units              int64
}

// Cells is everything that still counts in a ledger, ours and others', in the one order it can
// have: ledgers that were given the same have the same.
func Cells(l *ledger.Ledger) []Cell {
	var cells []Cell
	for _, region := range l.Names() {
		for groups := range l.Live(region, 0, 1<<20) {
			for _, g := range groups {
				for i, id := range g.IDs {
					cells = append(cells, Cell{id, g.Limit, g.WindowUS, region, g.Bucket, g.Generations[i], g.Units[i]})
				}
			}
		}
	}
	slices.SortFunc(cells, Compare)
	return cells
}

// Compare is that order: by name.
func Compare(a, b Cell) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.WindowUS, b.WindowUS),
		cmp.Compare(a.Region, b.Region), cmp.Compare(a.Bucket, b.Bucket), cmp.Compare(a.Generation, b.Generation))
}
