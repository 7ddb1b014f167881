package ledger_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
)

// pairLimit is the usual limit: 600 a minute, in buckets of a minute.
var pairLimit = ledger.Series{ID: 7, Limit: "a.pair", Units: 600, WindowUS: 60_000_000, BucketUS: 60_000_000}

func record(l *ledger.Ledger, epoch, units, storeUS int64) {
	l.Record(&pairLimit, quota.Counter{Bucket: startUS / pairLimit.BucketUS, Generation: epoch, Units: units}, storeUS)
}

// TestLost: what counts as lost is what the newest word of our store leaves out,
// and what never was there.
func TestLost(t *testing.T) {
	const e, anew = startUS - 5_000_000, startUS - 3_000_000 // generations
	bucket := startUS / pairLimit.BucketUS
	echo := func(epoch, units int64) func(*ledger.Ledger) {
		return func(l *ledger.Ledger) { _ = l.Fold("eu-west", startUS, 0, one(pairLimit, bucket, epoch, units)) }
	}
	stored := func(epoch, units, storeUS int64) func(*ledger.Ledger) {
		return func(l *ledger.Ledger) { record(l, epoch, units, startUS+storeUS) }
	}
	local := func(units int64) func(*ledger.Ledger) {
		return func(l *ledger.Ledger) { l.Local(&pairLimit, units, startUS) }
	}
	for _, c := range []struct {
		name string
		says []func(*ledger.Ledger)
		lost int64
	}{
		{"the store holds it", []func(*ledger.Ledger){stored(e, 10, 0)}, 0},
		{"the store forgot", []func(*ledger.Ledger){stored(e, 10, 0), stored(0, 0, 1)}, 10},
		{"and began anew", []func(*ledger.Ledger){stored(e, 10, 0), stored(anew, 3, 1)}, 10},
		{"the clock of a store stepped back", []func(*ledger.Ledger){stored(e, 10, 0), stored(e+999, 3, 1)}, 0},
		{"an epoch later than a renewal", []func(*ledger.Ledger){stored(e, 10, 0), stored(e+1000, 3, 1)}, 10},
		{"an echo before the store was asked", []func(*ledger.Ledger){echo(e, 10)}, 0},
		{"an echo of another life", []func(*ledger.Ledger){stored(anew, 3, 0), echo(e, 10)}, 10},
		{"an echo of this life", []func(*ledger.Ledger){stored(e, 3, 0), echo(e, 10)}, 0},
		{"echo, then the store", []func(*ledger.Ledger){echo(e, 10), stored(anew, 3, 0)}, 10},
		{"while the store was away", []func(*ledger.Ledger){local(4), local(3)}, 7},
		{"back with all it had", []func(*ledger.Ledger){stored(e, 10, 0), local(4), stored(e, 10, 1)}, 4},
		{"overtaken by the one that found it empty", []func(*ledger.Ledger){stored(e, 10, 0), stored(0, 0, 5), stored(e, 12, 4)}, 12},
		{"overtaken by a second at most", []func(*ledger.Ledger){stored(e, 10, 0), stored(0, 0, 5), stored(e, 12, 5-1_000_000)}, 12},
		{"a store that lives in the past", []func(*ledger.Ledger){stored(e, 10, 0), stored(0, 0, 5), stored(e, 12, 5-1_000_001)}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger(t, &fakeClock{}, nil)
			for _, say := range c.says {
				say(l)
			}
			out := []int64{9, 9}
			if got := l.Estimates(pairLimit.ID, pairLimit.WindowUS, 0, out); got != c.lost || out[0] != 0 || out[1] != 0 {
				t.Errorf("lost %d, want %d; estimates %d", got, c.lost, out)
			}
		})
	}
}

// TestOwnOnlyGrows: counters of concurrent decisions come in any order, and a sibling
// or an echo may know more than our store's last word.
func TestOwnOnlyGrows(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	bucket := startUS / pairLimit.BucketUS
	record(l, 1, 3, startUS)
	record(l, 1, 2, startUS)
	if got := l.Take(10, true); len(got) != 1 || got[0].Units[0] != 3 {
		t.Errorf("published %v, want 3 units", got)
	}
	mustFold(t, l, "eu-west", startUS, 0, one(pairLimit, bucket, 1, 9))
	mustFold(t, l, "eu-west", startUS, 0, one(pairLimit, bucket, 1, 8))
	record(l, 1, 4, startUS)
	if got := l.Snapshot(); len(got) != 1 || got[0].Units != 9 || l.Take(10, true) != nil {
		t.Errorf("held %v, want 9 units", got)
	}
}

