package redisstore

import (
	"time"

	"github.com/regiond/regiond/limiter/store"
)

// price is what checks cost a Redis server: how many fit in one script call, and how many
// can wait without missing their time. It is not safe for concurrent use.
//
// How much Redis gets done is read off its own clock, since this process may have to wait
// for a processor for longer than Redis needs for a call:
//
//	sent ── way ── arrived ── other calls, pauses ── began (TIME) ── work ── end ── way ── answered
//	               └──────────────── passed ───────────────────────────────────┘
type price struct {
	start  time.Time // of this process's clock
	call   float64   // weight of a call without a check in it, if it is not in the checks' own
	cost   float64   // ns of Redis for a unit of weight, as Redis itself measures it
	passed float64   // ns in which Redis had calls of ours; fades
	spent  float64   // ns of Redis that they needed; fades

	way   time.Duration // from when a call is sent to when Redis could begin, by both clocks
	until time.Duration // when the latest call ended, on Redis's clock
	last  time.Time     // when the latest call was answered
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

// answered learns from a call that carried weight: when it was sent, how long it took, and
// when Redis began with it.
func (p *price) answered(weight float64, sent time.Time, took time.Duration, storeUS int64) {
	if storeUS == 0 {
		return // none of its checks was decided
	}
	p.idle(sent)
	now := sent.Add(took)
	keep := float64(fade) / float64(fade+max(0, now.Sub(p.last)))
	p.passed, p.spent, p.last = p.passed*keep, p.spent*keep, now
	began := time.Duration(storeUS) * time.Microsecond
	way := began - sent.Sub(p.start)
	switch {
	case way < p.way, way-p.way > took: // the fastest so far, or a clock has stepped
		p.way = way
	default:
		p.way += (way - p.way) / 256
	}
	// What is shorter than jitter is no wait for Redis.
	const jitter = 200 * time.Microsecond
	work := (weight + p.call) * p.cost
	arrived, end := min(began, began-(way-p.way)+jitter), began+time.Duration(work)
	if p.until > end+took {
		p.until = arrived // Redis's clock has stepped back
	}
	// Time in which several calls were there counts once, and a call of a few checks does not
	// count: it says more of the way than of Redis.
	if weight >= leastWeight {
		p.passed += float64(max(0, end-max(arrived, p.until)))
		p.spent += work
	}
	p.until = max(p.until, end)
}

// measured learns from what Redis says of its calls: how long they took on average, and
// what they weighed. ours is whether most of them were this process's.
func (p *price) measured(took time.Duration, weight float64, ours bool) {
	sample := float64(took) / weight
	if sample > p.cost {
		// Our small calls may be among larger ones of other processes: only what takes longer
		// than a full call, and is mostly ours, is dearer than was known. A pause doubles it at
		// most.
		if !ours {
			return
		}
		sample = min(max(p.cost, float64(took)/(p.perCall()+p.call)), 2*p.cost)
	}
	p.cost = min(max((p.cost+sample)/2, weightCost/4), 100*weightCost)
}

// weight is what a check costs Redis: about so many µs, where BenchmarkPrices was run.
func weight(c *store.Call) float64 {
	w := float64(10*len(c.Counters) + 2*len(c.Bounds) + 10*len(c.Loans))
	if c.Record != "" {
		w += 10
	}
	for i := range c.Plan.Keys {
		k := &c.Plan.Keys[i]
		switch {
		case k.Kind != 'l':
			w += 15
		case c.Cost > 1, c.Costs != nil:
			w += 20
		default:
			w += 7
		}
		w += 1.5 * float64(len(k.Limits)-1)
	}
	return w
}
