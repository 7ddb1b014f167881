package sync

import (
	"time"

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
	kindOverrides = "overrides"
)

func kindOf(msg wire.Message) (kind, prefix string) {
	switch u := msg.(type) {
	case *wire.Usage:
		if u.Chunk.Snapshot != 0 {
			return kindSnapshot, SubjectUsage
		}
		return kindUsage, SubjectUsage
	case *wire.Heartbeat:
		return kindHeartbeat, SubjectHeartbeat
	case *wire.SnapshotRequest:
		return kindRequest, SubjectSnapshot
	case *wire.Loans:
		return kindLoan, SubjectLoan
	case *wire.Reset:
		return kindReset, SubjectReset
	case *wire.Overrides: // it changes what a tenant may use too
		return kindOverrides, SubjectReset
	}
	return kindTop, SubjectTop
}

// metrics are the mesh's own instruments; docs/observe.md describes them, and those of the
// ledger and the bus.
type metrics struct {
	published, publishedBytes, errors *instruments.Counter
	received, receivedBytes           *instruments.Counter
	refusals, gaps, merged, begun     *instruments.Counter
	loansDropped                      *instruments.Counter
}

func newMetrics(meter metric.Meter, ages func() map[string]time.Duration) (*metrics, error) {
	i := instruments.On(meter)
	var reasons []string
	for _, r := range wire.Reasons() {
		reasons = append(reasons, string(r))
	}
	kinds := []string{kindUsage, kindSnapshot, kindHeartbeat, kindRequest, kindLoan, kindReset, kindTop, kindOverrides}
	m := &metrics{
		published: i.CounterBy("regiond.sync.published", "{message}",
			"Messages handed to the bus, by kind.", "kind", kinds...),
		publishedBytes: i.CounterBy("regiond.sync.published_bytes", "By", "Bytes handed to the bus, by kind.", "kind", kinds...),
		errors:         i.Counter("regiond.sync.publish_errors", "{message}", "Messages that the bus did not take."),
		received: i.CounterBy("regiond.sync.received", "{message}",
			"Messages of others that were used, by kind and author.", "kind"),
		receivedBytes: i.CounterBy("regiond.sync.received_bytes", "By",
			"Bytes of others' messages that were used, by kind and author.", "kind"),
		refusals: i.CounterBy("regiond.sync.refused", "{message}",
			"Messages that changed nothing, by reason.", "reason", reasons...),
		gaps: i.CounterBy("regiond.sync.gaps", "{gap}",
			"Times that changes of an author were missing, or out of order.", "region"),
		merged: i.CounterBy("regiond.sync.snapshots_merged", "{snapshot}",
			"Whole snapshots that were merged, by author.", "region"),
		begun: i.Counter("regiond.sync.snapshots_published", "{snapshot}", "Snapshots of our own that were begun."),
		loansDropped: i.Counter("regiond.sync.loans_dropped", "{loan}",
			"Wants, grants and returns that were not published: the bus was away, or too many waited."),
	}
	i.Gauge("regiond.sync.peer_age", "s",
		"Time since a region's most silent process was received from.", func(observe instruments.Observe) {
			for region, age := range ages() {
				observe(age.Seconds(), "region", region)
			}
		})
	return m, i.Err()
}

// ages is the time since each region's most silent process was received from.
func (m *Mesh) ages() map[string]time.Duration {
	now, ages := m.o.Now(), map[string]time.Duration{}
	for _, p := range m.peers.Others() {
		if p.ReceivedAt != 0 {
			ages[p.Region] = max(ages[p.Region], now-p.ReceivedAt)
		}
	}
	return ages
}
