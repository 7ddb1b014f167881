package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// closedRetry is the Retry-After of a closed policy. When the store will be back is unknown,
// and probes notice within this time.
const closedRetry = time.Second

// fallback decides a query that the store did not, by its policy's fail mode. e is the
// store's error in cause, nil where only this partition was not decided. It never fails but
// for a reused Idempotency-Key.
func (l *Limiter) fallback(ctx context.Context, q *query, cause error, e *store.Error) (quota.Decision, error) {
	reason, op := quota.ReasonRedisRefused, q.call.Op
	if e != nil {
		reason = e.Reason
		switch {
		case q.hold.ticket != nil:
		case reason == quota.ReasonOverloaded:
			return q.turnedAway(), nil
		case (op == store.OpCheck || op == store.OpReserve) && !e.Ambiguous && errors.Is(ctx.Err(), context.Canceled):
			op = store.OpPeek // the client has gone and nothing was charged; charge nothing here either
		}
	} else {
		l.metrics.partition.Add(1)
		l.unreadable.Warn(l.log, l.now(), "", "a partition's data in redis cannot be read, its fail mode decides",
			"key", q.call.Keys[0], "error", cause)
	}
	if q.hold.ticket != nil {
		return l.claimLater(ctx, q, reason)
	}
	if a := l.earlier(q, false); a != nil {
		return l.again(q, a, reason)
	}
	var d quota.Decision
	if mode := q.plan.policy.OnStoreLoss; q.call.Op == store.OpReport || q.call.Op == store.OpRefund || mode == quota.FailShare {
		var err error
		if d, err = l.localDecision(ctx, q, op); err != nil {
			return d, err
		}
	} else {
		basis := quota.BasisClosed
		if mode == quota.FailOpen {
			basis = quota.BasisOpen
		}
		d = q.failDecision(basis)
	}
	d.Mode, d.Reason = quota.ModeLocal, reason
	return d, nil
}

// localDecision decides in memory, against this process's share of each ceiling. op may
// be less than the query's own. The error is that of a reused Idempotency-Key.
func (l *Limiter) localDecision(ctx context.Context, q *query, op store.Op) (quota.Decision, error) {
	processes := max(1, q.rules.Processes())
	call := q.localCall(op, processes)
	call.Ceilings = make([]int64, len(q.call.Ceilings))
	spare := make([]int64, len(q.call.Ceilings))
	for i, limit := range q.limits.keys.Limits {
		var c *quota.Ceiling
		if q.ceilings != nil {
			c = &q.ceilings[i]
		}
		call.Ceilings[i], spare[i] = localShare(limit, q.call.Ceilings[i], c, processes)
	}
	if q.ceilings != nil { // what siblings used is not in this memory
		peek := call
		if peek.Op = store.OpPeek; q.call.Op == store.OpReserve {
			peek.Op, peek.Cost = store.OpReserve, 0
		}
		if v := l.locally(ctx, peek); v.Err == nil {
			for i := range call.Ceilings {
				used := call.Ceilings[i] - v.Limits[i].Remaining
				call.Ceilings[i] = min(call.Ceilings[i], used+spare[i])
			}
		}
	}
	v := l.locally(ctx, call)
	switch {
	case v.Err != nil: // memory is full
		return q.failDecision(quota.BasisClosed), nil
	case v.Outcome == store.Reused:
		return quota.Decision{}, errReused()
	case v.Outcome == store.Admitted && op != store.OpPeek && !q.looks():
		l.own.add(l.earlier(q, true))
		for i, g := range q.globals() {
			if charged, _ := q.call.Share(q.limits.keys.KeyOf[i]); charged > 0 {
				q.rules.Global.Local(ctx, q.plan.policy, g.limit, g.key, charged)
			}
		}
	}
	d := q.decision(v, call.Ceilings)
	if op == store.OpReserve {
		q.holds(v, &d)
	}
	d.Basis = quota.BasisLocal
	q.processes = processes
	return d, nil
}

// locally decides a call in memory.
func (l *Limiter) locally(ctx context.Context, c store.Call) *store.Verdict {
	var verdicts [1]store.Verdict
	l.local.Decide(ctx, []store.Call{c}, verdicts[:])
	return &verdicts[0]
}

// localCall is the call of q to the memory of this process, one of so many that divide the
// limits. That keeps neither usage counters nor loans.
func (q *query) localCall(op store.Op, processes int64) store.Call {
	return store.Call{
		Op: op, Plan: q.limits.local(processes), Answers: q.limits.keys, Keys: q.call.Keys, Cost: q.call.Cost, Costs: q.call.Costs,
		Record: q.call.Record, Print: q.call.Print, Policy: q.call.Policy, Hold: q.call.Hold,
	}
}

// localShare is what one of so many processes may hold of a limit by itself, and how many
// units more than now, as its share of what their region has not used. c is nil where no
// other region has a part in the limit.
//
//	of 4 processes, capacity 100                 25, any more
//	of 4, capacity 3, for the region              1, in a window that is longer (limitPlan.local)
//	of 4, 80 left by other regions, 60 of it used 20, 5 more
func localShare(l *quota.Limit, capacity int64, c *quota.Ceiling, processes int64) (ceiling, spare int64) {
	switch {
	case l.Scope == quota.ScopeRegion:
		return max(1, capacity/processes), quota.MaxCounter
	case c == nil:
		return capacity / processes, quota.MaxCounter
	}
	return max(0, c.Local/processes), max(0, c.Local-c.Used) / processes
}

// turnedAway is the decision about a check that found the store busy. It is shed, without
// limits, since none was looked at; a report always is: to allow it would not charge it.
func (q *query) turnedAway() quota.Decision {
	d := quota.Decision{Basis: quota.BasisShed}
	if q.plan.policy.OnOverload == quota.OverloadOpen && q.call.Op != store.OpReport {
		d = q.failDecision(quota.BasisOpen)
	}
	d.Reason = quota.ReasonOverloaded
	return d
}

// failDecision is the decision of a policy about a check that no store decided: open
// allows it, closed refuses it.
func (q *query) failDecision(b quota.Basis) quota.Decision {
	d := quota.Decision{Allowed: b == quota.BasisOpen, Basis: b, Limits: make([]quota.LimitState, len(q.call.Ceilings))}
	for i, ceiling := range q.call.Ceilings {
		s := &d.Limits[q.limits.keys.Order[i]]
		s.Limit, s.Ceiling = q.limits.keys.Limits[i], ceiling
		if d.Allowed {
			s.Remaining = ceiling
		} else {
			s.Denied, s.RetryAfter, s.ResetAfter = true, closedRetry, closedRetry
		}
	}
	return d
}
