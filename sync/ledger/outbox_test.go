package ledger_test

import (
	"fmt"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
)

// isUrgent reports whether there was a signal, and takes it.
func isUrgent(l *ledger.Ledger) bool {
	select {
	case <-l.Urgent():
		return true
	default:
		return false
	}
}

// TestUrgentEdges: urgent is what exceeds max(1, L/(100·(R−1))), not what equals it.
func TestUrgentEdges(t *testing.T) {
	for _, c := range []struct {
		limit       int64
		regions     int
		calm, hurry int64
	}{
		{1, 2, 1, 2},
		{100, 2, 1, 2},
		{199, 2, 1, 2},
		{200, 2, 2, 3},
		{600, 2, 6, 7},
		{600, 3, 3, 4},
		{601, 3, 3, 4},
		{800, 5, 2, 3},
		{600, 100, 1, 2},
		{quota.MaxUnits, 2, quota.MaxUnits / 100, quota.MaxUnits/100 + 1},
		{quota.MaxUnits, 1, quota.MaxCounter, 0}, // no peers
	} {
		t.Run(fmt.Sprint(c.limit, c.regions), func(t *testing.T) {
			l := newLedger(t, &fakeClock{}, func(o *ledger.Options) { o.Regions = func() int { return c.regions } })
			s := pairLimit
			s.Units = c.limit
			l.Record(&s, quota.Counter{Bucket: startUS / s.WindowUS, Generation: 1, Units: c.calm}, quota.Gauge{}, startUS)
			if isUrgent(l) || l.Take(10, false, 1) != nil {
				t.Errorf("%d unpublished of %d are urgent", c.calm, c.limit)
			}
			if c.hurry == 0 {
				if l.Take(10, true, 1) != nil || l.Unsent() != 0 {
					t.Error("something to publish without peers")
				}
				return
			}
			l.Record(&s, quota.Counter{Bucket: startUS / s.WindowUS, Generation: 1, Units: c.hurry}, quota.Gauge{}, startUS)
			if !isUrgent(l) || len(l.Take(10, false, 1)) != 1 {
				t.Errorf("%d unpublished of %d are not urgent", c.hurry, c.limit)
			}
			if l.Take(10, true, 1) != nil || isUrgent(l) {
				t.Error("taken twice")
			}
		})
	}
}
