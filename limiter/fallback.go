package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/regiond/regiond/quota"
)

// closedRetry is what a caller is told to wait while a policy is closed: nobody
// knows when the store is back, and probes find out within this time.
const closedRetry = time.Second

// fallback answers a query that the store did not: by its policy's fail mode,
// labelled with mode and reason. It needs nothing that could be away.
func (l *Limiter) fallback(ctx context.Context, rules *rules, q *query, cause error) (quota.Decision, error) {
	reason, op := quota.ReasonRedisRefused, q.call.Op // one partition's data cannot be read
	if e := (*StoreError)(nil); errors.As(cause, &e) {
		reason = e.Reason
		if op == OpCheck && !e.Ambiguous && errors.Is(ctx.Err(), context.Canceled) {
			op = OpPeek // who asked has gone, and nothing was charged: it stays so
		}
	} else {
		l.metrics.unreadable(ctx)
		l.complain(q, cause)
	}
	var d quota.Decision
	switch mode := q.plan.policy.OnStoreLoss; {
	case q.call.Op == OpReport || mode == quota.FailShare:
		var known bool
		if d, known = l.localDecision(ctx, rules, q, op); !known {
			return d, errReused()
		}
	case mode == quota.FailOpen:
		d = q.blanket(true)
	default:
		d = q.blanket(false)
	}
	d.Mode, d.Reason = quota.ModeLocal, reason
	carryOut(&d)
	l.explain(rules, q, &d)
	return d, nil
}

// complainEvery is how often an unreadable partition is worth a line of the log:
// somebody asks it as often as before.
const complainEvery = time.Second

func (l *Limiter) complain(q *query, cause error) {
	now, last := l.localUS(), l.complained.Load()
	if now-last < complainEvery.Microseconds() || !l.complained.CompareAndSwap(last, now) {
		return
	}
	l.log.Warn("a partition's data in redis cannot be read, its fail mode answers", "key", q.call.Keys[0], "error", cause)
}

// localDecision asks the in-memory store, which holds what this process
// remembers, for this process's share of each ceiling. It does op, which may be less
// than the query's own. It is false for an idempotency key that came with another request before.
func (l *Limiter) localDecision(ctx context.Context, rules *rules, q *query, op Op) (quota.Decision, bool) {
	call, processes := q.call, max(1, rules.Processes())
	call.Op, call.Plan, call.Counters = op, q.limits.local(processes), nil
	call.Ceilings = make([]int64, len(q.call.Ceilings))
	for i, c := range q.call.Ceilings {
		if q.ceilings != nil && q.limits.keys.limits[i].Scope == quota.ScopeGlobal {
			c = q.ceilings[i].Local
		}
		call.Ceilings[i] = c / processes
	}
	var verdicts [1]Verdict
	err := l.local.Decide(ctx, []Call{call}, verdicts[:])
	v := &verdicts[0]
	if err != nil || v.Err != nil {
		return q.blanket(false), true // full: as good as closed
	}
	if v.Outcome == reused {
		return quota.Decision{}, false
	}
	if v.Outcome == admitted && call.Op != OpPeek && rules.Global != nil {
		q.eachGlobal(func(_ int, l *quota.Limit, key *quota.CounterKey) {
			rules.Global.Local(ctx, q.plan.policy, l, key, call.Cost)
		})
	}
	asked := *q
	asked.call.Ceilings, asked.call.Counters = call.Ceilings, nil
	d := rules.decision(&asked, v)
	d.Basis = quota.BasisLocal
	q.processes = processes
	return d, true
}

// blanket is the answer of a policy that is open or closed.
func (q *query) blanket(allowed bool) quota.Decision {
	d := quota.Decision{
		Allowed: allowed, Tenant: q.request.Tenant, Policy: q.plan.policy.Name,
		Cost: q.request.Cost, Enforcement: q.enforcement,
		Limits: make([]quota.LimitState, len(q.call.Ceilings)),
	}
	for i, ceiling := range q.call.Ceilings {
		s := &d.Limits[q.limits.keys.order[i]]
		s.Limit, s.Ceiling = q.limits.keys.limits[i], ceiling
		if allowed {
			s.Remaining = ceiling
		} else {
			s.Denied, s.RetryAfter, s.ResetAfter = true, closedRetry, closedRetry
		}
	}
	d.Basis = quota.BasisClosed
	if allowed {
		d.Basis = quota.BasisOpen
	}
	return d
}
