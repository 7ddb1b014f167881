package ledger_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/sync/ledger"
)

// TestOtherLengths: what a region counts in buckets and windows of other lengths, since a
// reload has not reached it or us, is added to what it counts in ours, and never counts
// for less than it could be in the window that is asked about.
func TestOtherLengths(t *testing.T) {
	minutes := pairLimit // in buckets of a minute, the first of which began ten seconds ago
	seconds := minutes
	seconds.BucketUS = 6_000_000 // startUS is 4 s into one
	brief := minutes
	brief.WindowUS, brief.BucketUS = 20_000_000, 20_000_000 // 10 s into one
	const second = int64(1_000_000)
	for _, row := range []struct {
		name    string
		told    []ledger.Series // 100 units of each
		window  int64
		counted map[time.Duration]int64
	}{
		{"one length", []ledger.Series{minutes}, 60 * second, map[time.Duration]int64{0: 100, 80 * time.Second: 50, 110 * time.Second: 0}},
		{"other buckets", []ledger.Series{minutes, seconds}, 60 * second, map[time.Duration]int64{0: 200, 50 * time.Second: 200, 62 * time.Second: 80}},
		{"a shorter window is asked about", []ledger.Series{minutes}, 10 * second, map[time.Duration]int64{
			0: 100, 59_999 * time.Millisecond: 100, 60 * time.Second: 0,
		}},
		{"a longer window is asked about", []ledger.Series{brief}, 60 * second, map[time.Duration]int64{0: 100, 69_999 * time.Millisecond: 100, 70 * time.Second: 0}},
		{"both", []ledger.Series{brief, minutes}, 60 * second, map[time.Duration]int64{0: 200, 30 * time.Second: 200}},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := newLedger(t, &fakeClock{}, nil)
			for _, s := range row.told {
				mustFold(t, l, "us-east", startUS, 0, one(s, startUS/s.BucketUS, 1, 100))
			}
			for at, want := range row.counted {
				out := make([]int64, 2)
				if l.Estimates(pairLimit.ID, row.window, at, out); out[1] != want {
					t.Errorf("at %v: %d, want %d", at, out[1], want)
				}
			}
		})
	}
}
