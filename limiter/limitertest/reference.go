package limitertest

import (
	"context"
	"errors"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// Reference is the oracle as a store: what all others must equal. Its calls have to
// be built by the Questions that it was made with.
type Reference struct {
	region    *oracle.Region
	us        int64
	questions map[*store.KeyPlan]*Question
}

// NewReference returns a Reference that has seen nothing.
func NewReference(questions ...*Question) *Reference {
	j := &Reference{region: oracle.NewRegion(), questions: map[*store.KeyPlan]*Question{}}
	for _, q := range questions {
		j.questions[q.plan] = q
	}
	return j
}

// Now sets its clock, µs since the epoch.
func (j *Reference) Now(us int64) { j.us = us }

// Decide implements store.Store.
func (j *Reference) Decide(_ context.Context, calls []store.Call, verdicts []store.Verdict) {
	for i := range calls {
		q := j.questions[calls[i].Plan]
		a := j.region.Decide(j.us, q.question(&calls[i]))
		verdicts[i] = store.Verdict{Outcome: a.Outcome, StoreUS: j.us}
		for _, s := range a.States {
			verdicts[i].Limits = append(verdicts[i].Limits, store.LimitVerdict{
				Remaining: s.Remaining, WaitUS: s.WaitUS, ResetUS: s.ResetUS, Over: s.Over, Counter: s.Counter,
			})
		}
		for a.Outcome == oracle.Replayed && len(verdicts[i].Limits) < len(q.Limits) { // it is older than a limit
			verdicts[i].Limits = append(verdicts[i].Limits, store.LimitVerdict{})
		}
	}
}

// Reset implements store.Store.
func (j *Reference) Reset(_ context.Context, tenant string) error {
	j.region.Forget("rl:{" + tenant + "}:")
	return nil
}

// ResetAll implements store.Store. No program needs it.
func (j *Reference) ResetAll(context.Context, string, int64) error { return errors.ErrUnsupported }

// question is a call as the oracle takes it.
func (q *Question) question(c *store.Call) oracle.Question {
	o := oracle.Question{Op: oracle.Op(c.Op), Cost: c.Cost, Record: c.Record, Print: c.Print, Counters: c.Counters}
	inPlan := make([]*quota.Limit, len(q.Limits))
	for i, l := range q.Limits {
		inPlan[q.places[i]] = l
	}
	for i, l := range inPlan {
		ask := oracle.Ask{Limit: l, Ceiling: c.Ceilings[i]}
		if n := len(o.Parts); i > 0 && c.Costs == nil && together(inPlan[i-1], l) {
			o.Parts[n-1].Asks = append(o.Parts[n-1].Asks, ask)
			continue
		}
		o.Parts = append(o.Parts, oracle.Part{Name: c.Keys[len(o.Parts)], Asks: []oracle.Ask{ask}})
	}
	for i := range c.Costs {
		o.Parts[i].Cost = c.Costs[i]
	}
	return o
}
