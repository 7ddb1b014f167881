package ledger_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/sync/ledger"
)

// A peer counts at most the limit, whatever it claims, and what it claims has faded one window
// later as if it had claimed no more.
func TestPeerCountsAtMostTheLimit(t *testing.T) {
	const most = 600
	var claimed int64
	clock := &fakeClock{}
	l := newLedger(t, clock, func(o *ledger.Options) {
		o.Most = func(string) int64 { return most }
		o.Excess = func(region, limit string, units int64) {
			if region != "us-east" || limit != pairLimit.Limit {
				t.Errorf("%s, %s", region, limit)
			}
			claimed += units
		}
	})
	estimate := func(at time.Duration) int64 {
		out := make([]int64, 8)
		l.Estimates(pairLimit.ID, pairLimit.WindowUS, pairLimit.BucketUS, most, at, out)
		return out[l.Region("us-east")]
	}
	length := pairLimit.BucketUS
	bucket := startUS / length
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, startUS, 500))
	if n := estimate(0); n != 500 || claimed != 0 {
		t.Errorf("an honest region counts %d, %d too many", n, claimed)
	}
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, startUS, 700))
	if n := estimate(0); n != most || claimed != 100 {
		t.Errorf("700 count as %d, %d too many", n, claimed)
	}
	for i := range int64(40) { // each of them as if the key had been lost and made again
		mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, startUS+i*1_000_000, 1_000_000))
	}
	if n := estimate(0); n != most || claimed != 40_000_000-most {
		t.Errorf("40 generations of a million count as %d, %d too many", n, claimed)
	}
	// In the next window the bucket fades, from the limit on.
	end := time.Duration((bucket+1)*length-startUS) * time.Microsecond
	half := end + time.Duration(length/2)*time.Microsecond
	if n := estimate(half); n != most/2 {
		t.Errorf("half a bucket after the end of theirs they count as %d, want %d", n, most/2)
	}
	if n := estimate(end + time.Duration(length)*time.Microsecond); n != 0 {
		t.Errorf("a window after the end %d are left", n)
	}
}
