package natsbus

import (
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

// metrics are the instruments of a Bus; docs/observe.md describes them.
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

func (m *metrics) drop(reason string, n int64) { m.dropped.Add(n, "reason", reason) }
