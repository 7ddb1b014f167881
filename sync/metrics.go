package sync

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/sync/wire"
)

// The kinds of messages, as metrics name them.
const (
	kindUsage     = "usage"    // counters that changed
	kindSnapshot  = "snapshot" // a chunk of a snapshot
	kindHeartbeat = "heartbeat"
	kindRequest   = "request" // for a snapshot
	kindLoan      = "loan"    // wants, grants and returns
	kindReset     = "reset"
	kindTop       = "top"
)

// metrics are the mesh's own instruments; docs/observe.md describes them, and those of the
// ledger and the bus.
type metrics struct {
	published, publishedBytes, errors metric.Int64Counter
	received, receivedBytes           metric.Int64Counter
	refusals, gaps, merged, begun     metric.Int64Counter
	loansDropped                      metric.Int64Counter
}

func newMetrics(meter metric.Meter, ages func() map[string]time.Duration) (*metrics, error) {
	i, none := instruments.On(meter), instruments.Zero()
	kinds := []string{kindUsage, kindSnapshot, kindHeartbeat, kindRequest, kindLoan, kindReset, kindTop}
	m := &metrics{
		published:      i.Counter("regiond.sync.published", "{message}", "Messages handed to the bus, by kind.", instruments.Zeros("kind", kinds...)...),
		publishedBytes: i.Counter("regiond.sync.published_bytes", "By", "Bytes handed to the bus, by kind.", instruments.Zeros("kind", kinds...)...),
		errors:         i.Counter("regiond.sync.publish_errors", "{message}", "Messages that the bus did not take.", none),
		received:       i.Counter("regiond.sync.received", "{message}", "Messages of others that were used, by kind and author."),
		receivedBytes:  i.Counter("regiond.sync.received_bytes", "By", "Bytes of others' messages that were used, by kind and author."),
		refusals:       i.Counter("regiond.sync.refused", "{message}", "Messages that changed nothing, by reason.", instruments.Zeros("reason", refusalReasons()...)...),
		gaps:           i.Counter("regiond.sync.gaps", "{gap}", "Times that changes of an author were missing, or out of order."),
		merged:         i.Counter("regiond.sync.snapshots_merged", "{snapshot}", "Whole snapshots that were merged, by author."),
		begun:          i.Counter("regiond.sync.snapshots_published", "{snapshot}", "Snapshots of our own that were begun.", none),
		loansDropped:   i.Counter("regiond.sync.loans_dropped", "{loan}", "Wants, grants and returns that were not published: the bus was away, or too many waited.", none),
	}
	i.Gauge("regiond.sync.peer_age", "s", "Time since a region's most silent process was received from.", func(o metric.Float64Observer) {
		for region, age := range ages() {
			o.Observe(age.Seconds(), metric.WithAttributes(attribute.String("region", region)))
		}
	})
	return m, i.Err()
}

// refusalReasons are all values of the label: those of package wire, of the peer table, of
// the ledger, and one for everything else.
func refusalReasons() []string {
	reasons := []string{reasonUnknownRegion, reasonStale, reasonCrowded, "regions", reasonFold}
	for _, r := range wire.Reasons() {
		reasons = append(reasons, string(r))
	}
	return reasons
}

// ages is the time since each region's most silent process was received from.
func (m *Mesh) ages() map[string]time.Duration {
	now, ages := m.o.Now(), map[string]time.Duration{}
	for _, p := range m.Peers() {
		ages[p.Region] = max(ages[p.Region], now-p.ReceivedAt)
	}
	return ages
}

// count adds to a counter with the given labels, names and values in turn.
func count(c metric.Int64Counter, n int, labels ...string) {
	attrs := make([]attribute.KeyValue, 0, 2)
	for i := 0; i < len(labels); i += 2 {
		attrs = append(attrs, attribute.String(labels[i], labels[i+1]))
	}
	c.Add(context.Background(), int64(n), metric.WithAttributes(attrs...))
}
