// Package instruments makes the instruments of a component, which asks once whether that failed. They are read when
// metrics are collected.
package instruments

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Maker makes instruments on one meter. It is for one goroutine.
type Maker struct {
	meter metric.Meter
	errs  []error
}

// On returns a Maker on a meter; on nil, what it makes is read by nobody.
func On(meter metric.Meter) *Maker { return &Maker{meter: cmp.Or[metric.Meter](meter, noop.Meter{})} }

// Counter makes a counter without labels. It is there from the start, for rate().
func (m *Maker) Counter(name, unit, help string) *Counter {
	c := m.CounterBy(name, unit, help, "")
	c.Add(0)
	return c
}

// CounterBy makes a counter with labels. With the values of the first of them that are known it is there from the start.
func (m *Maker) CounterBy(name, unit, help, label string, values ...string) *Counter {
	c := &Counter{Of(m, name, unit, help, pairs.set)}
	for _, value := range values {
		c.Add(0, label, value)
	}
	return c
}

// Observe records a value, with the names and values of its labels in turn.
type Observe func(value float64, labels ...string)

// Gauge makes a gauge. read is called when metrics are collected.
func (m *Maker) Gauge(name, unit, help string, read func(observe Observe)) {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.register(name, err, g, func(o metric.Observer) {
		read(func(value float64, labels ...string) { o.ObserveFloat64(g, value, Labels(labels...)) })
	})
}

// Histogram makes a histogram with the upper bounds of its buckets.
func (m *Maker) Histogram(name, unit, help string, bounds ...float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.failed(name, err)
	return h
}

// register has an instrument read. The instrument's own callback would be dropped where two of one name are made.
func (m *Maker) register(name string, err error, of metric.Observable, read func(metric.Observer)) {
	if err == nil {
		_, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error { read(o); return nil }, of)
	}
	m.failed(name, err)
}

func (m *Maker) failed(name string, err error) {
	if err != nil {
		m.errs = append(m.errs, fmt.Errorf("create the instrument %s: %w", name, err))
	}
}

// Err is why some of the instruments do not exist; nil: all do.
func (m *Maker) Err() error { return errors.Join(m.errs...) }

// Labels are names and values in turn.
func Labels(labels ...string) metric.MeasurementOption {
	var p pairs
	copy(p[:], labels)
	return metric.WithAttributeSet(p.set())
}

// Truth is 1 for yes and 0 for no.
func Truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// pairs are names and values in turn, "" after the last.
type pairs [6]string

func (p pairs) set() attribute.Set {
	var all []attribute.KeyValue
	for i := 0; i < len(p) && p[i] != ""; i += 2 {
		all = append(all, attribute.String(p[i], p[i+1]))
	}
	return attribute.NewSet(all...)
}
