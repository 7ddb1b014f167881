package instruments_test

import (
	"context"
	"errors"
	"maps"
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
	m.Counter("bare", "{thing}", "Things.", instruments.Zero())
	m.Counter("kinds", "{thing}", "Things by kind.", instruments.Zeros("kind", "a", "b")...)
	m.Counter("unknown", "{thing}", "Things by what is not known yet.")
	m.Gauge("level", "s", "How high.", func(o metric.Float64Observer) { o.Observe(1.5) })
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
				got[name] = d.DataPoints[0].Value
			}
		}
	}
	want := map[string]float64{
		"bare {thing} Things. ": 0, "kinds {thing} Things by kind. kind=a": 0, "kinds {thing} Things by kind. kind=b": 0, "level s How high. ": 1.5,
	}
	if !maps.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

// broken makes nothing.
type broken struct{ noop.Meter }

var errBroken = errors.New("broken")

func (broken) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errBroken
}

func (broken) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return nil, errBroken
}

func TestErrorsAreKept(t *testing.T) {
	t.Parallel()
	m := instruments.On(broken{})
	m.Counter("things", "", "", instruments.Zero())
	if err := m.Err(); !errors.Is(err, errBroken) {
		t.Errorf("the error of a counter became %v", err)
	}
	m = instruments.On(broken{})
	m.Gauge("level", "", "", func(metric.Float64Observer) {})
	if err := m.Err(); !errors.Is(err, errBroken) {
		t.Errorf("the error of a gauge became %v", err)
	}
}
