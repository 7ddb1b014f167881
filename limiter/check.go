package limiter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// A decision, top to bottom: resolve (rules.go) validates a request and plans its
// store call; decide answers from the policy, the deny cache or the store, or by the
// fail mode; every answer ends in finish.

// check decides a single request.
func (l *Limiter) check(ctx context.Context, request quota.Request, op store.Op) (quota.Decision, error) {
	s := l.scratch()
	defer l.release(s)
	s.request = request
	q, err := l.rules.Load().resolve(&s.request, op, l.overflow, s)
	if err != nil {
		return quota.Decision{}, err
	}
	s.queries = append(s.queries, q)
	l.decide(ctx, s)
	return s.outcomes[0].Decision, s.outcomes[0].Err
}

// decide answers the queries of s in order.
func (l *Limiter) decide(ctx context.Context, s *scratch) {
	start := l.now()
	s.outcomes = slices.Grow(s.outcomes[:0], len(s.queries))[:len(s.queries)]
	for i := range s.queries {
		q := &s.queries[i]
		if q.overflow {
			l.metrics.unknown.Add(1)
		}
		if q.shared {
			l.metrics.shared.Add(1)
		}
		if o, ok := l.withoutStore(q, start); ok {
			s.outcomes[i] = o
			continue
		}
		s.calls, s.asked = append(s.calls, q.call), append(s.asked, i)
	}
	if len(s.calls) > 0 {
		l.askStore(ctx, s, start)
	}
	took := l.now().Sub(start)
	for i := range s.outcomes {
		if s.outcomes[i].Err == nil {
			l.readLoans(ctx, &s.queries[i])
			l.finish(&s.queries[i], &s.outcomes[i].Decision)
			l.rank(&s.queries[i], &s.outcomes[i].Decision)
			l.metrics.decided(ctx, &s.outcomes[i].Decision, s.queries[i].call.Op, took)
		}
	}
}

// withoutStore decides what needs no store call: no limit applies, the policy is
// closed because peers cannot be seen, the store does not know yet what it was admitted by,
// or an earlier denial is still in force. The last holds within a batch too, since an earlier
// check of it frees nothing.
func (l *Limiter) withoutStore(q *query, now time.Time) (o quota.Outcome, ok bool) {
	if q.limits == nil {
		return quota.Outcome{Decision: quota.Decision{Allowed: true}}, true
	}
	if q.closed() {
		return quota.Outcome{Decision: q.failDecision(quota.BasisClosed)}, true
	}
	if l.own.some() {
		if a := l.earlier(q, true); a != nil {
			o.Decision, o.Err = q.again(a, quota.ReasonBreakerOpen)
			return o, true
		}
	}
	if q.request.Explain {
		return o, false
	}
	limits, ok := l.denyCache.recall(&q.call, now)
	if ok {
		q.deniedAgain(limits)
	}
	return quota.Outcome{Decision: quota.Decision{Basis: quota.BasisCached, Limits: limits}}, ok
}

// askStore decides the calls of s in the store, and those that it cannot decide by the
// fail mode of their policy. What the store has lost shows when it is asked, and makes
// another ceiling, under which it is asked once more.
func (l *Limiter) askStore(ctx context.Context, s *scratch, sent time.Time) {
	generation := l.denyCache.current()
	s.verdicts = store.Blank(s.verdicts, len(s.calls))
	lost := l.askOnce(ctx, s, s.calls, sent, generation)
	if len(lost) == 0 {
		return
	}
	calls := make([]store.Call, 0, len(lost)) // the others may still be read
	s.asked = s.asked[:0]
	for _, i := range lost {
		q := &s.queries[i]
		if q.takeCeilings(); q.closed() {
			s.outcomes[i].Decision = q.failDecision(quota.BasisClosed)
			continue
		}
		calls, s.asked = append(calls, q.call), append(s.asked, i)
	}
	s.verdicts = store.Blank(s.verdicts, len(calls))
	for _, i := range l.askOnce(ctx, s, calls, sent, generation) {
		q := &s.queries[i]
		s.outcomes[i].Decision, s.outcomes[i].Err = l.fallback(ctx, q, errLost, errLost)
	}
}

