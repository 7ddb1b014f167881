package clock_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/regiond/regiond/clock"
)

func newProvider(t *testing.T) (*prometheus.Registry, *metric.MeterProvider) {
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

// scrape returns what an operator's Prometheus sees of this room, comments left out.
func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
	var lines strings.Builder
	for line := range strings.Lines(recorder.Body.String()) {
		if strings.HasPrefix(line, "regiond_") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, provider := newProvider(t)
		want := func(when, lines string) {
			t.Helper()
			if got := scrape(t, registry); got != lines {
				t.Errorf("%s, /metrics has\n%s\nwant\n%s", when, got, lines)
			}
		}

		c := &stoppable{begun: time.Now()}
		tracker, r, _ := track(t, clock.Options{Now: c.now, Meter: provider.Meter("clock")})
		ahead := time.Duration(epochUS-time.Now().UnixMicro()) * us // of the bubble's wall clock
		r.moved.Store(int64(2*s - ahead))
		want("before the first sample", "regiond_clock_steps_total 0\n")
		pass(ms)
		want("after a sample", "regiond_clock_drift_ratio 0\n"+
			"regiond_clock_offset_seconds 2\n"+
			"regiond_clock_steps_total 0\n"+
			"regiond_clock_uncertainty_seconds 0.000501\n")

		for range 70 { // Redis gains 100 µs a second
			pass(s)
			r.moved.Add(int64(100 * us))
		}
		pass(s)
		want("with a fast clock", "regiond_clock_drift_ratio 0.0001\n"+
			"regiond_clock_offset_seconds 2.007\n"+
			"regiond_clock_steps_total 0\n"+
			"regiond_clock_uncertainty_seconds 0.000501\n")

		r.moved.Add(-int64(time.Hour))
		pass(s)
		want("after a step", "regiond_clock_drift_ratio 0\n"+
			"regiond_clock_offset_seconds -3597.993\n"+
			"regiond_clock_steps_total 1\n"+
			"regiond_clock_uncertainty_seconds 0.000501\n")

		c.freeze(r, 10*s)
		if tracker.Reading().Valid {
			t.Fatal("valid after a standstill")
		}
		want("after a standstill", "regiond_clock_steps_total 1\n")
	})
}

// Gauges end with Run, at once and not when the reading has become invalid.
func TestMetricsEndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, provider := newProvider(t)
		r := &redis{begun: time.Now()}
		tracker, err := clock.New(clock.Options{Read: r.read, Meter: provider.Meter("clock")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		if err := tracker.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if !tracker.Reading().Valid {
			t.Error("not valid right after Run")
		}
		if got := scrape(t, registry); got != "regiond_clock_steps_total 0\n" {
			t.Errorf("after Run, /metrics has\n%s", got)
		}
	})
}
