// Package meters reads, in tests, what instruments have counted.
package meters

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Reader has what instruments have counted and observed.
type Reader struct {
	Meter  metric.Meter
	reader *sdk.ManualReader
}

// New returns the reader of a new meter.
func New() *Reader {
	r := sdk.NewManualReader()
	return &Reader{sdk.NewMeterProvider(sdk.WithReader(r)).Meter("test"), r}
}

// Of is the sum of an instrument, or of its points that have these labels, each a name and a value. It is 0 without any.
func (r *Reader) Of(t testing.TB, name string, labels ...string) (sum float64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	add := func(of attribute.Set, n float64) {
		for i := 0; i < len(labels); i += 2 {
			if v, _ := of.Value(attribute.Key(labels[i])); v.AsString() != labels[i+1] {
				return
			}
		}
		sum += n
	}
	for _, scope := range all.ScopeMetrics {
		for _, one := range scope.Metrics {
			if one.Name != name {
				continue
			}
			switch d := one.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			}
		}
	}
	return sum
}
