package limiter

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
)

// A decision, top to bottom: resolve (rules.go) validates a request and plans its
// store call; decide answers from the policy, the deny cache or the store, or by the
// fail mode; every answer ends in finish. What other regions have to do with it is in bounds.go.

// one decides a single request. What that takes is one piece of memory.
func (l *Limiter) one(ctx context.Context, r quota.Request, op store.Op) (quota.Decision, error) {
	m := &struct {
		request  quota.Request
		queries  [1]query
		calls    [1]store.Call
		verdicts [1]store.Verdict
	}{request: r}
	q := &m.queries[0]
	q.request = &m.request
	q.takeOverride(ctx, l.overrides)
	if err := q.resolve(l.rules.Load(), op, l.overflow); err != nil {
		return quota.Decision{}, err
	}
	l.decide(ctx, m.queries[:], m.calls[:0], m.verdicts[:])
	return q.out.Decision, q.out.Err
}

// check decides n requests in order, of which at returns each and what to do with it.
func (l *Limiter) check(ctx context.Context, n int, at func(i int) (*quota.Request, store.Op)) []quota.Outcome {
	return l.run(ctx, n, func(i int, q *query, rules *rules) error {
		request, op := at(i)
		q.request = request
		q.takeOverride(ctx, l.overrides)
		return q.resolve(rules, op, l.overflow)
	})
}

// run decides n queries that resolve makes.
func (l *Limiter) run(ctx context.Context, n int, resolve func(i int, q *query, rules *rules) error) []quota.Outcome {
	out, queries, rules := make([]quota.Outcome, n), make([]query, n), l.rules.Load()
	for i := range queries {
		queries[i].out.Err = resolve(i, &queries[i], rules)
	}
	l.decide(ctx, queries, make([]store.Call, 0, n), make([]store.Verdict, n))
	for i := range queries {
		out[i] = queries[i].out
	}
	return out
}

// decide answers those of the queries that are valid, in order. calls and verdicts have room for as many.
func (l *Limiter) decide(ctx context.Context, queries []query, calls []store.Call, verdicts []store.Verdict) {
	start := l.now()
	for i := range queries {
		q := &queries[i]
		if q.out.Err != nil {
			continue
		}
		if q.overflow {
			l.metrics.unknown.Add(1)
		}
		if q.shared {
			l.metrics.shared.Add(1)
		}
		if q.unclaimed {
			l.metrics.unclaimed.Add(1)
			value := quota.Clip(q.request.TenantPolicy)
			l.unclaimed.Warn(l.log, l.now(), value, "no policy has this value of policy_from, the tenant's own decides; name it under policy_from.policies",
				"value", value, "tenant", q.request.Tenant, "policy", q.plan.policy.Name)
		}
		if q.override.unread != nil && q.limits != nil {
			l.unread(ctx, q)
			continue
		}
		q.asks = !l.withoutStore(q, start)
	}
	l.askStore(ctx, queries, calls, verdicts, start)
	took := l.now().Sub(start)
	for i := range queries {
		q := &queries[i]
		if d := &q.out.Decision; q.out.Err == nil {
			if q.refuse(); q.out.Err != nil {
				continue
			}
			l.readLoans(ctx, q)
			l.explainOverride(ctx, q)
			q.finish(d)
			l.reservation(ctx, q, d)
			l.rank(q, d)
			l.noteNear(q, d)
			l.metrics.decided(ctx, d, q, took)
		}
	}
}

// withoutStore decides what needs no store call: no limit applies, the policy is
// closed because peers cannot be seen, the store does not know yet what it was admitted by,
// or an earlier denial is still in force. The last holds within a batch too, since an earlier
// check of it frees nothing.
func (l *Limiter) withoutStore(q *query, now time.Time) bool {
	d := &q.out.Decision
	if q.hold.ticket != nil {
		return q.claimOfNothing(d)
	}
	if q.override.suspended != nil {
		*d = q.suspendedDecision()
		return true
	}
	if q.limits == nil {
		d.Allowed = true
		return true
	}
	if q.closed() && q.recalls == 0 {
		*d = q.failDecision(quota.BasisClosed)
		return true
	}
	if l.own.some() {
		if a := l.earlier(q, true); a != nil {
			*d, q.out.Err = l.again(q, a, quota.ReasonBreakerOpen)
			return true
		}
	}
	if q.request.Explain || q.request.Usage {
		return false
	}
	limits, ok := l.denyCache.recall(&q.call, now)
	if ok {
		*d = quota.Decision{Basis: quota.BasisCached, Limits: limits}
		q.showBounds(limits, nil)
	}
	return ok
}

// refuse has a query fail that only an admission to replay would let pass, where there is none.
func (q *query) refuse() {
	if q.recalls == 0 {
		return
	}
	q.call.Op = q.recalls
	switch d := &q.out.Decision; {
	case d.Replayed, d.Basis == quota.BasisShed:
	case q.tooMuch != nil:
		q.out = quota.Outcome{Err: q.tooMuch}
	default:
		*d = q.failDecision(quota.BasisClosed)
	}
}

