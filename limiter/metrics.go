package limiter

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/counting"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// metrics are the instruments of a Limiter. A tenant or a user is never a label:
// the series are bounded by the policies in the topology.
type metrics struct {
	decisions, nearMiss        *counting.Counter[labels]
	exceeded, suspended        *counting.Counter[labels] // of bounds
	unknown, shared, partition metric.Int64Counter
	duration                   metric.Float64Histogram
}

// newMetrics creates the instruments on a meter. overflow and denials are read at each scrape.
func newMetrics(m metric.Meter, overflow, denials func() int) (*metrics, error) {
	var errs []error
	const decision = "{decision}"
	count := func(name, unit, help string) *counting.Counter[labels] {
		c, err := counting.New(m, name, unit, help, labels.set)
		errs = append(errs, err)
		return c
	}
	counter := func(name, help string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(decision), metric.WithDescription(help))
		errs = append(errs, err)
		return c
	}
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
		decisions: count("regiond.decisions", decision, "Decisions by policy, outcome, basis, mode and reason."),
		nearMiss:  count("regiond.near_misses", decision, "Allowed decisions that left at most 5 % of a limit."),
		shared:    counter("regiond.values_overflow", "Decisions of listed tenants with a dimension's value beyond max_values, in the shared partition."),
		unknown:   counter("regiond.unknown_overflow", "Decisions of unlisted tenants beyond max_unknown, in the shared partition."),
		partition: counter("regiond.partition_faults", "Decisions that met data in Redis that cannot be read."),
		exceeded:  count("regiond.bound.exceeded", "{unit}", "Units that reports charged beyond what the bound of a limit left."),
		suspended: count("regiond.bound.suspended", decision, "Checks allowed without the bound of a limit, while Redis was away or busy."),
	}
	var err error
	ms.duration, err = m.Float64Histogram("regiond.decision.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a resolved request to its decision, but for what was shed."),
		metric.WithExplicitBucketBoundaries(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1))
	ms.unknown.Add(context.Background(), 0) // there from the start, for rate()
	ms.shared.Add(context.Background(), 0)
	ms.partition.Add(context.Background(), 0)
	return ms, errors.Join(append(errs, err)...)
}

// bounded makes the series of each limit with a bound, so that an alert sees the first event.
func (m *metrics) bounded(c *Config) {
	add := func(p *quota.Policy) {
		for i := range p.Limits {
			if limit := &p.Limits[i]; limit.MaxOvershoot > 0 {
				m.exceeded.Add(labels{policy: p.Name, limit: limit.Name}, 0)
				m.suspended.Add(labels{policy: p.Name, limit: limit.Name}, 0)
			}
		}
	}
	for i := range c.Policies {
		add(&c.Policies[i])
	}
	for i := range c.Domains {
		add(c.Domains[i].Policy)
	}
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
	m.decisions.Add(l, 1)
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
			m.nearMiss.Add(labels{policy: d.Policy, limit: s.Limit.Name}, 1)
		}
		if s.Limit.MaxOvershoot > 0 && (d.Basis == quota.BasisLocal || d.Basis == quota.BasisOpen) {
			m.suspended.Add(labels{policy: d.Policy, limit: s.Limit.Name}, 1)
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
