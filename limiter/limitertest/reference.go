package limitertest

import (
	"context"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// reference is the oracle as a store: what all others must equal. Its calls have to
// be built by the Questions that it has prepared.
type reference struct {
	region    *oracle.Region
	us        int64 // its clock, µs since the epoch
	questions map[*store.KeyPlan]*Question
}

func newReference() *reference {
	return &reference{region: oracle.NewRegion(), questions: map[*store.KeyPlan]*Question{}}
}

// ask is Ask.
func (r *reference) ask(limits ...*quota.Limit) *Question { return r.know(Ask(limits...)) }

// askCharges prepares questions about charges.
func (r *reference) askCharges(charges []quota.Charge) *Question {
	var limits []*quota.Limit
	for i := range charges {
		limits = append(limits, charges[i].Limit)
	}
	return r.know(newQuestion(limits, store.NewChargesPlan(limits)))
}

func (r *reference) know(q *Question) *Question {
	r.questions[q.plan] = q
	return q
}

// Decide implements the method of store.Store.
func (r *reference) Decide(_ context.Context, calls []store.Call, verdicts []store.Verdict) {
	for i := range calls {
		q := r.questions[calls[i].Plan]
		a := r.region.Decide(r.us, q.question(&calls[i]))
		verdicts[i] = store.Verdict{Outcome: a.Outcome, StoreUS: r.us}
		if h := a.Hold; h != (oracle.Reservation{}) {
			verdicts[i].Hold = store.HoldVerdict{
				ID: h.ID, ExpiresUS: h.Expires, Held: h.Held, Charged: h.Charged, Released: h.Released, TooMany: h.TooMany,
			}
		}
		for _, s := range a.States {
			verdicts[i].Limits = append(verdicts[i].Limits, store.LimitVerdict{
				Remaining: s.Remaining, WaitUS: s.WaitUS, ResetUS: s.ResetUS, Over: s.Over, Counter: s.Counter, Held: s.Held, Gauge: s.Gauge,
			})
		}
		for a.Outcome == oracle.Replayed && len(a.States) > 0 && len(verdicts[i].Limits) < len(q.Limits) { // it is older than a limit
			verdicts[i].Limits = append(verdicts[i].Limits, store.LimitVerdict{})
		}
	}
}

// question is a call as the oracle takes it.
func (q *Question) question(c *store.Call) oracle.Question {
	o := oracle.Question{Op: oracle.Op(c.Op), Cost: c.Cost, Record: c.Record, Print: c.Print, Counters: c.Counters}
	if h := c.Hold; h.ID != 0 {
		o.Hold = oracle.Hold{Name: store.ReservationKey(c.Keys[0], h.ID), ID: h.ID, TTL: h.TTLUS, Keep: h.KeepUS, Gone: h.GoneUS}
	}
	for i, l := range q.plan.Limits {
		ask := oracle.Ask{Limit: l, Ceiling: c.Ceilings[i]}
		if i > 0 && q.plan.KeyOf[i] == q.plan.KeyOf[i-1] {
			o.Parts[len(o.Parts)-1].Asks = append(o.Parts[len(o.Parts)-1].Asks, ask)
			continue
		}
		o.Parts = append(o.Parts, oracle.Part{Name: c.Keys[len(o.Parts)], Asks: []oracle.Ask{ask}})
	}
	for i := range c.Costs {
		o.Parts[i].Cost = c.Costs[i]
	}
	return o
}
