// Package limitertest is the conformance suite of store.Store. Run goes through
// ledgers written by hand, RunPrograms through random programs whose every answer
// must equal the oracle's to the last microsecond. What passes both may stand in
// for the region's Redis: in a demo, in a simulator, or while Redis is away.
//
// A store under test must let the suite move its clock by hand. Its keys must not
// expire by any other clock: no answer may depend on expiry, and the suite goes
// days forward and back to see that. For tests alone.
package limitertest

import (
	"fmt"
	"testing"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// New starts a store that holds nothing, and returns it with what sets its
// clock, in microseconds since the epoch. It is called for each subtest and
// cleans up with it.
type New func(t testing.TB) (s store.Store, now func(us int64))

// Epoch is where ledgers and programs begin: µs since the epoch, a multiple of
// every window that ledgers use, with neighbours that a float of 14 digits
// cannot distinguish.
const Epoch = int64(1_795_198_405_000_000)

// Run holds a store to the ledgers. What a clock that swings gains is a property of the oracle: quota.PartitionClockAt.
func Run(t *testing.T, newStore New) {
	for _, l := range ledgers(t) {
		t.Run(l.name, func(t *testing.T) { l.run(t, newStore) })
	}
	t.Run("reset forgets one tenant", func(t *testing.T) { reset(t, newStore) })
}

// Question builds calls for a set of limits and puts their verdicts back into
// the limits' own order.
type Question struct {
	Limits []*quota.Limit
	plan   *store.KeyPlan
	places []int // places[i] is where Limits[i] stands in the plan
}

// Ask prepares questions about limits, which must be valid and apply together.
func Ask(limits ...*quota.Limit) *Question { return newQuestion(limits, store.NewKeyPlan(limits)) }

func newQuestion(limits []*quota.Limit, plan *store.KeyPlan) *Question {
	q := &Question{Limits: limits, plan: plan, places: make([]int, len(limits))}
	for place, i := range plan.Order {
		q.places[i] = place
	}
	return q
}

// chargesCall is a call of the charges that q is about.
func (q *Question) chargesCall(tenant string, op store.Op, charges []quota.Charge) store.Call {
	c := store.Call{Plan: q.plan, Op: op, Ceilings: q.plan.Capacities}
	var dims []quota.Dimensions
	for i := range charges {
		dims, c.Costs, c.Cost = append(dims, charges[i].Dimensions), append(c.Costs, charges[i].Cost), max(c.Cost, charges[i].Cost)
	}
	c.Keys = q.plan.AppendKeys(nil, tenant, "p", dims...)
	c.Counters = q.plan.AppendCounters(nil, c.Keys, tenant, "p")
	return c
}

// Call is one call for a tenant under policy "p". ceilings are in the order of
// Limits; nil means their capacities.
func (q *Question) Call(tenant string, op store.Op, cost int64, ceilings []int64) store.Call {
	c := store.Call{
		Plan: q.plan, Op: op, Cost: cost, Ceilings: make([]int64, len(q.Limits)),
		Keys: q.plan.AppendKeys(nil, tenant, "p", nil),
	}
	c.Counters = q.plan.AppendCounters(nil, c.Keys, tenant, "p")
	for i, l := range q.Limits {
		c.Ceilings[q.places[i]] = l.Capacity()
		if ceilings != nil {
			c.Ceilings[q.places[i]] = ceilings[i]
		}
	}
	return c
}

// Text is a verdict in the limits' order: outcome, then "remaining wait reset" of each limit, with bars between. Of one that
// takes holds they follow as "h60", and what peers have to know of them as "#sequence: units until end"; of a reservation
// all comes in braces.
func (q *Question) Text(v *store.Verdict) string {
	if v.Err != nil {
		return "e " + v.Err.Error()
	}
	text := string(rune(v.Outcome))
	for i := range q.Limits {
		if q.places[i] >= len(v.Limits) {
			break
		}
		if i > 0 {
			text += " |"
		}
		l := v.Limits[q.places[i]]
		text += fmt.Sprintf(" %d %d %d", l.Remaining, l.WaitUS, l.ResetUS)
		if q.Limits[i].Holds() || l.Held != 0 {
			text += fmt.Sprintf(" h%d", l.Held)
		}
		if g := l.Gauge; v.Outcome != store.Replayed && g != (quota.Gauge{}) { // a replay is as old as it is
			text += fmt.Sprintf(" #%d: %d until %d", g.Sequence-Epoch, g.Units, afterEpoch(g.UntilUS))
		}
	}
	if r := v.Hold; r != (store.HoldVerdict{}) {
		text += fmt.Sprintf(" {%d until %d held %d charged %d over %d", r.ID, afterEpoch(r.ExpiresUS), r.Held, r.Charged, r.Overrun())
		if r.Released {
			text += " released"
		}
		if r.TooMany {
			text += " too many"
		}
		text += "}"
	}
	return text
}

// afterEpoch leaves 0, which is no time, as it is.
func afterEpoch(us int64) int64 {
	if us == 0 {
		return 0
	}
	return us - Epoch
}

// Shared is what is published of a verdict: for each limit in order the units
// beyond its ceiling and its usage counter.
func (q *Question) Shared(v *store.Verdict) string {
	text := ""
	for i := range q.Limits {
		if q.places[i] < len(v.Limits) {
			l := v.Limits[q.places[i]]
			text += fmt.Sprintf(" %d %v", l.Over, l.Counter)
		}
	}
	return text
}