var errLost = &store.Error{Reason: quota.ReasonRedisRefused, Err: errors.New("redis keeps losing the usage counters of global limits")}

// askOnce asks the store, and returns the queries whose ceilings rest on what it has lost.
func (l *Limiter) askOnce(ctx context.Context, s *scratch, calls []store.Call, sent time.Time, generation int64) (lost []int) {
	held := s.held
	s.held = true
	l.store.Decide(ctx, calls, s.verdicts)
	s.held = held
	for n, i := range s.asked {
		q, v, o := &s.queries[i], &s.verdicts[n], &s.outcomes[i]
		switch {
		case v.Err == nil && v.Outcome == store.Lost:
			q.publishUsage(ctx, v)
			lost = append(lost, i)
		case v.Err == nil && v.Outcome == store.Reused:
			o.Err = errReused()
		case v.Err == nil && v.Outcome != 0:
			o.Decision = l.fromStore(ctx, q, v, sent, generation)
		default:
			var e *store.Error
			errors.As(v.Err, &e)
			s.held = s.held || e != nil && e.Ambiguous // it may still be read
			o.Decision, o.Err = l.fallback(ctx, q, v.Err, e)
		}
	}
	return lost
}

func errReused() error {
	return &quota.Invalid{Fault: quota.FaultReuse, Fields: []quota.FieldError{{
		Detail: "this Idempotency-Key came with another request before; use a new key for a new request",
	}}}
}

// fromStore is the decision of a store's verdict. It publishes the usage of global
// limits and keeps what later decisions may need: admissions in case the store fails,
// denials until they end.
func (l *Limiter) fromStore(ctx context.Context, q *query, v *store.Verdict, sent time.Time, generation int64) quota.Decision {
	q.publishUsage(ctx, v)
	q.showBounds(v)
	l.countExceeded(q, v)
	d := q.decision(v, q.within(v))
	d.StoreUS = v.StoreUS
	switch {
	case v.Outcome == store.Denied:
		q.shortenRetryAfter(v, &d)
		if q.call.Op == store.OpCheck {
			l.denyCache.remember(&q.call, d.Limits, generation, sent, l.now())
		}
	case v.Outcome == store.Admitted && q.call.Op != store.OpPeek:
		local := q.call
		local.Plan, local.Counters, local.Known, local.Bounds = q.limits.local(max(1, q.rules.Processes())), nil, nil, nil
		var a *store.Admission
		if local.Record != "" {
			a = &store.Admission{Plan: q.limits.keys, Ceilings: q.within(v), Limits: v.Limits}
		}
		l.local.Record(&local, a)
	}
	return d
}

// decision converts a verdict under ceilings into a decision. The Retry-After of each limit
// that denies is the store's: fits_log and judge in redisstore/lua, judge in memstore.
// shortenRetryAfter may shorten that of a global limit.
func (q *query) decision(v *store.Verdict, ceilings []int64) quota.Decision {
	plan, limits := q.limits.keys, v.Limits
	if a := v.Earlier; a != nil {
		plan, ceilings, limits = a.Plan, a.Ceilings, a.Limits
	}
	d := quota.Decision{
		Allowed: v.Outcome == store.Admitted || v.Outcome == store.Replayed, Replayed: v.Outcome == store.Replayed,
		Limits: make([]quota.LimitState, len(limits)),
	}
	for i, lv := range limits {
		s := &d.Limits[plan.Order[i]]
		*s = quota.LimitState{
			Limit: plan.Limits[i], Ceiling: ceilings[i], Remaining: lv.Remaining,
			RetryAfter: time.Duration(lv.WaitUS) * time.Microsecond,
			ResetAfter: time.Duration(lv.ResetUS) * time.Microsecond,
		}
		if v.Outcome != store.Denied {
			continue
		}
		s.Denied, s.Over = lv.WaitUS != 0, lv.Over
		if lv.WaitUS < 0 { // never under this ceiling, which may change within W
			s.RetryAfter = s.Limit.Window
		}
	}
	return d
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

// countExceeded counts what a report charged beyond bounds.
func (l *Limiter) countExceeded(q *query, v *store.Verdict) {
	if q.call.Op != store.OpReport || v.Outcome != store.Admitted || len(q.call.Bounds) == 0 {
		return
	}
	q.eachGlobal(func(i int, limit *quota.Limit, _ *quota.CounterKey) {
		if over := v.Limits[i].Over; q.ceilings[i].Bounded && over > 0 {
			l.metrics.exceeded.Add(labels{policy: q.plan.policy.Name, limit: limit.Name}, over)
		}
	})
}

// showBounds reports what a verdict on a check shows of limits with a bound.
func (q *query) showBounds(v *store.Verdict) {
	if q.call.Op != store.OpCheck || len(q.call.Bounds) == 0 || v.Outcome != store.Admitted && v.Outcome != store.Denied {
		return
	}
	q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
		c, lv := &q.ceilings[i], &v.Limits[i]
		if !c.Bounded {
			return
		}
		left := lv.Bounded - (min(c.Units, lv.Bounded) - lv.Remaining + lv.Over)
		q.rules.Global.Asked(key, loan.Ask{
			Units: q.costOf(i), Denied: v.Outcome == store.Denied && left < q.costOf(i), Charged: v.Outcome == store.Admitted,
			Remaining: max(0, left), Ceiling: lv.Bounded, Share: c.Bound.Share,
		})
	})
}

