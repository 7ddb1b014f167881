package limiter

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// metrics are the instruments of a Limiter. A tenant or a user is never a label:
// the series are bounded by the policies in the topology.
type metrics struct {
	decisions, nearMiss, near  *instruments.CounterOf[labels]
	exceeded, suspended        *instruments.CounterOf[labels] // of bounds
	reserved, charged          *instruments.CounterOf[string] // of reservations, by policy
	overrun, expired, late     *instruments.CounterOf[string]
	used                       metric.Float64Histogram
	unknown, shared, partition *instruments.Counter
	unclaimed                  *instruments.Counter
	duration                   metric.Float64Histogram
}

// newMetrics creates the instruments of a limiter on a meter.
func newMetrics(m metric.Meter, l *Limiter) (*metrics, error) {
	const decision = "{decision}"
	i, made := instruments.On(m), &metrics{} // a scrape may come before l has them
	of := func(name, unit, help string) *instruments.CounterOf[labels] {
		return instruments.Of(i, name, unit, help, labels.set)
	}
	ofPolicy := func(name, unit, help string) *instruments.CounterOf[string] {
		return instruments.Of(i, name, unit, help, func(policy string) attribute.Set { return attribute.NewSet(attribute.String("policy", policy)) })
	}
	gauge := func(name, unit, help string, read func() int) {
		i.Gauge(name, unit, help, func(observe instruments.Observe) { observe(float64(read())) })
	}
	i.Gauge("regiond.limit.units", "{unit}", "Units of each limit in force, without overrides.", func(observe instruments.Observe) {
		for p := range l.rules.Load().policies() {
			for i := range p.Limits {
				observe(float64(p.Limits[i].Units), "policy", p.Name, "limit", p.Limits[i].Name)
			}
		}
	})
	i.Gauge("regiond.reservations.open", "{reservation}", "Reservations of this process that are neither settled in it nor over.",
		func(observe instruments.Observe) {
			open := l.open.count(l.localUS(), made.ended)
			for p := range l.rules.Load().policies() {
				if p.Reserves() {
					observe(float64(open[p.Name]), "policy", p.Name)
				}
			}
		})
	gauge("regiond.unknown_partitions", "{partition}", "Live partitions of tenants that are not listed.", l.overflow.size)
	gauge("regiond.settles_pending", "{settle}", "Settles that are charged when Redis is back.", l.pending.size)
	gauge("regiond.denials_remembered", "{denial}", "Denials in memory, ended ones not yet dropped among them.", func() int { return l.denyCache.size(l.now()) })
	*made = metrics{
		decisions: of("regiond.decisions", decision, "Decisions by policy, outcome, basis, mode and reason."),
		nearMiss:  of("regiond.near_misses", decision, "Allowed decisions that left at most 5 % of a limit."),
		near:      of("regiond.near", "{tenant}", "Times that a tenant came near a limit, as its `near` says."),
		shared: i.Counter("regiond.values_overflow", decision,
			"Decisions of listed tenants with a dimension's value beyond max_values, in the shared partition."),
		unknown: i.Counter("regiond.unknown_overflow", decision,
			"Decisions of unlisted tenants beyond max_unknown, in the shared partition."),
		unclaimed: i.Counter("regiond.policy_from.unknown", decision,
			"Decisions under the tenant's own policy, since no policy has the value that policy_from found."),
		partition: i.Counter("regiond.partition_faults", decision, "Decisions that met data in Redis that cannot be read."),
		exceeded:  of("regiond.bound.exceeded", "{unit}", "Units that reports and settles charged beyond what the bound of a limit left."),
		reserved:  ofPolicy("regiond.reservations.reserved", "{unit}", "Units that reservations held when they were made."),
		charged:   ofPolicy("regiond.reservations.settled", "{unit}", "Units that settles charged, or will when Redis is back."),
		overrun:   ofPolicy("regiond.reservations.overrun", "{unit}", "Units of them that were above what was held."),
		expired:   ofPolicy("regiond.reservations.expired", "{unit}", "Units that reservations of this process held when they ended without a settle."),
		late: ofPolicy("regiond.reservations.late", "{reservation}",
			"Settles of reservations that had ended by themselves, or are held elsewhere."),
		used: i.Histogram("regiond.reservations.used_ratio", "", "What a settle charged, relative to what was held.",
			0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.25, 1.5, 2, 5),
		suspended: of("regiond.bound.suspended", decision,
			"Checks allowed without the bound of a limit, while Redis was away or busy."),
		duration: i.Histogram("regiond.decision.duration", "s",
			"Time from a resolved request to its decision, but for what was shed.",
			0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
	}
	return made, i.Err()
}

// begin makes the series of each limit with a bound or near, and of each policy with reservations, so that an alert sees the first event.
func (m *metrics) begin(r *rules) {
	for p := range r.policies() {
		if p.Reserves() {
			for _, n := range [...]*instruments.CounterOf[string]{m.reserved, m.charged, m.overrun, m.expired, m.late} {
				n.Add(p.Name, 0)
			}
		}
		for i := range p.Limits {
			limit := &p.Limits[i]
			if limit.Near > 0 {
				m.near.Add(labels{policy: p.Name, limit: limit.Name}, 0)
			}
			if limit.MaxOvershoot > 0 {
				m.exceeded.Add(labels{policy: p.Name, limit: limit.Name}, 0)
				m.suspended.Add(labels{policy: p.Name, limit: limit.Name}, 0)
			}
		}
	}
}

// settled counts a settle.
func (m *metrics) settled(ctx context.Context, q *query, s *quota.Settlement) {
	policy := q.plan.policy.Name
	m.charged.Add(policy, q.request.Cost)
	m.overrun.Add(policy, max(0, q.request.Cost-q.hold.ticket.amount))
	if !s.Released && !s.Pending {
		m.late.Add(policy, 1)
	}
	m.used.Record(ctx, float64(q.request.Cost)/float64(q.hold.ticket.amount), instruments.Labels("policy", policy))
}

// ended counts a reservation that nobody has settled here.
func (m *metrics) ended(r openReservation) { m.expired.Add(r.policy, r.units) }

// decided counts a decision. Peeks decide nothing and are not counted. ctx is the
// request's, so that a sampled one becomes an exemplar.
func (m *metrics) decided(ctx context.Context, d *quota.Decision, q *query, took time.Duration) {
	if q.looks() {
		return
	}
	l := labels{policy: d.Policy, decision: d.Label(), basis: d.Basis, mode: d.Mode, reason: d.Reason}
	switch {
	case d.Basis == quota.BasisShed:
	case q.call.Op == store.OpReport:
		l.decision = "reported"
	case q.call.Op == store.OpRefund:
		l.decision = "refunded"
	case d.Settlement != nil:
		l.decision = "settled"
	case d.Reservation != nil && q.hold.ticket != nil:
		l.decision = "extended"
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
