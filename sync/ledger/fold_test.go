package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// odd has a window of which a minute is no multiple.
var odd = ledger.Series{ID: 7, Limit: "a.odd", Units: 1000, WindowUS: 7_000_000}

// one is a message of a single counter.
func one(s ledger.Series, bucket, generation, units int64) []wire.Group {
	return []wire.Group{{
		Limit: s.Limit, WindowUS: s.WindowUS, Bucket: bucket,
		IDs: []uint64{s.ID}, Generations: []int64{generation}, Units: []int64{units},
	}}
}

func mustFold(tb tester, l *ledger.Ledger, author string, clockUS int64, at time.Duration, groups []wire.Group) {
	tb.Helper()
	if err := l.Fold(author, clockUS, at, groups, false); err != nil {
		tb.Fatal(err)
	}
}

// estimate is the estimated usage of one peer in a window as long as pairLimit's.
func estimate(l *ledger.Ledger, id uint64, region string, at time.Duration) int64 {
	out := make([]int64, 8)
	l.Estimates(id, pairLimit.WindowUS, quota.MaxCounter, at, out)
	return out[l.Region(region)]
}

func reasonOf(err error) string {
	var refused *wire.Error
	if errors.As(err, &refused) {
		return string(refused.Reason)
	}
	return ""
}

// TestClockOutOfRange: nothing of a message by such a clock is taken, not even the name of its author.
func TestClockOutOfRange(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	for _, clockUS := range []int64{-1, 1 << 52, math.MaxInt64, math.MinInt64} {
		if got := reasonOf(l.Fold("us-east", clockUS, 0, one(odd, startUS/odd.WindowUS, startUS, 5), false)); got != "range" {
			t.Errorf("clock at %d: reason %q", clockUS, got)
		}
		if l.Series() != 0 || len(l.Names()) != 1 {
			t.Errorf("clock at %d: something was taken: %v", clockUS, meshtest.Cells(l))
		}
	}
}

// TestLargest: the largest numbers that the wire carries come out as they went in.
func TestLargest(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	shortest := ledger.Series{ID: math.MaxUint64, Limit: "a.shortest", WindowUS: 1000}
	for i, r := range regionNames(126) {
		if got := l.Region(r); got != i+1 {
			t.Fatalf("region %s has index %d", r, got)
		}
	}
	clockUS := int64(1)<<52 - 1
	for _, author := range []string{"eu-west", "last"} {
		mustFold(t, l, author, clockUS, 0, one(shortest, clockUS/1000, 1<<52, quota.MaxCounter))
	}
	for _, c := range meshtest.Cells(l) {
		if c.Bucket != clockUS/1000 || c.Generation != 1<<52 || c.Units != quota.MaxCounter || c.ID != math.MaxUint64 {
			t.Errorf("held %+v", c)
		}
	}
	if len(meshtest.Cells(l)) != 2 || l.Region("last") != 127 || l.Region("another") != -1 {
		t.Errorf("held %v, last region has index %d", meshtest.Cells(l), l.Region("last"))
	}
	if got := reasonOf(l.Fold("another", clockUS, 0, one(shortest, clockUS/1000, 1, 1), false)); got != "regions" {
		t.Errorf("the 129th region: reason %q", got)
	}
	for range l.Live("another", 0, 10) {
		t.Error("counters of a region that is not known")
	}
}

func regionNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("region-%d", i))
	}
	return names
}
