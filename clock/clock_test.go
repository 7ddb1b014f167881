package clock_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/regiond/regiond/clock"
)

// logLines are what was logged, without time.
type logLines struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (j *logLines) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.Write(p)
}

// take returns what was logged since the last take.
func (j *logLines) take() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.lines.Reset()
	return j.lines.String()
}

func (j *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// newRegistry returns a registry, and a provider whose meters it shows.
func newRegistry(t *testing.T) (*prometheus.Registry, *metric.MeterProvider) {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		t.Fatal(err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	t.Cleanup(func() {
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return registry, provider
}

// wantScrape checks what Prometheus would scrape of this package, comments left out.
func wantScrape(t *testing.T, registry *prometheus.Registry, when, want string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	var lines strings.Builder
	for line := range strings.Lines(recorder.Body.String()) {
		if strings.HasPrefix(line, "regiond_") {
			lines.WriteString(line)
		}
	}
	if got := lines.String(); got != want {
		t.Errorf("%s, /metrics has\n%s\nwant\n%s", when, got, want)
	}
}

func wantLog(t *testing.T, log *logLines, want string) {
	t.Helper()
	if got := log.take(); got != want {
		t.Errorf("log is\n%s\nwant\n%s", got, want)
	}
}

// A reading is the estimate of all samples. Steps are logged and counted; gauges begin with the first sample.
func TestReading(t *testing.T) {
	registry, provider := newRegistry(t)
	log, now := &logLines{}, time.Duration(0)
	c, err := clock.New(clock.Options{
		Now: func() time.Duration { return now }, Logger: log.logger(), Meter: provider.Meter("clock"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Reading(); got != (clock.Reading{}) {
		t.Errorf("before the first sample: %+v, want nothing", got)
	}
	wantScrape(t, registry, "before the first sample", "regiond_clock_steps_total 0\n")
	for _, row := range []struct {
		pass, ahead time.Duration
		want        clock.Reading
		step        time.Duration
	}{
		{0, 0, clock.Reading{NowUS: epochUS + 500, Uncertainty: 501 * us, Valid: true}, 0},
		{s - ms, 0, clock.Reading{NowUS: epochUS + s.Microseconds() + 500, Uncertainty: 501 * us, Valid: true}, 0},
		{
			s - ms, -time.Hour,
			clock.Reading{NowUS: epochUS + (2*s - time.Hour).Microseconds() + 500, Uncertainty: 501 * us, Valid: true},
			-time.Hour + 3024*us,
		},
	} {
		now += row.pass
		sent := now
		now += ms
		if step, err := c.Observe(sent, epochUS+(sent+row.ahead).Microseconds()+1000); err != nil || (step-row.step).Abs() > 10*us {
			t.Errorf("at %v: a step of %v (%v), want %v", now, step, err, row.step)
		}
		got := c.Reading()
		late := got.NowUS - row.want.NowUS
		if late < 0 || late > 1011 || got.Uncertainty > row.want.Uncertainty+10*us || !got.Valid || got.Age != 0 {
			t.Errorf("at %v: %+v, want about %+v", now, got, row.want)
		}
	}
	if got := log.take(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=WARN msg="redis clock stepped" step=-59m59.99`) {
		t.Errorf("the log is %s", got)
	}
	now += 1000 * s
	if got := c.Reading(); !got.Valid || got.Age != 1000*s || got.Uncertainty < 500*ms {
		t.Errorf("long after a sample: %+v", got)
	}
	if _, err := c.Observe(now, -1); err == nil {
		t.Error("a TIME before 1970 is taken")
	}
}

func TestMetrics(t *testing.T) {
	registry, provider := newRegistry(t)
	now := time.Duration(0)
	c, err := clock.New(clock.Options{Now: func() time.Duration { return now }, Meter: provider.Meter("clock")})
	if err != nil {
		t.Fatal(err)
	}
	for range 70 { // Redis gains 100 µs a second
		if _, err := c.Observe(now, epochUS+now.Microseconds()+now.Microseconds()/10_000); err != nil {
			t.Fatal(err)
		}
		now += s
	}
	now -= s
	scraped := func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "regiond_") {
				names = append(names, f.GetName())
			}
		}
		return strings.Join(names, " ")
	}
	if got := scraped(); got != "regiond_clock_drift_ratio regiond_clock_offset_seconds regiond_clock_steps_total regiond_clock_uncertainty_seconds" {
		t.Errorf("shown are %s", got)
	}
	if got := c.Reading().Drift.PPM; got != 100 {
		t.Errorf("a drift of %v ppm, want 100", got)
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