// mostAsked is how often the store is asked under other ceilings: what it has lost shows when it is asked, and then the period that
// counts may be another one, which a clock that steps changes once more.
const mostAsked = 3

// askStore decides queries in the store, and those that it cannot decide by the
// fail mode of their policy.
func (l *Limiter) askStore(ctx context.Context, queries []query, calls []store.Call, verdicts []store.Verdict, sent time.Time) {
	generation := l.denyCache.current()
	for range mostAsked {
		again := l.askOnce(ctx, queries, calls, verdicts, sent, generation)
		if again == 0 {
			return
		}
		for i := range queries {
			if q := &queries[i]; q.asks && q.closed() {
				q.out.Decision, q.asks = q.failDecision(quota.BasisClosed), false
			}
		}
		calls, verdicts = make([]store.Call, 0, again), make([]store.Verdict, again) // those of before may still be read
	}
	for i := range queries {
		if q := &queries[i]; q.asks {
			q.out.Decision, q.out.Err = l.fallback(ctx, q, errLost, errLost)
		}
	}
}

var errLost = &store.Error{Reason: quota.ReasonRedisRefused, Err: errors.New("redis keeps losing the usage counters of global limits, or its clock steps about")}

// askOnce asks the store about the queries that ask, and returns how many have to ask again: their ceilings rest on
// what it has lost or are for another period, or the number of their reservation is taken.
func (l *Limiter) askOnce(
	ctx context.Context, queries []query, calls []store.Call, verdicts []store.Verdict, sent time.Time, generation int64,
) (again int) {
	for i := range queries {
		if queries[i].asks {
			calls = append(calls, queries[i].call)
		}
	}
	if len(calls) == 0 {
		return 0
	}
	verdicts = verdicts[:len(calls)]
	l.store.Decide(ctx, calls, verdicts)
	for i := range queries {
		q := &queries[i]
		if !q.asks {
			continue
		}
		q.asks = false
		c, v, o := &calls[0], &verdicts[0], &q.out
		calls, verdicts = calls[1:], verdicts[1:]
		switch {
		case v.Err == nil && v.Undecided():
			q.publishUsage(ctx, v)
			q.takeCeilingsOf(v)
			q.asks = true
			again++
		case v.Err == nil && v.Outcome == store.Taken:
			q.planHold()
			q.takeCeilings()
			q.asks = true
			again++
		case v.Err == nil && v.Outcome == store.Reused:
			o.Err = errReused()
		case v.Err == nil && v.Outcome != 0 && q.hold.ticket != nil:
			o.Decision, o.Err = l.claimed(ctx, q, v)
		case v.Err == nil && v.Outcome != 0:
			o.Decision = l.fromStore(ctx, q, c, v, sent, generation)
		default:
			var e *store.Error
			errors.As(v.Err, &e)
			o.Decision, o.Err = l.fallback(ctx, q, v.Err, e)
		}
	}
	return again
}

func errReused() error {
	return invalid(quota.FaultReuse, "", "this Idempotency-Key came with another request before; use a new key for a new request")
}

func invalid(fault quota.Fault, pointer, detail string) *quota.Invalid {
	return &quota.Invalid{Fault: fault, Fields: []quota.FieldError{{Pointer: pointer, Detail: detail}}}
}

// fromStore is the decision of a store's verdict. It publishes the usage of global
// limits and keeps what later decisions may need: admissions in case the store fails,
// denials until they end. The memory of the store's call is used for that of its own.
func (l *Limiter) fromStore(ctx context.Context, q *query, c *store.Call, v *store.Verdict, sent time.Time, generation int64) quota.Decision {
	q.publishUsage(ctx, v)
	l.countExceeded(q, v)
	ceilings := q.within(v)
	d := q.decision(v, ceilings)
	d.StoreUS = v.StoreUS
	if q.call.Op == store.OpReserve || v.Hold.ID != 0 { // that may be of a policy with reservations, before one without
		q.holds(v, &d)
	}
	if v.Outcome == store.Replayed {
		return d
	}
	q.showClosed(v, &d)
	if q.looks() && v.Outcome == store.Admitted {
		return d
	}
	if q.call.Op == store.OpCheck || q.call.Op == store.OpReserve {
		q.showBounds(d.Limits, v)
	}
	if v.Outcome == store.Denied {
		q.shortenRetryAfter(v, &d)
		if q.call.Op == store.OpCheck {
			l.denyCache.remember(&q.call, d.Limits, generation, sent, l.now())
		}
		return d
	}
	*c = q.localCall(q.call.Op, max(1, q.rules.Processes()))
	var a *store.Admission
	if c.Record != "" {
		a = &store.Admission{Plan: q.limits.keys, Ceilings: ceilings, Limits: v.Limits, Hold: v.Hold}
	}
	l.local.Record(c, a)
	return d
}

