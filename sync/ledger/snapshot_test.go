package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
)

// TestLiveHoldsNoLock: the ledger may be called while Live yields.
func TestLiveHoldsNoLock(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for i := range 1000 {
		s := pairLimit
		s.ID = hash(i)
		l.Record(&s, quota.Counter{Bucket: startUS / s.WindowUS, Generation: 1, Units: int64(i + 1)}, quota.Gauge{}, startUS)
	}
	n := 0
	for piece := range l.Live("eu-west", 0, 64) {
		cells := flatten(t, "eu-west", 64, piece)
		for _, c := range cells {
			s := pairLimit
			s.ID = c.ID
			l.Estimates(c.ID, c.WindowUS, quota.MaxCounter, 0, nil)
			l.Record(&s, quota.Counter{Bucket: c.Bucket, Generation: 1, Units: c.Units + 1}, quota.Gauge{}, startUS)
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
			if err := newcomer.FoldWhole("us-east", storeUS(), clock.now(), one(pairLimit, bucket, startUS, units)); err != nil {
				t.Fatal(err)
			}
		}
		for groups := range author.Live("us-east", 0, 64) {
			if err := newcomer.FoldWhole("us-east", storeUS(), clock.now(), groups); err != nil {
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
