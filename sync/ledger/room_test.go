package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meshtest"
)

// gauges reads the instruments.
func gauges(t *testing.T, r *sdk.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Gauge[float64]:
			got[m.Name] = int64(d.DataPoints[0].Value)
		case metricdata.Sum[int64]:
			got[m.Name] = d.DataPoints[0].Value
		}
	}
	return got
}

// TestRoom: a series beyond MaxSeries is turned away, from wherever it comes; those
// that are known go on; and there is room again once something has ended.
func TestRoom(t *testing.T) {
	clock, reader := &fakeClock{}, sdk.NewManualReader()
	l := newLedger(t, clock, func(o *ledger.Options) {
		o.MaxSeries = 3
		o.Meter = sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
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
	want := map[string]int64{"regiond.sync.partitions": 3, "regiond.sync.counters": 4, "regiond.sync.turned_away": 3, "regiond.sync.losses": 0, "regiond.sync.lost_units": 0}
	for name, got := range gauges(t, reader) {
		if got != want[name] {
			t.Errorf("%s is %d, want %d", name, got, want[name])
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
	for range 64 {
		l.Sweep()
	}
	if l.Series() != 0 || gauges(t, reader)["regiond.sync.counters"] != 0 {
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
		for range 64 {
			l.Sweep()
		}
		if l.Series() != 0 {
			t.Errorf("%d series are left", l.Series())
		}
	}
}

// TestOvershoot: a window is reported once, when the last region's bucket is over, with all regions' units: against the units that
// our region went by, else those of the configuration.
func TestOvershoot(t *testing.T) {
	clock := &fakeClock{}
	var got []int64
	l := newLedger(t, clock, func(o *ledger.Options) {
		o.Overshoot = func(limit string, units, limitUnits int64) {
			if want := map[int64]int64{1111: odd.Units, 7: 600}[units]; limit != odd.Limit || limitUnits != want {
				t.Errorf("%s of %d", limit, limitUnits)
			}
			got = append(got, units)
		}
	})
	first := startUS / odd.WindowUS
	begin := first * odd.WindowUS
	fold := func(author string, skew, bucket, units int64) {
		us := bucket*odd.WindowUS - begin
		clock.us.Store(us + skew)
		mustFold(t, l, author, begin+us, clock.now(), one(odd, bucket, 1, units))
	}
	fold("us-east", 0, first, 100)
	l.Record(&odd, quota.Counter{Bucket: first, Generation: 1, Units: 11}, quota.Gauge{}, begin)
	fold("ap-south", 500_000, first, 1000) // whose clock is half a second behind
	fold("us-east", 0, first+1, 7)
	end := 2 * odd.WindowUS // of the first window's bucket
	for _, c := range []struct {
		at   int64
		want int
	}{{end - 1, 0}, {end, 0}, {end + 499_999, 0}, {end + 500_000, 1}, {end + 600_000, 1}, {end + odd.WindowUS, 2}, {end * 9, 2}} {
		clock.us.Store(c.at)
		for range 64 {
			l.Sweep()
		}
		if len(got) != c.want {
			t.Errorf("at %d: reported %d, want %d windows", c.at, got, c.want)
		}
	}
	if len(got) != 2 || got[0] != 1111 || got[1] != 7 || l.Series() != 0 {
		t.Errorf("reported %d", got)
	}
}
