package limiter

import (
	"context"
	"time"

	"github.com/regiond/regiond/quota"
)

// Global is what a limiter needs of the other regions. Its methods are called
// for each decision about a global limit; they do not wait for anything, and are
// safe for concurrent use.
type Global interface {
	// Ceiling is how far this region may go now under the global limit l of policy
	// p in the partition whose usage total has this key. explain asks for the terms.
	Ceiling(p *quota.Policy, l *quota.Limit, total string, explain bool) quota.Ceiling
	// Grows is how long from now until the ceiling reaches units, if nobody spends
	// anything meanwhile; at most l.Window.
	Grows(p *quota.Policy, l *quota.Limit, total string, units int64) time.Duration
	// Record is told what the store held of the total at its TIME storeUS, whether
	// or not a decision has just charged it; the zero Total for nothing. When one has,
	// ctx is that of its request, which may hold a span; else it holds none.
	Record(ctx context.Context, p *quota.Policy, l *quota.Limit, total string, t quota.Counter, storeUS int64)
	// Local is told what this process admitted by itself while the store is away, for
	// the request that ctx is of.
	Local(ctx context.Context, p *quota.Policy, l *quota.Limit, total string, units int64)
}

// eachGlobal calls do for each global limit of a call's shape, with the limit's
// place in the shape and the key of its total.
func (q *query) eachGlobal(do func(i int, l *quota.Limit, total string)) {
	if len(q.call.Totals) == 0 {
		return
	}
	n := 0
	for i, l := range q.shapes.shape.limits {
		if l.Scope == quota.ScopeGlobal {
			do(i, l, q.call.Totals[n])
			n++
		}
	}
}

// closed reports whether a policy that is closed while blind refuses the query.
// A report is no question: its units are spent already.
func (q *query) closed() bool {
	if q.call.Op == OpReport {
		return false
	}
	for i := range q.ceilings {
		if q.ceilings[i].Closed {
			return true
		}
	}
	return false
}

// refuse is the decision of a policy that is closed while blind.
func (l *Limiter) refuse(rules *rules, q *query) quota.Decision {
	d := q.blanket(false)
	q.see(&d)
	d.Basis = quota.BasisClosed
	carryOut(&d)
	l.explain(rules, q, &d)
	return d
}

// share tells the other regions' side what the store said of the totals. What an
// admission that is replayed says of them is as old as the admission.
func (r *rules) share(ctx context.Context, q *query, v *Verdict) {
	if r.Global == nil || v.Outcome == replayed {
		return
	}
	if v.Outcome != admitted || q.call.Op == OpPeek {
		ctx = context.Background() // what the total holds is of other requests
	}
	q.eachGlobal(func(i int, l *quota.Limit, total string) {
		r.Global.Record(ctx, q.plan.policy, l, total, v.Limits[i].Total, v.StoreUS)
	})
}

// patience shortens the wait of a denial by a global limit to the earlier of two
// moments: enough of this region's own units have aged out (the wait so far), or
// what the others used has faded enough. Either is sound if nobody spends more.
func (r *rules) patience(q *query, v *Verdict, d *quota.Decision) {
	if r.Global == nil || v.Outcome != denied {
		return
	}
	q.eachGlobal(func(i int, l *quota.Limit, total string) {
		s := &d.Limits[q.shapes.shape.order[i]]
		used := s.Ceiling - s.Remaining + v.Limits[i].Over
		if needed := used + q.call.Cost; s.Denied && needed <= l.Units {
			s.RetryAfter = min(s.RetryAfter, r.Global.Grows(q.plan.policy, l, total, needed))
		}
	})
}
