package natsbus

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Why a message was dropped.
const (
	dropDisconnected = "disconnected" // published without a connection, or queued when it ended
	dropFull         = "full"         // the queue to the socket was full
	dropTooLarge     = "too_large"
	dropRefused      = "refused" // the server does not let us publish or subscribe there
	dropWrite        = "write"   // the socket did not take it
	dropReader       = "reader"  // arrived, but the reader of Messages was too slow
)

// metrics are the instruments of a Bus. In Prometheus they are called
//
//	regiond_bus_published_total        taken by Publish
//	regiond_bus_received_total         arrived, whether read in time or not
//	regiond_bus_dropped_total{reason}
//	regiond_bus_connections_total      made, so reconnections are one fewer
//	regiond_bus_connected              1 while there is one
type metrics struct {
	published, arrived, opened, dropped metric.Int64Counter

	reasons map[string]metric.MeasurementOption // built once: drops come in floods
}

func newMetrics(meter metric.Meter, connected func() bool) (*metrics, error) {
	m := &metrics{reasons: make(map[string]metric.MeasurementOption)}
	var errs [5]error
	m.published, errs[0] = meter.Int64Counter("regiond.bus.published", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that the bus took; not necessarily delivered."))
	m.arrived, errs[1] = meter.Int64Counter("regiond.bus.received", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that arrived from NATS."))
	m.dropped, errs[2] = meter.Int64Counter("regiond.bus.dropped", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were dropped on our side of NATS, by reason."))
	m.opened, errs[3] = meter.Int64Counter("regiond.bus.connections", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections to NATS that were made."))
	_, errs[4] = meter.Int64ObservableGauge("regiond.bus.connected",
		metric.WithDescription("1 while there is a connection to NATS with its subscriptions in place."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			var v int64
			if connected() {
				v = 1
			}
			o.Observe(v)
			return nil
		}))
	for _, reason := range []string{
		dropDisconnected, dropFull, dropTooLarge, dropRefused, dropWrite, dropReader,
	} {
		m.reasons[reason] = metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", reason)))
		m.drop(reason, 0) // there from the start, for rate()
	}
	m.opened.Add(context.Background(), 0)
	return m, errors.Join(errs[:]...)
}

// publish counts the outcome of a call of Publish.
func (m *metrics) publish(err error) {
	switch {
	case err == nil:
		m.published.Add(context.Background(), 1)
	case errors.Is(err, ErrFull):
		m.drop(dropFull, 1)
	case errors.Is(err, ErrTooLarge):
		m.drop(dropTooLarge, 1)
	default:
		m.drop(dropDisconnected, 1)
	}
}

func (m *metrics) received() { m.arrived.Add(context.Background(), 1) }

func (m *metrics) connection() { m.opened.Add(context.Background(), 1) }

func (m *metrics) drop(reason string, n int64) {
	m.dropped.Add(context.Background(), n, m.reasons[reason])
}
