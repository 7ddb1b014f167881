package sync

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/sync/wire"
)

// The kinds of messages, as metrics name them.
const (
	kindUsage     = "usage"    // counters that changed
	kindSnapshot  = "snapshot" // a chunk of a snapshot
	kindHeartbeat = "heartbeat"
	kindRequest   = "request" // for a snapshot
	kindLoan      = "loan"    // wants, grants and returns
)

// metrics are the mesh's own instruments; docs/observe.md describes them, and those of the
// ledger and the bus.
type metrics struct {
	meter                             metric.Meter
	published, publishedBytes, errors metric.Int64Counter
	received, receivedBytes           metric.Int64Counter
	refusals, gaps, merged, begun     metric.Int64Counter
	loansDropped                      metric.Int64Counter
	age                               metric.Float64ObservableGauge
}

func newMetrics(meter metric.Meter) (*metrics, error) {
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	m := &metrics{
		meter:          meter,
		published:      counter("regiond.sync.published", "{message}", "Messages handed to the bus, by kind."),
		publishedBytes: counter("regiond.sync.published_bytes", "By", "Bytes handed to the bus, by kind."),
		errors:         counter("regiond.sync.publish_errors", "{message}", "Messages that the bus did not take."),
		received:       counter("regiond.sync.received", "{message}", "Messages of others that were used, by kind and author."),
		receivedBytes:  counter("regiond.sync.received_bytes", "By", "Bytes of others' messages that were used, by kind and author."),
		refusals:       counter("regiond.sync.refused", "{message}", "Messages that changed nothing, by reason."),
		gaps:           counter("regiond.sync.gaps", "{gap}", "Times that changes of an author were missing, or out of order."),
		merged:         counter("regiond.sync.snapshots_merged", "{snapshot}", "Whole snapshots that were merged, by author."),
		begun:          counter("regiond.sync.snapshots_published", "{snapshot}", "Snapshots of our own that were begun."),
		loansDropped:   counter("regiond.sync.loans_dropped", "{loan}", "Wants, grants and returns that were not published: the bus was away, or too many waited."),
	}
	var err error
	m.age, err = meter.Float64ObservableGauge("regiond.sync.peer_age", metric.WithUnit("s"),
		metric.WithDescription("Time since a region's most silent process was received from."))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	for _, reason := range refusalReasons() { // zeros from the start, for rate()
		count(m.refusals, 0, "reason", reason)
	}
	for _, kind := range []string{kindUsage, kindSnapshot, kindHeartbeat, kindRequest, kindLoan} {
		count(m.published, 0, "kind", kind)
		count(m.publishedBytes, 0, "kind", kind)
	}
	count(m.errors, 0)
	count(m.begun, 0)
	count(m.loansDropped, 0)
	return m, nil
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

// observe registers ages for the gauge until the returned function is called.
func (m *metrics) observe(ages func() map[string]time.Duration) (unregister func(), err error) {
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for region, age := range ages() {
			o.ObserveFloat64(m.age, age.Seconds(), metric.WithAttributes(attribute.String("region", region)))
		}
		return nil
	}, m.age)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = registration.Unregister() // its only error is that it was called before
	}, nil
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
