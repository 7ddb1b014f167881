package natsbus

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
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
	i, none, m := instruments.On(meter), instruments.Zero(), &metrics{reasons: make(map[string]metric.MeasurementOption)}
	m.published = i.Counter("regiond.bus.published", "{message}", "Messages that the bus took; not necessarily delivered.", none)
	m.arrived = i.Counter("regiond.bus.received", "{message}", "Messages that arrived from NATS.", none)
	m.opened = i.Counter("regiond.bus.connections", "{connection}", "Connections to NATS that were made.", none)
	reasons := []string{dropDisconnected, dropFull, dropTooLarge, dropRefused, dropWrite, dropReader}
	m.dropped = i.Counter("regiond.bus.dropped", "{message}", "Messages that were dropped on our side of NATS, by reason.", instruments.Zeros("reason", reasons...)...)
	for _, reason := range reasons {
		m.reasons[reason] = metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", reason)))
	}
	i.Gauge("regiond.bus.connected", "", "1 while there is a connection to NATS with its subscriptions in place.", func(o metric.Float64Observer) {
		v := 0.0
		if connected() {
			v = 1
		}
		o.Observe(v)
	})
	return m, i.Err()
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
