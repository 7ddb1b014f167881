package instruments_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/internal/base/instruments"
)

func TestInstrumentsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	m := instruments.On(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"))
	m.Counter("bare", "{thing}", "Things.")
	m.CounterBy("kinds", "{thing}", "Things by kind.", "kind", "a", "b").Add(2, "kind", "b", "region", "r", "other", "o")
	m.CounterBy("unknown", "{thing}", "Things by what is not known yet.", "what")
	m.Gauge("level", "s", "How high.", func(observe instruments.Observe) { observe(1.5) })
	for _, side := range []string{"left", "right"} { // of one name
		m.Gauge("sides", "", "Sides.", func(observe instruments.Observe) { observe(1, "side", side) })
	}
	m.Histogram("took", "s", "How long.", 1, 10).Record(t.Context(), 5, instruments.Labels("kind", "a"))
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		for _, one := range s.Metrics {
			name := one.Name + " " + one.Unit + " " + one.Description + " "
			switch d := one.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					got[name+p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					got[name+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Histogram[float64]:
				got[name+fmt.Sprint(d.DataPoints[0].Bounds, d.DataPoints[0].BucketCounts)] = d.DataPoints[0].Sum
			}
		}
	}
	want := map[string]float64{
		"bare {thing} Things. ": 0, "kinds {thing} Things by kind. kind=a": 0, "kinds {thing} Things by kind. kind=b": 0,
		"kinds {thing} Things by kind. kind=b,other=o,region=r": 2, "level s How high. ": 1.5,
		"sides  Sides. side=left": 1, "sides  Sides. side=right": 1, "took s How long. [1 10] [0 1 0]": 5,
	}
	if !maps.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// broken makes nothing.
type broken struct{ noop.Meter }

var errBroken = errors.New("broken")

func (broken) Int64ObservableCounter(string, ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	return nil, errBroken
}

func (broken) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return nil, errBroken
}

func (broken) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errBroken
}

func TestErrorsAreKept(t *testing.T) {
	t.Parallel()
	for kind, create := range map[string]func(*instruments.Maker){
		"counter":   func(m *instruments.Maker) { m.Counter("things", "", "").Add(1) },
		"gauge":     func(m *instruments.Maker) { m.Gauge("things", "", "", func(instruments.Observe) {}) },
		"histogram": func(m *instruments.Maker) { m.Histogram("things", "", "") },
	} {
		m := instruments.On(broken{})
		create(m)
		if err := m.Err(); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "things") {
			t.Errorf("the error of a %s became %v", kind, err)
		}
	}
}