// decision converts a verdict under ceilings into a decision. The Retry-After of each limit
// that denies is the store's; DESIGN.md says where it is computed, and what may change it afterwards.
func (q *query) decision(v *store.Verdict, ceilings []int64) quota.Decision {
	plan, limits := q.limits.keys, v.Limits
	policy, age := "", int64(0) // µs, of what a record says
	if a := v.Earlier; a != nil {
		plan, ceilings, limits, policy, age = a.Plan, a.Ceilings, a.Limits, a.Policy, max(0, v.StoreUS-a.US)
	}
	d := quota.Decision{
		Policy:  policy,
		Allowed: v.Outcome == store.Admitted || v.Outcome == store.Replayed || v.Outcome == store.Settled, Replayed: v.Outcome == store.Replayed,
		Limits: make([]quota.LimitState, len(limits)),
	}
	for i, lv := range limits {
		s := &d.Limits[plan.Order[i]]
		*s = quota.LimitState{
			Limit: plan.Limits[i], Ceiling: ceilings[i], Remaining: lv.Remaining,
			RetryAfter: time.Duration(lv.WaitUS) * time.Microsecond,
			ResetAfter: time.Duration(max(0, lv.ResetUS-age)) * time.Microsecond, Held: lv.Held,
		}
		if v.Outcome != store.Denied {
			continue
		}
		s.Denied, s.Over = lv.WaitUS != 0, lv.Over
		if lv.WaitUS < 0 { // never under this ceiling, which may change within W
			s.RetryAfter = s.Limit.Window
			if c := s.Limit.Calendar; c != nil { // it has ended by the next period
				ends := cmp.Or(lv.Counter.EndsUS, c.At(v.StoreUS).End)
				s.RetryAfter = time.Duration(ends-v.StoreUS) * time.Microsecond
			}
		}
	}
	return d
}

// finish sets the remaining fields of every decision: tenant, policy, cost, mode, reason,
// basis, enforcement and, if requested, the explanation.
func (q *query) finish(d *quota.Decision) {
	d.Tenant, d.Policy, d.Cost, d.Enforcement = q.request.Tenant, cmp.Or(d.Policy, q.plan.policy.Name), cmp.Or(q.request.Cost, q.call.Cost), q.enforcement
	d.Reserves, d.Override = q.request.Reserve, q.override.Override
	for i, g := range q.globals() {
		if g.Mode != quota.ModeGlobal && d.Mode != quota.ModeLocal {
			d.Mode, d.Reason = g.Mode, cmp.Or(d.Reason, g.Reason)
		}
		if q.call.Ceilings[i] < g.limit.Units && d.Basis == quota.BasisExact {
			d.Basis = quota.BasisEstimate
		}
	}
	for i := range d.Limits {
		if s := &d.Limits[i]; s.Reason != quota.ReasonNone && (s.Denied || d.Reason == quota.ReasonNone) {
			d.Reason = s.Reason
		}
	}
	// A check that was shed passes too, but no limit would have denied it. A shed report
	// or peek has nothing to let pass.
	checks := q.call.Op == store.OpCheck || q.call.Op == store.OpReserve
	if shed := d.Basis == quota.BasisShed; !d.Allowed && d.Enforcement == quota.Observe && (!shed || checks) {
		d.Allowed, d.WouldDeny = true, !shed
	}
	if q.request.Usage {
		q.showUsage(d)
	}
	if q.request.Explain && (q.override.suspended != nil || q.concerns(d.Limits)) {
		q.explain(d)
	}
}

// concerns is whether states are those of the limits of the plan, and not of an earlier one, whose admission is replayed.
func (q *query) concerns(states []quota.LimitState) bool {
	if len(states) != len(q.limits.keys.Limits) {
		return false
	}
	for i, l := range q.limits.keys.Limits {
		if states[q.limits.keys.Order[i]].Limit != l {
			return false
		}
	}
	return true
}

// rank has a decision counted by partition: the units that limits denied, or would have denied,
// or the units that were used under all of them. A replay uses nothing once more.
func (l *Limiter) rank(q *query, d *quota.Decision) {
	if l.top == nil || q.override.suspended != nil || q.looks() || d.Replayed || len(d.Limits) == 0 {
		return
	}
	e := top.Event{By: quota.TopUsed}
	if !d.Allowed || d.WouldDeny {
		e.By = quota.TopDenied
	}
	plan, at := q.limits.keys, 0
	for i := range plan.Keys {
		charged, held := q.call.Share(i)
		if e.Units = charged; e.By == quota.TopDenied {
			e.Units += held
		}
		e.Key, e.Limits, e.Which = q.call.Keys[i], plan.Keys[i].Limits, 0
		for n := range e.Limits {
			if e.By == quota.TopUsed || d.Limits[plan.Order[at]].Denied {
				e.Which |= 1 << n
			}
			at++
		}
		if e.Which != 0 && e.Units > 0 {
			l.top.Record(e)
		}
	}
}
