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

// Least is what an epoch's answers have shown, and time since; a clock that is set back does not lower it.
func TestLeast(t *testing.T) {
	now := time.Duration(0)
	c, err := clock.New(clock.Options{Now: func() time.Duration { return now }})
	if err != nil {
		t.Fatal(err)
	}
	const unseen = int64(50_000)
	shown := epochUS + s.Microseconds()
	for _, row := range []struct {
		what  string
		do    func()
		epoch uint32
		want  int64 // 0: nothing is known
	}{
		{"nothing was shown", func() {}, 7, 0},
		{"an answer", func() { c.Saw(7, shown) }, 7, shown - unseen},
		{"a second later", func() { now += s }, 7, shown + 980_000 - unseen},
		{"an answer that was on its way", func() { c.Saw(7, shown) }, 7, shown + 980_000 - unseen},
		{"set back", func() { c.Saw(7, shown-s.Microseconds()) }, 7, shown + 980_000 - unseen},
		{"a sample of a clock that was set back", func() { _, _ = c.Observe(now, shown-s.Microseconds()) }, 7, shown + 980_000 - unseen},
		{"a sample", func() { _, _ = c.Observe(now, shown+s.Microseconds()) }, 7, shown + 1_000_000 - unseen},
		{"no epoch", func() {}, 0, 0},
		{"another epoch", func() {}, 8, 0},
		{"the former", func() { c.Saw(7, shown) }, 7, 0},
		{"an answer in the newer", func() { c.Saw(8, shown) }, 8, shown - unseen},
		{"half a minute later", func() { now += 31 * s }, 8, 0},
		{"the clock may be anywhere then", func() { c.Saw(8, epochUS) }, 8, epochUS - unseen},
	} {
		row.do()
		if got := c.Least(row.epoch); got != row.want {
			t.Errorf("%s: %d µs, want %d", row.what, got-epochUS, row.want-epochUS)
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
				c.Saw(1, epochUS)
				_, _ = c.Reading(), c.Least(1)
			}
		})
	}
	g.Wait()
}
