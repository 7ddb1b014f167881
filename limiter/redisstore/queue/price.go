package queue

import (
	"time"

	"github.com/regiond/regiond/limiter/store"
)

// price is what checks cost a Redis server: how many fit in one script call, and how many
// can wait without missing their time. It is not safe for concurrent use.
//
// How long Redis is busy, and what it gets done, is read off its own clock, since this process
// may have to wait for a processor for longer than Redis needs for a call:
//
//	sent ── way ── arrived ── other calls, pauses ── began (TIME) ── busy ── ended (TIME) ── way ── answered
//	               └──────────────── passed ─────────────────────────────────┘
type price struct {
	call   float64 // weight of a call without a check in it, if it is not in the checks' own
	cost   float64 // ns of Redis for a unit of weight
	passed float64 // ns in which Redis had calls of ours; fades
	spent  float64 // ns of Redis that they needed; fades

	way   int64     // µs from when a call is sent, by our clock, to when Redis could begin, by its own
	until int64     // when the latest call ended, µs of Redis's clock
	last  time.Time // when the latest call was answered
}

const (
	// weightCost is the ns of Redis for a unit of weight, on the machine where weights were measured.
	weightCost = 1000.0
	// callWeight is the weight of a script call without a check in it.
	callWeight = 30
	// callTime is how long Redis is busy with one script call, about. It does not depend on
	// how long this process waits for the answer: where the way or the processors are slow,
	// smaller calls would only get less done.
	callTime = 2 * time.Millisecond
	// leastWeight is what a call may carry in any case: less would be spent on the calls
	// themselves. leastWaiting is the least that counts as worked off within the budget, of
	// which admit lets parts wait.
	leastWeight, leastWaiting = 100.0, 1000.0
	// firstCall is what the first call after a pause may carry.
	firstCall = 500 * time.Microsecond
	// fade is how long a measurement of slow counts.
	fade = 100 * time.Millisecond
)

// perCall is the weight that one call may carry. It grows with what was worked off just
// now: a Redis that has become slow since is then not held up for long.
func (p *price) perCall() float64 {
	return max(leastWeight, min(float64(callTime), float64(firstCall)+p.spent)/p.cost)
}

// within is the weight that Redis works off in a time.
func (p *price) within(d time.Duration) float64 {
	return float64(d) / (p.cost * p.slow())
}

// slow is how much time passes for an amount of Redis's time, at least 1. A little is added
// on both sides, so that it is 1 while nothing is known.
func (p *price) slow() float64 {
	const little = float64(200 * time.Microsecond)
	return max(1, (p.passed+little)/(p.spent+little))
}

// idle forgets how slow Redis was, if it has had nothing to do for a while.
func (p *price) idle(now time.Time) {
	if now.Sub(p.last) > 2*fade {
		p.passed, p.spent = 0, 0
	}
}

// answered learns from a call that carried weight: when it was sent and answered, and when
// Redis began and ended it, µs of its clock.
func (p *price) answered(weight float64, sent, now time.Time, began, ended int64) {
	took, way := now.Sub(sent).Microseconds(), began-sent.UnixMicro()
	if ended < began || ended-began > took {
		return // its clock has stepped
	}
	p.idle(sent)
	keep := float64(fade) / float64(fade+max(0, now.Sub(p.last)))
	p.passed, p.spent, p.last = p.passed*keep, p.spent*keep, now
	p.learn(float64(ended-began) * 1000 / (weight + p.call))
	switch {
	case way < p.way, way-p.way > took: // the fastest so far, or a clock has stepped
		p.way = way
	default:
		p.way += (way - p.way) / 256
	}
	if p.until > ended+took {
		p.until = 0 // Redis's clock has stepped back
	}
	// Time in which several calls were there counts once, and a call of a few checks does not
	// count: it says more of the way than of Redis.
	if weight >= leastWeight {
		const jitter = 200 // µs; what is shorter is no wait for Redis
		arrived := min(began, began-(way-p.way)+jitter)
		p.passed += float64(max(0, ended-max(arrived, p.until))) * 1000
		p.spent += (weight + p.call) * p.cost
	}
	p.until = max(p.until, ended)
}

// learn takes what a unit of weight has cost in one call. A pause in a call doubles it at most.
func (p *price) learn(sample float64) {
	const calls = 16 // that a sample counts among
	p.cost += (min(sample, 2*p.cost) - p.cost) / calls
	p.cost = min(max(p.cost, weightCost/4), 100*weightCost)
}

// weight is what a check costs Redis: about so many µs, where BenchmarkPrices was run.
func weight(c *store.Call) float64 {
	w := float64(10*len(c.Counters) + 2*len(c.Bounds) + 10*len(c.Loans))
	if c.Record != "" {
		w += 17
	}
	if c.Op.OfReservation() {
		w += 20
	}
	for i := range c.Plan.Keys {
		k := &c.Plan.Keys[i]
		switch {
		case k.Kind != 'l':
			w += 15
		case c.Cost > 1, c.Costs != nil, c.Op == store.OpRefund:
			w += 20
		default:
			w += 7
		}
		if k.Holds {
			w += 20 // and a check needs a state
		}
		w += 1.5 * float64(len(k.Limits)-1)
	}
	return w
}
