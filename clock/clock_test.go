package clock_test

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/test/capture"
)

// logger logs without time.
func logger(to *capture.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// gauges are those that are shown, by name and region.
func gauges(t *testing.T, reader *metric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[float64]); ok {
				for _, p := range gauge.DataPoints {
					region, _ := p.Attributes.Value("region")
					values[strings.TrimSpace(m.Name+" "+region.AsString())] = p.Value
				}
			}
		}
	}
	return values
}

// A reading is the estimate of all samples. Steps are logged and counted; gauges begin with the first sample.
func TestReading(t *testing.T) {
	reader := metric.NewManualReader()
	log, now := &capture.Log{}, time.Duration(0)
	c, err := clock.New(clock.Options{
		Now: func() time.Duration { return now }, Logger: logger(log), Meter: metric.NewMeterProvider(metric.WithReader(reader)).Meter("clock"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, shown := c.Reading(), gauges(t, reader); got != (clock.Reading{}) || len(shown) > 0 {
		t.Errorf("before the first sample: %+v and %v, want nothing", got, shown)
	}
	for _, row := range []struct {
		pass, ahead time.Duration
		shows, step time.Duration
	}{
		{0, 0, 0, 0},
		{s - ms, 0, s, 0},
		{s - ms, -time.Hour, 2*s - time.Hour, -time.Hour + 3024*us},
	} {
		now += row.pass
		sent := now
		now += ms
		if step, err := c.Observe(sent, epochUS+(sent+row.ahead).Microseconds()+1000); err != nil || (step-row.step).Abs() > 10*us {
			t.Errorf("at %v: a step of %v (%v), want %v", now, step, err, row.step)
		}
		got := c.Reading()
		late := got.NowUS - epochUS - row.shows.Microseconds() - 500
		if late < 0 || late > 1011 || got.Uncertainty > 511*us || !got.Valid || got.Age != 0 {
			t.Errorf("at %v: %+v, want about %v", now, got, row.shows)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=WARN msg="redis clock stepped" step=-59m59.99`) {
		t.Errorf("the log is %s", got)
	}
	now += 1000 * s
	if got := c.Reading(); !got.Valid || got.Age != 1000*s || got.Uncertainty < 500*ms {
		t.Errorf("long after a sample: %+v", got)
	} else if shown := gauges(t, reader); shown["regiond.clock.uncertainty"] != got.Uncertainty.Seconds() || len(shown) != 3 {
		t.Errorf("long after a sample the gauges are %v", shown)
	}
	if _, err := c.Observe(now, -1); err == nil {
		t.Error("a TIME before 1970 is taken")
	}
}

// A fence is around the estimate while TIME is known well, for the epoch that is watched. A step ends that.
func TestFence(t *testing.T) {
	now := time.Duration(0)
	c, err := clock.New(clock.Options{Now: func() time.Duration { return now }})
	if err != nil {
		t.Fatal(err)
	}
	observe := func(ahead time.Duration) func() {
		return func() {
			if _, err := c.Observe(now-2*ms, epochUS+(now+ahead-ms).Microseconds()); err != nil {
				t.Fatal(err)
			}
		}
	}
	now = s
	for _, row := range []struct {
		what  string
		do    func()
		epoch uint32
		ahead time.Duration // of the middle of the fence
		wider time.Duration // than that of 1 ms of uncertainty, either way
		ok    bool
	}{
		{"nothing is known", func() {}, 7, 0, 0, false},
		{"no epoch is watched", observe(0), 7, 0, 0, false},
		{"that epoch", func() { c.Watch(7) }, 7, 0, 0, true},
		{"another epoch", func() {}, 8, 0, 0, false},
		{"no epoch", func() { c.Watch(0) }, 0, 0, 0, false},
		{"half a second later", func() { c.Watch(7); now += s / 2 }, 7, 0, 10 * ms, true},
		{"a sample", observe(0), 7, 0, 0, true},
		{"a small step", observe(40 * ms), 7, 40 * ms, 0, true},
		{"too long without a sample", func() { now += 3 * s }, 7, 0, 0, false},
		{"a sample again", observe(40 * ms), 7, 40 * ms, 0, true},
		{"a step forward", observe(s), 7, 0, 0, false},
		{"another epoch begins after it", func() { c.Watch(8) }, 8, s, 0, true},
		{"a step back", observe(-s), 8, 0, 0, false},
		{"the next sample", observe(-s), 8, 0, 0, false},
		{"another epoch begins after that", func() { c.Watch(9) }, 9, -s, 0, true},
	} {
		row.do()
		from, to, ok := c.Fence(row.epoch, 40*ms)
		if ok != row.ok {
			t.Fatalf("%s: open %t, want %t", row.what, ok, row.ok)
		}
		middle := epochUS + (now + row.ahead).Microseconds()
		early, late := from-(middle-(51*ms+row.wider).Microseconds()), to-(middle+(41*ms+row.wider).Microseconds())
		if ok && max(early, -early, late, -late) > 100 {
			t.Errorf("%s: from %d to %d µs", row.what, from-middle, to-middle)
		}
	}
}

// For the race detector: readings while samples and steps come in.
func TestReadingFromEverywhere(t *testing.T) {
	c, err := clock.New(clock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for i := range int64(200) {
				_, _ = c.Observe(c.Now(), epochUS+i*1_000_000)
				c.Watch(1)
				_ = c.Reading()
				_, _, _ = c.Fence(1, s)
			}
		})
	}
	g.Wait()
}
