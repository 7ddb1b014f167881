package clock

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// metrics are the room's instruments. In Prometheus they are called
//
//	regiond_clock_offset_seconds       TIME − the host's wall clock
//	regiond_clock_uncertainty_seconds  how far TIME may be from what is believed
//	regiond_clock_drift_ratio          how much faster Redis's clock runs than ours
//	regiond_clock_steps_total          how often it was moved
//
// The first three are absent while the Reading is not valid.
type metrics struct {
	meter                      metric.Meter
	offset, uncertainty, drift metric.Float64ObservableGauge
	steps                      metric.Int64Counter
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	m := &metrics{meter: meter}
	var errs [4]error
	m.offset, errs[0] = meter.Float64ObservableGauge("regiond.clock.offset", metric.WithUnit("s"),
		metric.WithDescription("Redis TIME minus the host's wall clock; for display, nothing decides on it."))
	m.uncertainty, errs[1] = meter.Float64ObservableGauge("regiond.clock.uncertainty", metric.WithUnit("s"),
		metric.WithDescription("How far Redis TIME may be from what is believed, either way."))
	m.drift, errs[2] = meter.Float64ObservableGauge("regiond.clock.drift", metric.WithUnit("1"),
		metric.WithDescription("How much faster Redis's clock runs than this process's monotonic clock: 0.0001 is 100 ppm."))
	m.steps, errs[3] = meter.Int64Counter("regiond.clock.steps", metric.WithUnit("{step}"),
		metric.WithDescription("How often Redis's clock was found moved, forward or back."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	m.steps.Add(context.Background(), 0) // there from the start, for rate()
	return m, nil
}

// observe has the gauges show reading until the returned function is called.
func (m *metrics) observe(reading func() Reading) (unregister func(), err error) {
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r := reading()
		if !r.Valid {
			return nil
		}
		offset := time.Duration(r.NowUS-time.Now().UnixMicro()) * time.Microsecond
		o.ObserveFloat64(m.offset, offset.Seconds())
		o.ObserveFloat64(m.uncertainty, r.Uncertainty.Seconds())
		o.ObserveFloat64(m.drift, r.Drift/1e6)
		return nil
	}, m.offset, m.uncertainty, m.drift)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = registration.Unregister() // its only error is that it was called before
	}, nil
}
