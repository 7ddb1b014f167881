package natsbus

import (
	"errors"

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
type metrics struct{ published, arrived, opened, dropped *instruments.Counter }

func newMetrics(meter metric.Meter, connected func() bool) (*metrics, error) {
	i := instruments.On(meter)
	i.Gauge("regiond.bus.connected", "", "1 while there is a connection to NATS with its subscriptions in place.",
		func(observe instruments.Observe) { observe(instruments.Truth(connected())) })
	return &metrics{
		published: i.Counter("regiond.bus.published", "{message}", "Messages that the bus took; not necessarily delivered."),
		arrived:   i.Counter("regiond.bus.received", "{message}", "Messages that arrived from NATS."),
		opened:    i.Counter("regiond.bus.connections", "{connection}", "Connections to NATS that were made."),
		dropped: i.CounterBy("regiond.bus.dropped", "{message}", "Messages that were dropped on our side of NATS, by reason.",
			"reason", dropDisconnected, dropFull, dropTooLarge, dropRefused, dropWrite, dropReader),
	}, i.Err()
}

// publish counts the outcome of a call of Publish.
func (m *metrics) publish(err error) {
	switch {
	case err == nil:
		m.published.Add(1)
	case errors.Is(err, ErrFull):
		m.drop(dropFull, 1)
	case errors.Is(err, ErrTooLarge):
		m.drop(dropTooLarge, 1)
	default:
		m.drop(dropDisconnected, 1)
	}
}

func (m *metrics) drop(reason string, n int64) { m.dropped.Add(n, "reason", reason) }
