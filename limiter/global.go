package limiter

import (
	"context"
	"time"

	"github.com/regiond/regiond/quota"
)

// Global is what a limiter needs of the other regions. Its methods are called
// for each decision about a global limit; they never block, are safe for concurrent
// use, and do not keep the key.
type Global interface {
	// Ceiling is how far this region may go now under the global limit l of policy
	// p in the partition with this counter. explain asks for the terms.
	Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, explain bool) quota.Ceiling
	// Grows is how long from now until the ceiling reaches units, if nobody spends
	// anything meanwhile; at most l.Window.
	Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration
	// Record publishes what the store held of the counter at its TIME storeUS, the zero
	// Counter for nothing, after each decision, charged or not. ctx is that of the
	// request if it was charged, for its span, and context.Background() otherwise.
	Record(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, c quota.Counter, storeUS int64)
	// Local publishes what this process admitted in memory while the store was away,
	// for the request of ctx.
	Local(ctx context.Context, p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64)
}

// eachGlobal calls do for each global limit of the call, with the limit's place in the
// plan and the key of its counter.
func (q *query) eachGlobal(do func(i int, l *quota.Limit, key *quota.CounterKey)) {
	if len(q.call.Counters) == 0 {
		return
	}
	n := 0
	for i, l := range q.limits.keys.limits {
		if l.Scope == quota.ScopeGlobal {
			do(i, l, &q.call.Counters[n])
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
	q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
		r.Global.Record(ctx, q.plan.policy, l, key, v.Limits[i].Counter, v.StoreUS)
	})
}

// patience shortens the wait of a denial by a global limit to the earlier of two
// moments: enough of this region's own units have aged out (the wait so far), or
// what the others used has faded enough. Either is sound if nobody spends more.
func (r *rules) patience(q *query, v *Verdict, d *quota.Decision) {
	if r.Global == nil || v.Outcome != denied {
		return
	}
	q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
		s := &d.Limits[q.limits.keys.order[i]]
		used := s.Ceiling - s.Remaining + v.Limits[i].Over
		if needed := used + q.call.Cost; s.Denied && needed <= l.Units {
			s.RetryAfter = min(s.RetryAfter, r.Global.Grows(q.plan.policy, l, key, needed))
		}
	})
}