// deniedAgain reports what is asked of limits with a bound while a denial is remembered.
func (q *query) deniedAgain(limits []quota.LimitState) {
	if len(q.call.Bounds) == 0 {
		return
	}
	q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
		if s := &limits[q.limits.keys.Order[i]]; q.ceilings[i].Bounded {
			q.rules.Global.Asked(key, loan.Ask{
				Units: q.costOf(i), Denied: s.Denied, Remaining: s.Remaining, Ceiling: s.Ceiling, Share: q.ceilings[i].Bound.Share,
			})
		}
	})
}

// shortenRetryAfter takes, for each global limit that denies, the earlier of two
// moments: enough of this region's own units have aged out (the store's answer), or
// the ceiling has grown enough because peers' usage has aged out. Each is sufficient
// if nobody spends more; the exact moment, with both together, can be earlier still. Where a
// bound has to grow, its own units are what counts.
func (q *query) shortenRetryAfter(v *store.Verdict, d *quota.Decision) {
	if q.rules.Global == nil {
		return
	}
	q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
		s := &d.Limits[q.limits.keys.Order[i]]
		needed := s.Used() + q.costOf(i)
		if bounds := q.ceilings[i].Bounded && needed > v.Limits[i].Bounded; s.Denied && needed <= l.Units && !bounds {
			s.RetryAfter = min(s.RetryAfter, q.rules.Global.Grows(q.plan.policy, l, key, needed))
		}
	})
}

// publishUsage records what the store held of the counters of global limits, also
// after a denial: that is how a process notices that Redis lost them. The counters in a
// replayed admission are as old as the admission, and not published.
func (q *query) publishUsage(ctx context.Context, v *store.Verdict) {
	if q.rules.Global == nil || v.Outcome == store.Replayed {
		return
	}
	if v.Outcome != store.Admitted || q.call.Op == store.OpPeek {
		ctx = context.Background() // the counter holds units of other requests only
	}
	q.eachGlobal(func(i int, l *quota.Limit, key *quota.CounterKey) {
		q.rules.Global.Record(ctx, q.plan.policy, l, key, v.Limits[i].Counter, v.StoreUS)
	})
}

// closed reports whether a policy that is closed while peers cannot be seen refuses
// the query. A report is always charged, since its units are spent already.
func (q *query) closed() bool {
	return q.call.Op != store.OpReport && slices.ContainsFunc(q.ceilings, func(c quota.Ceiling) bool { return c.Closed })
}

// costOf is the cost under the i-th limit of the plan.
func (q *query) costOf(i int) int64 { return q.call.CostOf(q.limits.keys.KeyOf[i]) }

// eachGlobal calls do for each global limit of the call, with the limit's place in the
// plan and the key of its counter.
func (q *query) eachGlobal(do func(i int, l *quota.Limit, key *quota.CounterKey)) {
	n := 0
	for i, l := range q.limits.keys.Limits {
		if l.Scope == quota.ScopeGlobal {
			do(i, l, &q.call.Counters[n])
			n++
		}
	}
}

