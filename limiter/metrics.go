package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
)

// Metrics are the instruments of this room. A tenant or a user is never a label:
// the series are bounded by the policies in the topology.
type Metrics struct {
	store     storeMetrics
	decisions metric.Int64Counter
	duration  metric.Float64Histogram
	nearMiss  metric.Int64Counter
	unknown   metric.Int64Counter
	partition metric.Int64Counter
	meter     metric.Meter

	known sync.Map // decisionLabels → metric.MeasurementOption, built once each
}

type decisionLabels struct {
	policy   string
	decision string
	basis    quota.Basis
	mode     quota.Mode
	reason   quota.Reason
}

// NewMetrics creates the instruments of the room on a meter.
func NewMetrics(m metric.Meter) (*Metrics, error) {
	var errs []error
	counter := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, unit, help string, bounds ...float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help),
			metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	ms := &Metrics{
		meter:     m,
		decisions: counter("regiond.decisions", "{decision}", "Decisions by policy, outcome, basis, mode and reason."),
		nearMiss:  counter("regiond.near_misses", "{decision}", "Allowed decisions that left at most 5 % of a limit."),
		unknown:   counter("regiond.unknown_overflow", "{decision}", "Decisions of unlisted tenants beyond max_unknown, in the shared partition."),
		partition: counter("regiond.partition_faults", "{decision}", "Decisions that met data in Redis that cannot be read."),
		duration: histogram("regiond.decision.duration", "s", "Time from a resolved request to its decision.",
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
		store: storeMetrics{
			duration: histogram("regiond.redis.duration", "s", "Time of one script call to Redis and back.",
				0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
			batch: histogram("regiond.redis.batch", "{check}", "Checks that travelled together in one script call.",
				1, 2, 4, 8, 16, 32, 64, 128),
			failures: counter("regiond.redis.failures", "{call}", "Script calls that Redis did not answer or refused, by reason."),
			unknown:  counter("regiond.redis.ambiguous", "{check}", "Checks that were sent and whose reply was lost: charged or not, nobody knows."),
			reloads:  counter("regiond.redis.script_loads", "{load}", "Times that Redis had forgotten the decision script."),
		},
	}
	return ms, errors.Join(errs...)
}

// storeMetrics are those of RedisStore.
type storeMetrics struct {
	duration, batch            metric.Float64Histogram
	failures, unknown, reloads metric.Int64Counter
}

func (m *storeMetrics) called(took time.Duration, calls int, err error) {
	ctx := context.Background()
	m.duration.Record(ctx, took.Seconds())
	m.batch.Record(ctx, float64(calls))
	if e := (*StoreError)(nil); errors.As(err, &e) {
		m.failures.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", e.Reason.String())))
	}
}

func (m *storeMetrics) ambiguous(calls int) { m.unknown.Add(context.Background(), int64(calls)) }

func (m *storeMetrics) reloaded() { m.reloads.Add(context.Background(), 1) }

// watchBreaker exports whether Redis is being asked.
func (m *Metrics) watchBreaker(open func() bool) {
	m.watch("regiond.redis.breaker_open", "1 while Redis is away and fail modes answer.", func() int64 {
		if open() {
			return 1
		}
		return 0
	})
}

func (m *Metrics) watchUnknown(size func() int) {
	m.watch("regiond.unknown_partitions", "Live partitions of tenants that are not listed.", func() int64 { return int64(size()) })
}

// watch registers a gauge that is read at each scrape. The SDK refuses only bad
// names, and these are constants, which a test holds.
func (m *Metrics) watch(name, help string, read func() int64) {
	_, err := m.meter.Int64ObservableGauge(name, metric.WithDescription(help),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(read())
			return nil
		}))
	if err != nil {
		panic(fmt.Sprintf("metric %s: %v", name, err))
	}
}

// prepare forgets the label sets of policies that are gone.
func (m *Metrics) prepare(policies []quota.Policy) {
	names := make(map[string]bool, len(policies))
	for i := range policies {
		names[policies[i].Name] = true
	}
	m.known.Range(func(k, _ any) bool {
		if !names[k.(decisionLabels).policy] {
			m.known.Delete(k)
		}
		return true
	})
}

// decided counts a decision. Peeks decide nothing and are not counted.
func (m *Metrics) decided(d *quota.Decision, op Op, took time.Duration) {
	if op == OpPeek {
		return
	}
	ctx := context.Background()
	labels := decisionLabels{policy: d.Policy, decision: "allowed", basis: d.Basis, mode: d.Mode, reason: d.Reason}
	switch {
	case op == OpReport:
		labels.decision = "reported"
	case d.WouldDeny:
		labels.decision = "would_deny"
	case !d.Allowed:
		labels.decision = "denied"
	}
	option, ok := m.known.Load(labels)
	if !ok {
		option, _ = m.known.LoadOrStore(labels, metric.WithAttributeSet(labels.set()))
	}
	m.decisions.Add(ctx, 1, option.(metric.AddOption))
	m.duration.Record(ctx, took.Seconds())
	if labels.decision != "allowed" {
		return
	}
	for i := range d.Limits {
		if s := &d.Limits[i]; s.Remaining*20 <= s.Limit.Capacity() {
			m.nearMiss.Add(ctx, 1, metric.WithAttributes(
				attribute.String("policy", d.Policy), attribute.String("limit", s.Limit.Name)))
		}
	}
}

func (l decisionLabels) set() attribute.Set {
	attrs := []attribute.KeyValue{
		attribute.String("policy", l.policy), attribute.String("decision", l.decision),
		attribute.String("basis", l.basis.String()), attribute.String("mode", l.mode.String()),
	}
	if l.reason != quota.ReasonNone {
		attrs = append(attrs, attribute.String("reason", l.reason.String()))
	}
	return attribute.NewSet(attrs...)
}

func (m *Metrics) overflowed() { m.unknown.Add(context.Background(), 1) }

func (m *Metrics) unreadable() { m.partition.Add(context.Background(), 1) }