// TestLostFades: lost counters count like a peer's, and age out.
func TestLostFades(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	l.Local(&pairLimit, 100, startUS)
	for at, want := range map[time.Duration]int64{0: 100, 50 * time.Second: 100, 80 * time.Second: 50, 110 * time.Second: 0} {
		if got := l.Estimates(pairLimit.ID, pairLimit.WindowUS, at, nil); got != want {
			t.Errorf("at %v: lost %d, want %d", at, got, want)
		}
	}
}

// TestStepBackBringsNothingBack: after its clock stepped back a store goes on telling of
// a counter until something is charged. What is over by then does not count once more,
// neither as lost, once the store begins a new key, nor to peers.
func TestStepBackBringsNothingBack(t *testing.T) {
	const hour = 3_600_000_000
	clock := &fakeClock{}
	l := newLedger(t, clock, nil)
	record(l, 1, 15, startUS)
	_ = l.Take(10, true)
	clock.advance(121 * time.Second)
	back := startUS + 121_000_000 - hour
	record(l, 1, 15, back) // a denial, or a reading of all counters
	later := quota.Counter{Bucket: back / pairLimit.BucketUS, Generation: back, Units: 1}
	l.Record(&pairLimit, later, back+1)
	if got := l.Estimates(pairLimit.ID, pairLimit.WindowUS, clock.now(), nil); got != 0 {
		t.Errorf("%d of what is over count as lost", got)
	}
	clock.advance(58 * time.Minute) // the store's clock comes to that bucket again
	l.Record(&pairLimit, quota.Counter{Bucket: startUS / pairLimit.BucketUS, Generation: back + 1, Units: 2}, startUS)
	if got := roll(t, l); len(got) != 1 || got[0].Units != 2 {
		t.Errorf("peers are told of %v", got)
	}
}

// A step back by less than a bucket is waited out in the newest: that total is of now.
func TestStepBackOfLessThanABucketIsWaitedOut(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	next := quota.Counter{Bucket: startUS/pairLimit.BucketUS + 1, Generation: 1, Units: 3}
	l.Record(&pairLimit, next, startUS)
	if got := l.Snapshot(); len(got) != 1 || got[0].Units != 3 {
		t.Errorf("held %v, want 3 units", got)
	}
}

// TestOwnNonsense: what cannot be a counter changes nothing.
func TestOwnNonsense(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	bad := pairLimit
	bad.BucketUS = 0
	good := quota.Counter{Bucket: startUS / pairLimit.BucketUS, Generation: 1, Units: 1}
	l.Record(&bad, good, startUS)
	l.Local(&bad, 1, startUS)
	l.Local(&pairLimit, 0, startUS)
	l.Local(&pairLimit, -5, startUS)
	l.Record(&pairLimit, good, -1)
	l.Record(&pairLimit, good, 1<<52)
	for _, t := range []quota.Counter{
		{Bucket: good.Bucket, Generation: -1, Units: 1},
		{Bucket: good.Bucket, Generation: 1<<52 + 1, Units: 1},
		{Bucket: good.Bucket, Generation: 1, Units: -1},
		{Bucket: good.Bucket, Generation: 1, Units: quota.MaxCounter + 1},
		{Bucket: -1, Generation: 1, Units: 1},
		{Bucket: 1 << 60, Generation: 1, Units: 1},
		{Bucket: good.Bucket - 2, Generation: 1, Units: 1}, // over
	} {
		l.Record(&pairLimit, t, startUS)
	}
	if got := l.Snapshot(); len(got) != 0 || l.Series() != 0 || l.Full() {
		t.Errorf("held %v", got)
	}
}

// TestNoAllocation: a decision's two calls leave nothing for the garbage collector.
func TestNoAllocation(t *testing.T) {
	l := newLedger(t, &fakeClock{}, nil)
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, startUS/pairLimit.BucketUS, 1, 5))
	units, out := int64(0), make([]int64, 2)
	record(l, 1, 1, startUS)
	if n := testing.AllocsPerRun(100, func() {
		units++
		record(l, 1, units, startUS)
		l.Estimates(pairLimit.ID, pairLimit.WindowUS, 0, out)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
