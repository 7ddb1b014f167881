package natsbus

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// serverMetrics are the instruments of an Embedded server. In Prometheus they are
// called
//
//	regiond_bus_gateways             peers connected, by direction
//	regiond_bus_server_errors_total  what the server complained of: refused peers, failed connections
type serverMetrics struct {
	meter    metric.Meter
	gateways metric.Int64ObservableGauge
	errors   metric.Int64Counter
}

func newServerMetrics(meter metric.Meter) (*serverMetrics, error) {
	m := &serverMetrics{meter: meter}
	var errs [2]error
	m.gateways, errs[0] = meter.Int64ObservableGauge("regiond.bus.gateways",
		metric.WithDescription("Embedded NATS servers of other processes that are connected, by direction."))
	m.errors, errs[1] = meter.Int64Counter("regiond.bus.server.errors", metric.WithUnit("{error}"),
		metric.WithDescription("What the embedded NATS server complained of: peers that it refused, connections that failed."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	m.errors.Add(context.Background(), 0) // there from the start, for rate()
	return m, nil
}

func (m *serverMetrics) failed() { m.errors.Add(context.Background(), 1) }

// observe has the gauge show peers until the returned function is called.
func (m *serverMetrics) observe(peers func() []GatewayState) (unregister func(), err error) {
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		var in, out int64
		for _, p := range peers() {
			if p.Inbound {
				in++
			}
			if p.Outbound {
				out++
			}
		}
		o.ObserveInt64(m.gateways, in, metric.WithAttributes(attribute.String("direction", "in")))
		o.ObserveInt64(m.gateways, out, metric.WithAttributes(attribute.String("direction", "out")))
		return nil
	}, m.gateways)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = registration.Unregister() // its only error is that it was called before
	}, nil
}
