package ledger_test

import (
	"testing"

	"github.com/regiond/regiond/quota"
)

// TestLiveHoldsNoLock: the ledger may be called while Live yields.
func TestLiveHoldsNoLock(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for i := range 1000 {
		s := pairLimit
		s.ID = hash(i)
		l.Record(&s, quota.Counter{Bucket: startUS / s.WindowUS, Generation: 1, Units: int64(i + 1)}, startUS)
	}
	n := 0
	for piece := range l.Live("eu-west", 0, 64) {
		cells := flatten(t, "eu-west", 64, piece)
		for _, c := range cells {
			s := pairLimit
			s.ID = c.ID
			l.Estimates(c.ID, c.WindowUS, quota.MaxCounter, 0, nil)
			l.Record(&s, quota.Counter{Bucket: c.Bucket, Generation: 1, Units: c.Units + 1}, startUS)
		}
		n += len(cells)
	}
	if n != 1000 {
		t.Errorf("%d counters, want 1000", n)
	}
	for range l.Live("eu-west", 0, 64) {
		break // and may stop
	}
}

// TestLiveSince: of our own come those that changed in later messages.
func TestLiveSince(t *testing.T) {
	l, last := newLedger(t, &fakeClock{}, nil), map[uint64]int{}
	for number := 1; number <= 9; number++ {
		for i := range number {
			use(l, hash(i), int64(number), startUS)
		}
		for _, c := range flatten(t, "eu-west", 3, l.Take(3, true, uint64(number))) {
			last[c.ID] = number
		}
	}
	for since := range 10 {
		want, got := 0, 0
		for _, number := range last {
			if number > since {
				want++
			}
		}
		if since == 0 {
			want = 9 // the unpublished too
		}
		for groups := range l.Live("eu-west", uint64(since), 2) {
			got += len(flatten(t, "eu-west", 2, groups))
		}
		if got != want {
			t.Errorf("since %d: %d counters, want %d", since, got, want)
		}
	}
}
