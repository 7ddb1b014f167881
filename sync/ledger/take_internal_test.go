package ledger

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestTakeIsOfTheSeriesThatWasChosen: between choosing and taking a series may end, and
// its place go to another of the same id that is counted in other lengths. Its totals are
// not published under the lengths of the first.
func TestTakeIsOfTheSeriesThatWasChosen(t *testing.T) {
	const startUS = int64(1_790_000_050_000_000)
	now := time.Duration(0)
	l, err := New(Options{
		Self: "eu-west", Boot: startUS, Now: func() time.Duration { return now },
		Limit:   func(string) (int64, bool) { return 600, true },
		Regions: func() int { return 2 },
	})
	if err != nil {
		t.Fatal(err)
	}
	admit := func(lengthUS int64) {
		s := Series{ID: 7, Limit: "a.pair", Units: 600, WindowUS: lengthUS, BucketUS: lengthUS}
		us := startUS + now.Microseconds()
		l.Record(&s, quota.Counter{Bucket: us / lengthUS, Generation: us, Units: 5}, us)
	}
	admit(1_000_000)
	chosen, _, _ := l.candidates(10, true, l.nowUS())
	if len(chosen) != 1 {
		t.Fatalf("%d series were chosen, want 1", len(chosen))
	}
	now = 3 * time.Second
	for range shardCount {
		l.Sweep()
	}
	admit(60_000_000)
	if l.shard(7).owns.at(chosen[0].own).state == idle {
		t.Fatal("the place was not given to the other series, so there is nothing to see")
	}
	if out, whole := l.takeFrom(&chosen[0], 10, nil, l.nowUS()); len(out) != 0 || !whole {
		t.Errorf("of the series that ended %d totals were taken (all: %v), want none", len(out), whole)
	}
	groups := l.Take(10, true)
	if len(groups) != 1 || groups[0].BucketUS != 60_000_000 {
		t.Errorf("the other series is published as %+v, want one group in buckets of a minute", groups)
	}
}
