package limiter

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// metrics are the instruments of a Limiter. A tenant or a user is never a label:
// the series are bounded by the policies in the topology.
type metrics struct {
	decisions, nearMiss, unknown, partition metric.Int64Counter
	exceeded, suspended                     metric.Int64Counter // of bounds
	duration                                metric.Float64Histogram
	labels                                  labelSets
}

// newMetrics creates the instruments on a meter. overflow and denials are read at each scrape.
func newMetrics(m metric.Meter, overflow, denials func() int) (*metrics, error) {
	var errs []error
	count := func(name, unit, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
	counter := func(name, help string) metric.Int64Counter { return count(name, "{decision}", help) }
	gauge := func(name, unit, help string, read func() int) {
		_, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(int64(read()))
				return nil
			}))
		errs = append(errs, err)
	}
	gauge("regiond.unknown_partitions", "{partition}", "Live partitions of tenants that are not listed.", overflow)
	gauge("regiond.denials_remembered", "{denial}", "Denials in memory, ended ones not yet dropped among them.", denials)
	ms := &metrics{
		decisions: counter("regiond.decisions", "Decisions by policy, outcome, basis, mode and reason."),
		nearMiss:  counter("regiond.near_misses", "Allowed decisions that left at most 5 % of a limit."),
		unknown:   counter("regiond.unknown_overflow", "Decisions of unlisted tenants beyond max_unknown, in the shared partition."),
		partition: counter("regiond.partition_faults", "Decisions that met data in Redis that cannot be read."),
		exceeded:  count("regiond.bound.exceeded", "{unit}", "Units that reports charged beyond what the bound of a limit left."),
		suspended: counter("regiond.bound.suspended", "Checks allowed without the bound of a limit, while Redis was away or busy."),
	}
	var err error
	ms.duration, err = m.Float64Histogram("regiond.decision.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a resolved request to its decision, but for what was shed."),
		metric.WithExplicitBucketBoundaries(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1))
	ms.unknown.Add(context.Background(), 0) // there from the start, for rate()
	ms.partition.Add(context.Background(), 0)
	return ms, errors.Join(append(errs, err)...)
}

// decided counts a decision. Peeks decide nothing and are not counted. ctx is the
// request's, so that a sampled one becomes an exemplar.
func (m *metrics) decided(ctx context.Context, d *quota.Decision, op store.Op, took time.Duration) {
	if op == store.OpPeek {
		return
	}
	l := labels{policy: d.Policy, decision: d.Label(), basis: d.Basis, mode: d.Mode, reason: d.Reason}
	if op == store.OpReport && d.Basis != quota.BasisShed {
		l.decision = "reported"
	}
	m.decisions.Add(ctx, 1, m.labels.of(l)...)
	if d.Basis == quota.BasisShed { // nothing was decided
		return
	}
	m.duration.Record(ctx, took.Seconds())
	if l.decision != "allowed" {
		return
	}
	for i := range d.Limits {
		s := &d.Limits[i]
		if s.Remaining*20 <= s.Limit.Capacity() {
			m.nearMiss.Add(ctx, 1, m.labels.of(labels{policy: d.Policy, limit: s.Limit.Name})...)
		}
		if s.Limit.MaxOvershoot > 0 && (d.Basis == quota.BasisLocal || d.Basis == quota.BasisOpen) {
			m.suspended.Add(ctx, 1, m.labels.of(labels{policy: d.Policy, limit: s.Limit.Name})...)
		}
	}
}

// labels are those of a counter: bounded by the policies of the topology, never a tenant.
// With a limit it is what is counted by limit, and policy the only other.
type labels struct {
	policy, limit string
	decision      string
	basis         quota.Basis
	mode          quota.Mode
	reason        quota.Reason
}

func (l labels) set() attribute.Set {
	attrs := []attribute.KeyValue{attribute.String("policy", l.policy)}
	if l.limit != "" {
		return attribute.NewSet(append(attrs, attribute.String("limit", l.limit))...)
	}
	attrs = append(attrs, attribute.String("decision", l.decision),
		attribute.String("basis", l.basis.String()), attribute.String("mode", l.mode.String()))
	if l.reason != quota.ReasonNone {
		attrs = append(attrs, attribute.String("reason", l.reason.String()))
	}
	return attribute.NewSet(attrs...)
}

// labelSets remembers the attribute set of each combination of labels that was counted
// since the last reload, so that a decision builds none: one map lookup, no lock, no
// allocation. Safe for concurrent use.
type labelSets struct {
	sets atomic.Pointer[map[labels][]metric.AddOption] // replaced, never changed; nil when empty

	mu sync.Mutex // of those who replace it
}

// of returns the options that count under l.
func (s *labelSets) of(l labels) []metric.AddOption {
	if known := s.sets.Load(); known != nil {
		if options, ok := (*known)[l]; ok {
			return options
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[labels][]metric.AddOption{l: {metric.WithAttributeSet(l.set())}}
	if known := s.sets.Load(); known != nil {
		maps.Copy(next, *known)
	}
	s.sets.Store(&next)
	return next[l]
}

// forget drops all, so that those of policies that are gone do not pile up.
func (s *labelSets) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets.Store(nil)
}
