package ledger_test

import (
	"slices"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// TestLiveHoldsNoLock: the ledger may be called while Live yields.
func TestLiveHoldsNoLock(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for i := range 1000 {
		s := pairLimit
		s.ID = hash(i)
		l.Record(&s, quota.Counter{Bucket: startUS / s.BucketUS, Generation: 1, Units: int64(i + 1)}, startUS)
	}
	n := 0
	for piece := range l.Live("eu-west", 64) {
		cells := flatten(t, "eu-west", 64, piece)
		for _, c := range cells {
			s := pairLimit
			s.ID = c.ID
			l.Estimates(c.ID, c.WindowUS, 0, nil)
			l.Record(&s, quota.Counter{Bucket: c.Bucket, Generation: 1, Units: c.Units + 1}, startUS)
		}
		n += len(cells)
	}
	if n != 1000 {
		t.Errorf("%d counters, want 1000", n)
	}
	for range l.Live("eu-west", 64) {
		break // and may stop
	}
}

// TestRollPassesAll: however small the pieces, all pass by in turn, once a round,
// with those of one series cut where it must be.
func TestRollPassesAll(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for i := range 500 {
		s := pairLimit
		s.ID = hash(i)
		for generation := range int64(1 + i%3) {
			l.Record(&s, quota.Counter{Bucket: startUS / s.BucketUS, Generation: 1 + generation, Units: 1}, startUS)
		}
	}
	want := l.Snapshot()
	for _, calls := range []int{1, 2, 7, 10_000} {
		var got []ledger.Cell
		for done := false; !done; {
			var groups []wire.Group
			groups, done = l.Roll(calls)
			got = append(got, flatten(t, "eu-west", max(64, (len(want)+calls-1)/calls), groups)...)
		}
		slices.SortFunc(got, compareCells)
		if !slices.Equal(got, want) {
			t.Errorf("in %d calls: %d counters pass by, want %d", calls, len(got), len(want))
		}
	}
}

// TestRollAmongOthers: where nearly all is of others, a Roll looks at a part of it,
// and still ours come by.
func TestRollAmongOthers(t *testing.T) {
	const known = 60_000
	l := crowd(t, known, &fakeClock{}, "us-east")
	own := []int{1, known / 2, known - 1}
	for _, i := range own {
		use(l, hash(i), 1, startUS)
	}
	var got []ledger.Cell
	for range 8 {
		got = append(got, roll(t, l)...)
	}
	slices.SortFunc(got, compareCells)
	if got = slices.Compact(got); len(got) != len(own) {
		t.Errorf("%d of %d pass by in eight pieces", len(got), len(own))
	}
}
