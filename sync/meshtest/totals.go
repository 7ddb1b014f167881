package meshtest

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/sync/wire"
)

// Cell names one total.
type Cell struct {
	Region   string
	Limit    string
	WindowUS int64
	BucketUS int64
	Bucket   int64
	ID       uint64
	Epoch    int64
}

// Totals keeps totals in maps and never frees any: the dumb twin of the ledger, a
// meshsync.Counters. Safe for concurrent use.
type Totals struct {
	// UrgentAbove is how many unpublished units of a cell are urgent.
	UrgentAbove int64

	self   string
	now    func() time.Duration
	urgent chan struct{}

	mu     sync.Mutex
	units  map[Cell]int64
	taken  map[Cell]int64         // of our own, when last taken
	since  map[Cell]time.Duration // of our own that changed
	clocks map[string]int64       // store clocks minus ours, µs, as told last
	own    []Cell                 // in the order in which they were first known
	rolled int                    // index into own
}

// NewTotals returns those of a process of region self. Nothing is urgent until
// UrgentAbove is set.
func NewTotals(self string, now func() time.Duration) *Totals {
	return &Totals{
		UrgentAbove: 1 << 60, self: self, now: now, urgent: make(chan struct{}, 1),
		units: map[Cell]int64{}, taken: map[Cell]int64{}, since: map[Cell]time.Duration{}, clocks: map[string]int64{},
	}
}

// Admit adds units to each of some totals of our own, at one go. The cells' Region
// is filled in.
func (t *Totals) Admit(units int64, cells ...Cell) {
	t.mu.Lock()
	defer t.mu.Unlock()
	urgent := false
	for _, c := range cells {
		c.Region = t.self
		t.raise(c, t.units[c]+units)
		if _, waits := t.since[c]; !waits {
			t.since[c] = t.now()
		}
		urgent = urgent || t.units[c]-t.taken[c] > t.UrgentAbove
	}
	if urgent {
		t.signal()
	}
}

// raise merges a total by maximum. t.mu is held.
func (t *Totals) raise(c Cell, units int64) {
	if _, known := t.units[c]; !known && c.Region == t.self {
		t.own = append(t.own, c)
	}
	t.units[c] = max(t.units[c], units)
}

func (t *Totals) signal() {
	select {
	case t.urgent <- struct{}{}:
	default:
	}
}

// Fold implements meshsync.Counters. As the ledger does it refuses what begins more
// than one bucket after the author's clock.
func (t *Totals) Fold(author string, clockUS int64, at time.Duration, groups []wire.Group) error {
	for _, g := range groups {
		if g.Bucket*g.BucketUS > clockUS+g.BucketUS {
			return future(fmt.Sprintf("bucket %d lies ahead of %s", g.Bucket, author))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clocks[author] = clockUS - at.Microseconds()
	for _, g := range groups {
		for i, id := range g.IDs {
			c := Cell{author, g.Limit, g.WindowUS, g.BucketUS, g.Bucket, id, g.Generations[i]}
			t.raise(c, g.Units[i])
			if author == t.self {
				t.taken[c] = max(t.taken[c], g.Units[i])
			}
		}
	}
	return nil
}

// future is a refusal with a reason, as the ledger's.
type future string

func (f future) Error() string { return string(f) }

// Reason implements what the mesh asks of a refusal.
func (f future) Reason() string { return "future" }

// ClockUS implements meshsync.Counters.
func (t *Totals) ClockUS(region string, at time.Duration) (us int64, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, known := t.clocks[region]
	return d + at.Microseconds(), known
}

// Urgent implements meshsync.Counters.
func (t *Totals) Urgent() <-chan struct{} { return t.urgent }

// Take implements meshsync.Counters.
func (t *Totals) Take(entries int, all bool) []wire.Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	var cells []Cell
	for c := range t.since {
		if all || t.units[c]-t.taken[c] > t.UrgentAbove {
			cells = append(cells, c)
		}
	}
	slices.SortFunc(cells, compareCell)
	cells = cells[:min(len(cells), entries)]
	for _, c := range cells {
		t.taken[c] = t.units[c]
		delete(t.since, c)
	}
	return t.groups(cells)
}

// Unsent implements meshsync.Counters.
func (t *Totals) Unsent() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest time.Duration
	for _, since := range t.since {
		oldest = max(oldest, t.now()-since)
	}
	return oldest
}

// Live implements meshsync.Counters.
func (t *Totals) Live(of string, entries int) iter.Seq[[]wire.Group] {
	return func(yield func([]wire.Group) bool) {
		for cells := range slices.Chunk(t.cells(of), entries) {
			t.mu.Lock()
			groups := t.groups(cells)
			t.mu.Unlock()
			if !yield(groups) {
				return
			}
		}
	}
}

// Roll implements meshsync.Counters.
func (t *Totals) Roll(calls int) (_ []wire.Group, roundDone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := min(max(len(t.own)/calls, 64), 2048)
	cells := t.own[t.rolled:min(len(t.own), t.rolled+entries)]
	if t.rolled += len(cells); t.rolled >= len(t.own) {
		t.rolled, roundDone = 0, true
	}
	return t.groups(cells), roundDone
}

// Sweep implements meshsync.Counters.
func (t *Totals) Sweep() {}

// Full implements meshsync.Counters.
func (t *Totals) Full() bool { return false }

// Snapshot returns a copy of all totals, ours and the others'.
func (t *Totals) Snapshot() map[Cell]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.units)
}

// Of returns a copy of a region's totals.
func (t *Totals) Of(region string) map[Cell]int64 {
	all := t.Snapshot()
	maps.DeleteFunc(all, func(c Cell, _ int64) bool { return c.Region != region })
	return all
}

func (t *Totals) cells(of string) []Cell {
	return slices.SortedFunc(maps.Keys(t.Of(of)), compareCell)
}

// groups makes one of each cell: simple, and legal. t.mu is held.
func (t *Totals) groups(cells []Cell) []wire.Group {
	groups := make([]wire.Group, len(cells))
	for i, c := range cells {
		groups[i] = wire.Group{
			Limit: c.Limit, WindowUS: c.WindowUS, BucketUS: c.BucketUS, Bucket: c.Bucket,
			IDs: []uint64{c.ID}, Generations: []int64{c.Epoch}, Units: []int64{t.units[c]},
		}
	}
	return groups
}

func compareCell(a, b Cell) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Limit, b.Limit),
		cmp.Compare(a.BucketUS, b.BucketUS), cmp.Compare(a.Bucket, b.Bucket),
		cmp.Compare(a.ID, b.ID), cmp.Compare(a.Epoch, b.Epoch))
}
