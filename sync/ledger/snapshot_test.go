package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
)

// TestSnapshotBringsGrowth: a process that starts late, and hears of a counter first by a message that
// follows others, has of a snapshot how the counter grew: the estimate of one that heard all.
func TestSnapshotBringsGrowth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := &fakeClock{}
		clock.advance(50 * time.Second) // to the beginning of a bucket
		storeUS := func() int64 { return startUS + clock.us.Load() }
		bucket := storeUS() / pairLimit.WindowUS
		author := newLedger(t, clock, func(o *ledger.Options) { o.Self = "us-east" })
		witness, newcomer := newLedger(t, clock, nil), newLedger(t, clock, nil)
		units := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "messages") {
			clock.advance(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			if storeUS()/pairLimit.WindowUS != bucket {
				break
			}
			units += rapid.SampledFrom([]int64{1, 7, 500}).Draw(t, "units")
			author.Record(&pairLimit, quota.Counter{Bucket: bucket, Generation: startUS, Units: units}, quota.Gauge{}, storeUS())
			mustFold(t, witness, "us-east", storeUS(), clock.now(), one(pairLimit, bucket, startUS, units))
		}
		if rapid.Bool().Draw(t, "message first") {
			if err := newcomer.Fold("us-east", storeUS(), clock.now(), one(pairLimit, bucket, startUS, units), true); err != nil {
				t.Fatal(err)
			}
		}
		for groups := range author.Live("us-east", 0, 64) {
			if err := newcomer.Fold("us-east", storeUS(), clock.now(), groups, true); err != nil {
				t.Fatal(err)
			}
		}
		for range 150 {
			clock.advance(time.Second)
			want, got := estimate(witness, pairLimit.ID, "us-east", clock.now()), estimate(newcomer, pairLimit.ID, "us-east", clock.now())
			if got != want {
				t.Fatalf("%v: the newcomer counts %d, the witness %d of %d", clock.now(), got, want, units)
			}
		}
	})
}
