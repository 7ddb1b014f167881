package sim

import (
	"testing"
	"time"
)

// TestGrowth: a log remembers when a counter grew, and takes nothing back.
func TestGrowth(t *testing.T) {
	log := growth{}.add(time.Second, 5).add(2*time.Second, 5).add(3*time.Second, 4).add(4*time.Second, 9)
	for _, row := range []struct {
		at        time.Duration
		by, since int64
	}{
		{time.Second - 1, 0, 9},
		{time.Second, 5, 4},
		{4*time.Second - 1, 5, 4},
		{4 * time.Second, 9, 0},
	} {
		if by, since := log.by(row.at), log.since(row.at); by != row.by || since != row.since {
			t.Errorf("by %v it is %d and grows by %d after that, want %d and %d", row.at, by, since, row.by, row.since)
		}
	}
	if len(log) != 2 || log.units() != 9 {
		t.Errorf("the log is %v, want two entries, the last of 9 units", log)
	}
}
