// Package instruments makes the instruments of a component, which asks once whether that failed. What is counted in
// every check belongs in package counting.
package instruments

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Maker makes instruments on one meter. It is for one goroutine.
type Maker struct {
	meter metric.Meter
	errs  []error
}

// On returns a Maker on a meter.
func On(meter metric.Meter) *Maker { return &Maker{meter: meter} }

// Counter makes a counter. From is what it counts from the start, for rate(): Zero, or Zeros of a label; nothing where
// the values of labels are not known yet.
func (m *Maker) Counter(name, unit, help string, from ...metric.AddOption) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.errs = append(m.errs, err)
	if err == nil {
		for _, labels := range from {
			c.Add(context.Background(), 0, labels)
		}
	}
	return c
}

// Zero is a series without labels.
func Zero() metric.AddOption { return metric.WithAttributes() }

// Zeros is a series for each value of a label.
func Zeros(label string, values ...string) (from []metric.AddOption) {
	for _, v := range values {
		from = append(from, metric.WithAttributes(attribute.String(label, v)))
	}
	return from
}

// Gauge makes a gauge. observe is called when metrics are read.
func (m *Maker) Gauge(name, unit, help string, observe func(metric.Float64Observer)) {
	_, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error { observe(o); return nil }))
	m.errs = append(m.errs, err)
}

// Err is why some of the instruments do not exist; nil: all do.
func (m *Maker) Err() error { return errors.Join(m.errs...) }