// finish sets the remaining fields of every decision: tenant, policy, cost, mode, reason,
// basis, enforcement and, if requested, the explanation.
func (l *Limiter) finish(q *query, d *quota.Decision) {
	d.Tenant, d.Policy, d.Cost, d.Enforcement = q.request.Tenant, q.plan.policy.Name, cmp.Or(q.request.Cost, q.call.Cost), q.enforcement
	for i := range q.ceilings {
		c, limit := &q.ceilings[i], q.limits.keys.Limits[i]
		if limit.Scope != quota.ScopeGlobal {
			continue
		}
		if c.Mode != quota.ModeGlobal && d.Mode != quota.ModeLocal {
			d.Mode, d.Reason = c.Mode, cmp.Or(d.Reason, c.Reason)
		}
		if q.call.Ceilings[i] < limit.Units && d.Basis == quota.BasisExact {
			d.Basis = quota.BasisEstimate
		}
	}
	// A check that was shed passes too, but no limit would have denied it. A shed report
	// or peek has nothing to let pass.
	if shed := d.Basis == quota.BasisShed; !d.Allowed && d.Enforcement == quota.Observe && (!shed || q.call.Op == store.OpCheck) {
		d.Allowed, d.WouldDeny = true, !shed
	}
	if q.request.Explain && q.concerns(d.Limits) {
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
	if l.top == nil || q.call.Op == store.OpPeek || d.Replayed || len(d.Limits) == 0 {
		return
	}
	e := top.Event{By: quota.TopUsed}
	if !d.Allowed || d.WouldDeny {
		e.By = quota.TopDenied
	}
	plan, at := q.limits.keys, 0
	for i := range plan.Keys {
		e.Key, e.Limits, e.Which, e.Units = q.call.Keys[i], plan.Keys[i].Limits, 0, q.call.CostOf(i)
		for n := range e.Limits {
			if e.By == quota.TopUsed || d.Limits[plan.Order[at]].Denied {
				e.Which |= 1 << n
			}
			at++
		}
		if e.Which != 0 {
			l.top.Record(e)
		}
	}
}

// scratch is what the decision of some requests needs. It is reused, so that a
// decision allocates what it returns, the names of its keys, and little else.
type scratch struct {
	request  quota.Request // of a single check
	queries  []query
	names    []string           // of all keys
	usage    []quota.CounterKey // of all counters
	calls    []store.Call
	asked    []int // asked[n] is the query of calls[n]
	verdicts []store.Verdict
	outcomes []quota.Outcome // of the queries
	held     bool            // the store may still read the calls: do not reuse
}

func (l *Limiter) scratch() *scratch {
	if s, ok := l.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

// release keeps a scratch for the next decision, without what it refers to.
func (l *Limiter) release(s *scratch) {
	if s.held {
		return
	}
	clear(s.queries)
	clear(s.names)
	clear(s.usage)
	clear(s.calls)
	clear(s.outcomes)
	s.queries, s.names, s.usage, s.calls, s.asked = s.queries[:0], s.names[:0], s.usage[:0], s.calls[:0], s.asked[:0]
	s.request = quota.Request{}
	l.scratches.Put(s)
}

func (s *scratch) keys(p *store.KeyPlan, tenant, policy string, req *quota.Request) []string {
	first := len(s.names)
	if req.Charges == nil {
		s.names = p.AppendKeys(s.names, tenant, policy, req.Dimensions)
	} else {
		dims := make([]quota.Dimensions, len(req.Charges))
		for i := range req.Charges {
			dims[i] = req.Charges[i].Dimensions
		}
		s.names = p.AppendKeys(s.names, tenant, policy, dims...)
	}
	return s.names[first:len(s.names):len(s.names)]
}

func (s *scratch) counters(p *store.KeyPlan, keys []string, tenant, policy string) []quota.CounterKey {
	first := len(s.usage)
	s.usage = p.AppendCounters(s.usage, keys, tenant, policy)
	return s.usage[first:len(s.usage):len(s.usage)]
}
