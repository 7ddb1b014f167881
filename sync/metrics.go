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
	kindUsage     = "usage"     // totals that changed
	kindSnapshot  = "snapshot"  // a chunk of all of them
	kindHeartbeat = "heartbeat" // a beat
	kindRequest   = "request"   // for a digest
)

// metrics are the room's instruments, without those of the ledger and the bus. In
// Prometheus they are called
//
//	regiond_sync_published_total{kind}           messages that the bus took
//	regiond_sync_published_bytes_total{kind}     their size
//	regiond_sync_publish_errors_total            messages that it did not take, and
//	                                             counters too large for any
//	regiond_sync_received_total{kind,region}     messages that were used, by author
//	regiond_sync_received_bytes_total{kind,region}
//	regiond_sync_refused_total{reason}           messages that were not
//	regiond_sync_gaps_total{region}              times that messages were missing
//	regiond_sync_snapshots_merged_total{region}    whole snapshots, by author
//	regiond_sync_snapshots_published_total         snapshots of our own that we began
//	regiond_sync_peer_age_seconds{region}        since its most silent process was heard
type metrics struct {
	meter                             metric.Meter
	published, publishedBytes, errors metric.Int64Counter
	received, receivedBytes           metric.Int64Counter
	refusals, gaps, merged, begun     metric.Int64Counter
	age                               metric.Float64ObservableGauge
	labels                            map[labels]metric.MeasurementOption // built once each; of the mesh's goroutine
}

// labels are up to two names and values.
type labels [4]string

func newMetrics(meter metric.Meter) (*metrics, error) {
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	m := &metrics{
		meter:          meter,
		labels:         map[labels]metric.MeasurementOption{},
		published:      counter("regiond.sync.published", "{message}", "Messages handed to the bus, by kind."),
		publishedBytes: counter("regiond.sync.published_bytes", "By", "Bytes handed to the bus, by kind."),
		errors:         counter("regiond.sync.publish_errors", "{message}", "Messages that the bus did not take."),
		received:       counter("regiond.sync.received", "{message}", "Messages of others that were used, by kind and author."),
		receivedBytes:  counter("regiond.sync.received_bytes", "By", "Bytes of others' messages that were used, by kind and author."),
		refusals:       counter("regiond.sync.refused", "{message}", "Messages that changed nothing, by reason."),
		gaps:           counter("regiond.sync.gaps", "{gap}", "Times that messages of an author were missing, or out of order."),
		merged:         counter("regiond.sync.snapshots_merged", "{snapshot}", "Whole snapshots that were merged, by author."),
		begun:          counter("regiond.sync.snapshots_published", "{snapshot}", "Snapshots of our own that were begun."),
	}
	var err error
	m.age, err = meter.Float64ObservableGauge("regiond.sync.peer_age", metric.WithUnit("s"),
		metric.WithDescription("Time since a region's most silent process was heard."))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	m.zero()
	return m, nil
}

// refusalReasons are all words that refused may be told: those of package wire, of
// the peerTable and of the ledger, and what is left.
func refusalReasons() []string {
	reasons := []string{reasonUnknownRegion, reasonStale, reasonCrowded, "future", "regions", reasonFold}
	for _, r := range wire.Reasons() {
		reasons = append(reasons, string(r))
	}
	return reasons
}

// zero has the counters there from the start, for rate().
func (m *metrics) zero() {
	for _, reason := range refusalReasons() {
		count(m.refusals, 0, m.with(labels{"reason", reason}))
	}
	for _, kind := range []string{kindUsage, kindSnapshot, kindHeartbeat, kindRequest} {
		count(m.published, 0, m.with(labels{"kind", kind}))
		count(m.publishedBytes, 0, m.with(labels{"kind", kind}))
	}
	count(m.errors, 0, m.with(labels{}))
	count(m.begun, 0, m.with(labels{}))
}

// meet does the same for what is counted by region, once one is heard.
func (m *metrics) meet(region string) {
	count(m.gaps, 0, m.with(labels{"region", region}))
	count(m.merged, 0, m.with(labels{"region", region}))
}

// observe has the gauge show ages until the returned function is called.
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

// ages is how long ago each region's most silent process was heard.
func (m *Mesh) ages() map[string]time.Duration {
	now, ages := m.o.Now(), map[string]time.Duration{}
	for _, p := range m.Peers() {
		ages[p.Region] = max(ages[p.Region], now-p.ReceivedAt)
	}
	return ages
}

func (m *metrics) sent(kind string, bytes int) {
	with := m.with(labels{"kind", kind})
	count(m.published, 1, with)
	count(m.publishedBytes, bytes, with)
}

func (m *metrics) notSent() { count(m.errors, 1, m.with(labels{})) }

func (m *metrics) receivedFrom(kind, region string, bytes int) {
	with := m.with(labels{"kind", kind, "region", region})
	count(m.received, 1, with)
	count(m.receivedBytes, bytes, with)
}

func (m *metrics) refused(reason string) { count(m.refusals, 1, m.with(labels{"reason", reason})) }

func (m *metrics) gap(region string) { count(m.gaps, 1, m.with(labels{"region", region})) }

func (m *metrics) snapshotMerged(region string) { count(m.merged, 1, m.with(labels{"region", region})) }

func (m *metrics) snapshotBegun() { count(m.begun, 1, m.with(labels{})) }

// with is the labels as an instrument takes them. There are as many as kinds, reasons
// and regions of the topology allow.
func (m *metrics) with(l labels) metric.MeasurementOption {
	with, ok := m.labels[l]
	if !ok {
		var attrs []attribute.KeyValue
		for i := 0; i < len(l) && l[i] != ""; i += 2 {
			attrs = append(attrs, attribute.String(l[i], l[i+1]))
		}
		with = metric.WithAttributeSet(attribute.NewSet(attrs...))
		m.labels[l] = with
	}
	return with
}

func count(c metric.Int64Counter, n int, with metric.MeasurementOption) {
	c.Add(context.Background(), int64(n), with)
}
