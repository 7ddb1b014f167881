package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meshtest"
	"github.com/regiond/regiond/test/meters"
)

// TestRoom: a series beyond MaxSeries is turned away, from wherever it comes; those
// that are known go on; and there is room again once something has ended.
func TestRoom(t *testing.T) {
	clock, metrics := &fakeClock{}, meters.New()
	l := newLedger(t, clock, func(o *ledger.Options) {
		o.MaxSeries, o.Meter = 3, metrics.Meter
	})
	bucket := startUS / pairLimit.WindowUS
	for i := range 3 {
		s := pairLimit
		s.ID = hash(i)
		mustFold(t, l, "us-east", startUS, 0, one(s, bucket, 1, 5))
	}
	if l.Full() {
		t.Error("full before anything was turned away")
	}
	mustFold(t, l, "us-east", startUS, 0, one(pairLimit, bucket, 1, 5))
	record(l, 1, 1, startUS)
	l.Local(&pairLimit, 1, startUS)
	known := pairLimit
	known.ID = hash(0)
	mustFold(t, l, "us-east", startUS, 0, one(known, bucket, 1, 6))
	l.Record(&known, quota.Counter{Bucket: bucket, Generation: 1, Units: 1}, quota.Gauge{}, startUS)
	for name, want := range map[string]float64{"regiond.sync.partitions": 3, "regiond.sync.counters": 4, "regiond.sync.turned_away": 3, "regiond.sync.losses": 0, "regiond.sync.lost_units": 0} {
		if got := metrics.Of(t, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !l.Full() || estimate(l, pairLimit.ID, "us-east", 0) != 0 || estimate(l, known.ID, "us-east", 0) != 6 {
		t.Error("the one beyond was taken, or one that was known was not")
	}
	clock.advance(2*time.Minute - time.Microsecond)
	if !l.Full() {
		t.Error("forgot too soon")
	}
	clock.advance(time.Microsecond)
	if l.Full() {
		t.Error("full for more than two windows")
	}
	sweep(l)
	if l.Series() != 0 || metrics.Of(t, "regiond.sync.counters") != 0 {
		t.Errorf("%d series are left", l.Series())
	}
	mustFold(t, l, "us-east", startUS+120_000_000, 2*time.Minute, one(pairLimit, bucket+2, 1, 5))
	if l.Full() || estimate(l, pairLimit.ID, "us-east", 2*time.Minute) != 5 {
		t.Error("no room, though all has ended")
	}
}

// TestEndlessGenerations: an author with ever new generations, or limits, gets only so far.
func TestEndlessGenerations(t *testing.T) {
	for _, author := range []string{"us-east", "eu-west"} {
		l := newLedger(t, &fakeClock{}, nil)
		for i := range int64(1000) {
			mustFold(t, l, author, startUS, 0, one(pairLimit, startUS/pairLimit.WindowUS, 1+i, 1))
		}
		if got := len(meshtest.Cells(l)); got != 256 || !l.Full() {
			t.Errorf("%s: %d counters in one series", author, got)
		}
		mustFold(t, l, "ap-south", startUS, 0, one(pairLimit, startUS/pairLimit.WindowUS, 1, 1))
		if estimate(l, pairLimit.ID, "ap-south", 0) != 1 {
			t.Errorf("%s took the room of others", author)
		}
	}
	l := newLedger(t, &fakeClock{}, func(o *ledger.Options) { o.MaxSeries = 10 })
	for i := range int64(1000) {
		s := pairLimit
		s.ID = hash(int(i % 10))
		mustFold(t, l, "us-east", startUS, 0, one(s, startUS/pairLimit.WindowUS, 1+i, 1))
	}
	if got := len(meshtest.Cells(l)); got != 160 || !l.Full() {
		t.Errorf("%d counters in ten series", got)
	}
}

// TestEndlessLimits: names of limits are bounded too, and used again.
func TestEndlessLimits(t *testing.T) {
	clock := &fakeClock{}
	l := newLedger(t, clock, nil)
	for round := range int64(2) {
		clockUS, bucket := startUS+round*pairLimit.WindowUS*3, startUS/pairLimit.WindowUS+round*3
		for i := range 20_000 {
			s := pairLimit
			s.ID, s.Limit = hash(i), fmt.Sprint("invented.", i)
			mustFold(t, l, "us-east", clockUS, clock.now(), one(s, bucket, 1, 1))
		}
		if got := l.Series(); got != 16_384 || !l.Full() {
			t.Errorf("%d series of different limits", got)
		}
		clock.advance(3 * time.Minute)
		sweep(l)
		if l.Series() != 0 {
			t.Errorf("%d series are left", l.Series())
		}
	}
}
