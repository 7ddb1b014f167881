package ledger_test

import (
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meshtest"
)

// pairLimit is the usual limit: 600 a minute, in buckets of a minute.
var pairLimit = ledger.Series{ID: 7, Limit: "a.pair", Units: 600, WindowUS: 60_000_000}

func record(l *ledger.Ledger, generation, units, storeUS int64) {
	l.Record(&pairLimit, quota.Counter{Bucket: startUS / pairLimit.WindowUS, Generation: generation, Units: units}, quota.Gauge{}, storeUS)
}

// TestOwnNonsense: what cannot be a counter changes nothing.
func TestOwnNonsense(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	bad := pairLimit
	bad.WindowUS = 0
	good := quota.Counter{Bucket: startUS / pairLimit.WindowUS, Generation: 1, Units: 1}
	l.Record(&bad, good, quota.Gauge{}, startUS)
	l.Local(&bad, 1, startUS)
	l.Local(&pairLimit, 0, startUS)
	l.Local(&pairLimit, -5, startUS)
	l.Record(&pairLimit, good, quota.Gauge{}, -1)
	l.Record(&pairLimit, good, quota.Gauge{}, 1<<52)
	for _, t := range []quota.Counter{
		{Bucket: good.Bucket, Generation: -1, Units: 1},
		{Bucket: good.Bucket, Generation: 1<<52 + 1, Units: 1},
		{Bucket: good.Bucket, Generation: 1, Units: -1},
		{Bucket: good.Bucket, Generation: 1, Units: quota.MaxCounter + 1},
		{Bucket: -1, Generation: 1, Units: 1},
		{Bucket: 1 << 60, Generation: 1, Units: 1},
		{Bucket: good.Bucket - 2, Generation: 1, Units: 1}, // over
	} {
		l.Record(&pairLimit, t, quota.Gauge{}, startUS)
	}
	if got := meshtest.Cells(l); len(got) != 0 || l.Series() != 0 || l.Full() {
		t.Errorf("held %v", got)
	}
}

// TestNoAllocation: a decision's two calls leave nothing for the garbage collector.
func TestNoAllocation(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, startUS/pairLimit.WindowUS, 1, 5))
	units, out := int64(0), make([]int64, 2)
	record(l, 1, 1, startUS)
	if n := testing.AllocsPerRun(100, func() {
		units++
		record(l, 1, units, startUS)
		l.Estimates(pairLimit.ID, pairLimit.WindowUS, quota.MaxCounter, 0, out)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
