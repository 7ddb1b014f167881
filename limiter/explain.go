package limiter

import (
	"context"
	"fmt"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/quota/sentences"
)

// readLoans reads, for a request that asks for an explanation, what is lent and borrowed
// under each limit with a bound. It charges nothing.
func (l *Limiter) readLoans(ctx context.Context, q *query) {
	if !q.request.Explain || len(q.call.Bounds) == 0 {
		return
	}
	var terms []*quota.BoundTerms
	var calls []store.Call
	for i, g := range q.globals() {
		if !g.Bounded || g.Terms == nil || g.Terms.Bound == nil {
			continue
		}
		plan := store.NewKeyPlan([]*quota.Limit{g.limit})
		terms = append(terms, g.Terms.Bound)
		calls = append(calls, store.Call{
			Op: store.OpLoans, Plan: plan, Keys: q.call.Keys[q.limits.keys.KeyOf[i]:][:1], Counters: []quota.CounterKey{*g.key},
			Ceilings: plan.Capacities, Bounds: []quota.Bound{g.Bound},
		})
	}
	verdicts := make([]store.Verdict, len(calls))
	l.store.Decide(ctx, calls, verdicts)
	for i, t := range terms {
		v := &verdicts[i]
		if v.Err != nil || v.Loans == nil {
			continue
		}
		period := v.Loans.Period.Number
		t.Lent, t.Recalled = loan.Left(v.Loans.State.Lent, period), v.Loans.State.Recall
		t.Borrowed = v.Loans.State.Borrowed(v.StoreUS, period)
		t.Close(calls[i].Bounds[0], v.StoreUS)
	}
}

// explain gives the terms behind a decision, and says them in words.
func (q *query) explain(d *quota.Decision) {
	_, listed := q.rules.Tenants[d.Tenant]
	e := &quota.Explanation{
		Region: q.rules.Region, ConfigHash: q.rules.Hash, StoreUS: d.StoreUS,
		Unlisted: !listed && q.override.Override == nil && q.request.Charges == nil, Shared: q.overflow || q.shared,
		Override: q.overrideTerms(),
		Limits:   make([]quota.LimitExplanation, len(d.Limits)),
	}
	d.Explanation = e
	if q.override.suspended != nil {
		for i, l := range q.override.suspended {
			e.Limits[i] = quota.LimitExplanation{
				Name: l.Name, Algorithm: l.Algorithm.String(), CeilingTerms: quota.CeilingTerms{Formula: "0 by the override"},
			}
		}
		e.Sentences = sentences.Of(d)
		return
	}
	for i := range d.Limits {
		plan := q.limits.keys
		at, limit := plan.Order[i], plan.Limits[i]
		t := &e.Limits[at]
		*t = quota.LimitExplanation{
			Name: limit.Name, Algorithm: limit.Algorithm.String(), Partition: q.call.Keys[plan.KeyOf[i]],
			Ceiling: d.Limits[at].Ceiling, CeilingTerms: quota.CeilingTerms{
				Part:    limit.Capacity(),
				Formula: fmt.Sprintf("the whole limit, %d units in %v", limit.Capacity(), limit.Window),
			},
		}
		if c := limit.Calendar; c != nil {
			if t.Formula = fmt.Sprintf("the whole limit, %d units per %s", limit.Capacity(), c); d.StoreUS > 0 {
				t.Ends = d.Limits[at].EndText(d.StoreUS)
			}
		}
		if q.ceilings != nil && q.ceilings[i].Terms != nil {
			t.CeilingTerms = *q.ceilings[i].Terms
			if t.Bound != nil {
				t.Bound.Overridden = q.override.known
			}
			if c := &q.ceilings[i]; d.Basis == quota.BasisLocal && !c.Bounded { // the terms are those of c.Units
				t.Lost, t.Formula = 0, fmt.Sprintf("of %d that the other regions leave, %d are known to be used", c.Local, c.Used)
			}
		}
		if q.processes > 1 {
			t.Formula += fmt.Sprintf(", ÷ %d processes", q.processes)
		}
	}
	e.Sentences = sentences.Of(d)
}
