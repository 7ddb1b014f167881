package limiter

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// What a decision about a global limit has to do with other regions: the ceiling it is made
// under, the bound that may lower that, and the usage that it publishes.

// globalLimit is a global limit of a query, where there are other regions.
type globalLimit struct {
	*quota.Ceiling
	limit *quota.Limit
	key   *quota.CounterKey
}

// globals are the global limits of a query by their places in the plan.
func (q *query) globals() iter.Seq2[int, globalLimit] {
	return func(yield func(int, globalLimit) bool) {
		n := 0
		for i := range q.ceilings {
			limit := q.limits.keys.Limits[i]
			if limit.Scope != quota.ScopeGlobal {
				continue
			}
			if !yield(i, globalLimit{&q.ceilings[i], limit, &q.call.Counters[n]}) {
				return
			}
			n++
		}
	}
}

// takeCeilings puts the ceilings of now into the call.
func (q *query) takeCeilings() { q.takeCeilingsOf(nil) }

// takeCeilingsOf takes those of limits with a calendar for the periods that count by a verdict; nil: for those of now, as far as known.
func (q *query) takeCeilingsOf(v *store.Verdict) {
	q.call.Known, q.call.Bounds, q.call.Periods = q.call.Known[:0], nil, q.call.Periods[:0]
	for i, g := range q.globals() {
		period := int64(0)
		if v != nil && v.Outcome == store.Elsewhen && g.limit.Calendar != nil {
			period = v.Limits[i].Counter.Bucket
		}
		*g.Ceiling = q.rules.Global.Ceiling(q.plan.policy, g.limit, g.key, q.request.Explain || q.request.Usage, period)
		q.call.Ceilings[i], q.call.Known = g.Units, append(q.call.Known, g.Known)
		if g.limit.Calendar != nil {
			q.call.Periods = append(q.call.Periods, g.Period)
		}
		if g.Bounded {
			q.call.Bounds = append(q.call.Bounds, g.Bound)
		}
	}
}

// closed reports whether a policy that is closed while peers cannot be seen refuses
// the query. A report or a claim is always carried out, since its units are spent already.
func (q *query) closed() bool {
	return q.call.Op != store.OpReport && q.hold.ticket == nil && slices.ContainsFunc(q.ceilings, func(c quota.Ceiling) bool { return c.Closed })
}

// within returns the ceilings of the call, lowered to what a verdict shows that bounds left.
func (q *query) within(v *store.Verdict) []int64 {
	if len(q.call.Bounds) == 0 {
		return q.call.Ceilings
	}
	lowered := slices.Clone(q.call.Ceilings)
	for i := range v.Limits {
		if q.ceilings[i].Bounded {
			lowered[i] = min(lowered[i], v.Limits[i].Bounded)
		}
	}
	return lowered
}

// publishUsage records what the store held of the counters of global limits, also
// after a denial: that is how a process notices that Redis lost them. The counters in a
// replayed admission are as old as the admission, and not published; a settle that charges nothing reads none, and an extend those
// of limits that take holds.
func (q *query) publishUsage(ctx context.Context, v *store.Verdict) {
	if v.Outcome == store.Replayed || len(v.Limits) == 0 {
		return
	}
	if v.Outcome != store.Admitted && v.Outcome != store.Settled || q.looks() {
		ctx = context.Background() // the counter holds units of other requests only
	}
	for i, g := range q.globals() {
		if q.call.Op == store.OpExtend && !g.limit.Holds() {
			continue
		}
		q.rules.Global.Record(ctx, q.plan.policy, g.limit, g.key, v.Limits[i].Counter, v.Limits[i].Gauge, v.StoreUS)
	}
}

// countExceeded counts what a report or a settle charged beyond bounds.
func (l *Limiter) countExceeded(q *query, v *store.Verdict) {
	if (q.call.Op != store.OpReport || v.Outcome != store.Admitted) && v.Outcome != store.Settled {
		return
	}
	for i, g := range q.globals() {
		if over := v.Limits[i].Over; g.Bounded && over > 0 {
			l.metrics.exceeded.Add(labels{policy: q.plan.policy.Name, limit: g.limit.Name}, over)
		}
	}
}

