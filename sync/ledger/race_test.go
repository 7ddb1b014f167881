package ledger_test

import (
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/test/meshtest"
)

// TestManyAtOnce: everything is called by many at once while windows end, which Overshoot
// receives under a lock, and while instruments are read. What the callers wrote last and what others were given last is what is held, and all that
// was written came out of the outbox.
func TestManyAtOnce(t *testing.T) {
	const writers, rounds, series = 4, 300, 100
	clock := &fakeClock{}
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	overshoot := ledger.NewOvershoot(instruments.On(meter))
	l := newLedger(t, clock, func(o *ledger.Options) { o.Meter, o.Overshoot = meter, overshoot.Window })
	brief := ledger.Series{Limit: "a.brief", Units: 50, WindowUS: 2_000_000}
	lasting := pairLimit

	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			out := make([]int64, 3)
			for n := range int64(rounds) {
				now := clock.us.Load()
				a, b := brief, lasting
				a.ID, b.ID = hash(int(n)%series), hash(w*series+int(n)%series)
				l.Record(&a, quota.Counter{Bucket: (startUS + now) / a.WindowUS, Generation: 1, Units: n + 1}, quota.Gauge{}, startUS+now)
				l.Record(&b, quota.Counter{Bucket: startUS / b.WindowUS, Generation: 1, Units: n + 1}, quota.Gauge{}, startUS+now)
				if err := l.Fold("us-east", startUS+now, time.Duration(now)*time.Microsecond, one(b, startUS/b.WindowUS, 1, n+1), false); err != nil {
					t.Error(err)
				}
				l.Estimates(a.ID, a.WindowUS, quota.MaxCounter, clock.now(), out)
				clock.advance(10 * time.Millisecond)
			}
		})
	}
	stop, shared := make(chan struct{}), newLedger(t, clock, nil)
	publish := func(all bool) (more bool) {
		groups := l.Take(50, all, 1)
		now := clock.now()
		if err := shared.Fold("eu-west", startUS+now.Microseconds(), now, groups, false); err != nil {
			t.Error(err)
		}
		return len(groups) > 0
	}
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-l.Urgent():
				publish(false)
			default:
				publish(true)
			}
			l.Sweep()
			for piece := range l.Live("us-east", 0, 100) {
				_ = piece
			}
			l.Unsent()
			l.Full()
		}
	})
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := reader.Collect(t.Context(), &metricdata.ResourceMetrics{}); err != nil {
				t.Error(err)
			}
			overshoot.Take()
		}
	})
	wg.Wait()
	close(stop)
	others.Wait()
	for publish(true) {
	}
	if len(overshoot.Worst()) == 0 {
		t.Error("no window ended")
	}
	checkLasting(t, l, "us-east", writers*series, rounds-series)
	checkLasting(t, l, "eu-west", writers*series, rounds-series)
	checkLasting(t, shared, "eu-west", writers*series, rounds-series)
}

// checkLasting expects so many series of the lasting limit, all above a number.
func checkLasting(t *testing.T, l *ledger.Ledger, region string, series int, above int64) {
	t.Helper()
	n := 0
	for _, c := range meshtest.Cells(l) {
		if c.Limit != pairLimit.Limit || c.Region != region {
			continue
		}
		n++
		if c.Units <= above {
			t.Errorf("%s: %+v was written higher", region, c)
		}
	}
	if n != series {
		t.Errorf("%s: %d series, want %d", region, n, series)
	}
}
