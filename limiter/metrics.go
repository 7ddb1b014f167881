package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
)

// Metrics are the instruments of this package. A tenant or a user is never a label:
// the series are bounded by the policies in the topology.
type Metrics struct {
	store     storeMetrics
	decisions metric.Int64Counter
	duration  metric.Float64Histogram
	nearMiss  metric.Int64Counter
	unknown   metric.Int64Counter
	partition metric.Int64Counter
	meter     metric.Meter

	known labelSets[decisionLabels]
	near  labelSets[limitLabels]
}

// NewMetrics creates the instruments on a meter.
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
			batch: histogram("regiond.redis.batch_checks", "{check}", "Checks that travelled together in one script call.",
				1, 2, 4, 8, 16, 32, 64, 128),
			failures: counter("regiond.redis.failures", "{call}", "Script calls that Redis did not answer or refused, by reason."),
			unknown:  counter("regiond.redis.ambiguous", "{check}", "Checks that were sent and whose reply was lost: whether they were charged is unknown."),
			reloads:  counter("regiond.redis.script_loads", "{load}", "Times that Redis had forgotten the decision script."),
			losses:   counter("regiond.redis.losses", "{loss}", "Times that Redis had lost writes that it had confirmed: flushed, restarted without its data, or failed over to a replica that was behind."),
			outages:  counter("regiond.redis.outages", "{outage}", "Times that Redis was given up and fail modes began to answer."),
		},
	}
	return ms, errors.Join(errs...)
}

// storeMetrics are those of RedisStore.
type storeMetrics struct {
	duration, batch            metric.Float64Histogram
	failures, unknown, reloads metric.Int64Counter
	outages, losses            metric.Int64Counter
	reasons                    map[quota.Reason]metric.AddOption
}

// begin has the counters there from the start, for rate(). A process that keeps
// usage in memory has no Redis, and shows none of them.
func (m *storeMetrics) begin() {
	ctx := context.Background()
	for _, c := range []metric.Int64Counter{m.unknown, m.reloads, m.outages, m.losses} {
		c.Add(ctx, 0)
	}
	m.reasons = make(map[quota.Reason]metric.AddOption)
	for _, r := range []quota.Reason{quota.ReasonRedisTimeout, quota.ReasonRedisDown, quota.ReasonRedisRefused} {
		m.reasons[r] = metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", r.String())))
		m.failures.Add(ctx, 0, m.reasons[r])
	}
}

// called counts a script call. ctx is the call's, so that its span becomes an exemplar.
func (m *storeMetrics) called(ctx context.Context, took time.Duration, calls int, err error) {
	m.duration.Record(ctx, took.Seconds())
	m.batch.Record(ctx, float64(calls))
	if e := (*StoreError)(nil); errors.As(err, &e) {
		m.failures.Add(ctx, 1, m.reasons[e.Reason])
	}
}

// watchBreaker exports whether Redis is being asked.
func (m *Metrics) watchBreaker(open func() bool) {
	m.watch("regiond.redis.breaker_open", "", "1 while Redis is away and fail modes answer.", func() int64 {
		if open() {
			return 1
		}
		return 0
	})
}

// watchLimiter exports how much a Limiter holds in memory for those who are not
// listed and for those who were denied.
func (m *Metrics) watchLimiter(unknown, denials func() int) {
	m.watch("regiond.unknown_partitions", "{partition}", "Live partitions of tenants that are not listed.",
		func() int64 { return int64(unknown()) })
	m.watch("regiond.denials_remembered", "{denial}", "Denials in memory, ended ones not yet dropped among them.",
		func() int64 { return int64(denials()) })
	ctx := context.Background()
	m.unknown.Add(ctx, 0)
	m.partition.Add(ctx, 0)
}

// watch registers a gauge that is read at each scrape. The SDK refuses only bad
// names, and these are constants, which a test holds.
func (m *Metrics) watch(name, unit, help string, read func() int64) {
	_, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help),
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
	m.known.keep(func(l decisionLabels) bool { return names[l.policy] })
	m.near.keep(func(l limitLabels) bool { return names[l.policy] })
}

// decided counts a decision. Peeks decide nothing and are not counted. ctx is the
// request's, so that a sampled one becomes an exemplar.
func (m *Metrics) decided(ctx context.Context, d *quota.Decision, op Op, took time.Duration) {
	if op == OpPeek {
		return
	}
	labels := decisionLabels{policy: d.Policy, decision: "allowed", basis: d.Basis, mode: d.Mode, reason: d.Reason}
	switch {
	case op == OpReport:
		labels.decision = "reported"
	case d.WouldDeny:
		labels.decision = "would_deny"
	case !d.Allowed:
		labels.decision = "denied"
	}
	m.decisions.Add(ctx, 1, m.known.of(labels)...)
	m.duration.Record(ctx, took.Seconds())
	if labels.decision != "allowed" {
		return
	}
	for i := range d.Limits {
		if s := &d.Limits[i]; s.Remaining*20 <= s.Limit.Capacity() {
			m.nearMiss.Add(ctx, 1, m.near.of(limitLabels{d.Policy, s.Limit.Name})...)
		}
	}
}

// decisionLabels are the labels of regiond_decisions_total: bounded by the policies
// of the topology, never a tenant.
type decisionLabels struct {
	policy   string
	decision string
	basis    quota.Basis
	mode     quota.Mode
	reason   quota.Reason
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

// limitLabels are the labels of what is counted by limit.
type limitLabels struct{ policy, limit string }

func (l limitLabels) set() attribute.Set {
	return attribute.NewSet(attribute.String("policy", l.policy), attribute.String("limit", l.limit))
}

// labels can be made into an attribute set.
type labels interface {
	comparable
	set() attribute.Set
}

// labelSets remembers the attribute set of each combination of labels that was ever
// counted, so that a decision builds none: one map lookup, no lock, no allocation.
// Safe for concurrent use.
type labelSets[L labels] struct {
	sets atomic.Pointer[map[L][]metric.AddOption] // replaced, never changed

	mu sync.Mutex // of those who replace it
}

// of returns the options that count under l.
func (s *labelSets[L]) of(l L) []metric.AddOption {
	if known := s.sets.Load(); known != nil {
		if options, ok := (*known)[l]; ok {
			return options
		}
	}
	options := []metric.AddOption{metric.WithAttributeSet(l.set())}
	s.replace(func(sets map[L][]metric.AddOption) { sets[l] = options })
	return options
}

// keep forgets the combinations that are not wanted any more.
func (s *labelSets[L]) keep(wanted func(L) bool) {
	s.replace(func(sets map[L][]metric.AddOption) {
		maps.DeleteFunc(sets, func(l L, _ []metric.AddOption) bool { return !wanted(l) })
	})
}

// replace changes a copy of the map and makes it the one in use.
func (s *labelSets[L]) replace(change func(sets map[L][]metric.AddOption)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[L][]metric.AddOption)
	if known := s.sets.Load(); known != nil {
		maps.Copy(next, *known)
	}
	change(next)
	s.sets.Store(&next)
}