// showBounds reports what a check shows of limits with a bound. v is nil for a remembered denial.
func (q *query) showBounds(limits []quota.LimitState, v *store.Verdict) {
	for i, g := range q.globals() {
		if !g.Bounded {
			continue
		}
		s := &limits[q.limits.keys.Order[i]]
		bound := s.Ceiling
		if v != nil { // the ceiling may be lower: then the bound has units left of those that deny
			bound = v.Limits[i].Bounded
		}
		left := bound - s.Used()
		q.rules.Global.Asked(g.key, loan.Ask{
			Units: q.costOf(i), Denied: s.Denied && left < q.costOf(i), Charged: v != nil && v.Outcome == store.Admitted,
			Remaining: max(0, left), Ceiling: bound, Share: g.Bound.Share,
		})
	}
}

// lendersAnswer is when a check that a burnt region denies should be asked again: the denial has asked the others, whose
// answer takes a round trip.
const lendersAnswer = time.Second

// showClosed reports which bounds leave nothing of the region's own share, and when a check that they deny should be asked again:
//
//	closed                          in a second
//	burnt, other regions are seen   in lendersAnswer: they lend what is free at once, and the end may be a month away
//	burnt, none is seen             at the end; in a second where that is beyond Keep, by a clock that was set back since
//	neither, and C is 0             in lendersAnswer: all of the share is lent, or the store goes by another epoch or clock
//	neither, of a calendar          in lendersAnswer while others are seen and not known to have used the rest of the limit: no unit
//	                                comes free before the period ends, but they lend what they do not use
func (q *query) showClosed(v *store.Verdict, d *quota.Decision) {
	for i, g := range q.globals() {
		if !g.Bounded {
			continue
		}
		s := &d.Limits[q.limits.keys.Order[i]]
		why, left := g.Bound.Closed(v.StoreUS)
		keep := time.Duration(loan.TermsOfLimit(g.limit).Keep()) * time.Microsecond
		switch s.Reason = why; {
		case !s.Denied || s.Used()+q.costOf(i) <= v.Limits[i].Bounded:
		case why == quota.ReasonNone:
			inPeriod := g.limit.Calendar != nil && g.Lenders && s.Used()+q.costOf(i) <= g.Local
			if inPeriod || v.Limits[i].Bounded == 0 && (g.Bound.Share > 0 || g.Lenders) {
				s.RetryAfter = min(s.RetryAfter, lendersAnswer)
			}
		case why == quota.ReasonBoundBurnt && g.Lenders:
			s.RetryAfter = min(left, lendersAnswer)
		case left == 0 || left > keep:
			s.RetryAfter = time.Second
		default:
			s.RetryAfter = left
		}
	}
}

// shortenRetryAfter takes, for each global limit that denies, the earlier of two
// moments: enough of this region's own units have aged out (the store's answer), or
// the ceiling has grown enough because peers' usage has aged out. Each is sufficient
// if nobody spends more; the exact moment, with both together, can be earlier still. Where a
// bound has to grow, its own units are what counts.
func (q *query) shortenRetryAfter(v *store.Verdict, d *quota.Decision) {
	for i, g := range q.globals() {
		s := &d.Limits[q.limits.keys.Order[i]]
		needed := s.Used() + q.costOf(i)
		if g.limit.Calendar != nil { // nothing frees units before the next period
			continue
		}
		if bounds := g.Bounded && needed > v.Limits[i].Bounded; s.Denied && needed <= g.limit.Units && !bounds {
			s.RetryAfter = min(s.RetryAfter, q.rules.Global.Grows(q.plan.policy, g.limit, g.key, needed))
		}
	}
}

// costOf is what the query asks of the i-th limit of the plan, to charge or to hold.
func (q *query) costOf(i int) int64 {
	charged, held := q.call.Share(q.limits.keys.KeyOf[i])
	return charged + held
}
