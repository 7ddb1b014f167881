package queue

import (
	"testing"
	"time"
)

// priceWorld is a Redis server that is saturated by two calls at once, in virtual time.
type priceWorld struct {
	cost    time.Duration // of Redis for a unit of weight
	way     time.Duration // to Redis and back
	running time.Duration // of each ten ms; 0 for all
	gap     time.Duration // between calls, when it is not saturated
}

const us = time.Microsecond

// done is when Redis has spent work, beginning at a time.
func (w priceWorld) done(at, work time.Duration) time.Duration {
	if w.running == 0 {
		return at + work
	}
	const cycle = 10 * time.Millisecond
	for {
		into := at % cycle
		if left := max(0, w.running-into); work <= left {
			return at + work
		} else if left > 0 {
			work -= left
		}
		at += cycle - into
	}
}

// serverAhead is how far Redis's clock is ahead.
const serverAhead = 1_795_198_405 * time.Second

// run has calls of the size that p wants for some seconds, and returns what a call was like.
func (w priceWorld) run(p *price, seconds int) (work, took time.Duration) {
	type call struct {
		sent, began, ended, answered time.Duration
		weight                       float64
	}
	now, free := time.Duration(0), time.Duration(0)
	send := func() call {
		c := call{sent: now, weight: p.perCall() - callWeight}
		if w.gap > 0 {
			c.weight = 7
		}
		work = time.Duration((c.weight + callWeight) * float64(w.cost))
		c.began = w.done(max(free, now+w.way/2), 1)
		free = w.done(c.began, work)
		c.ended, c.answered = free, free+w.way/2
		return c
	}
	under := []call{send(), send()}
	for now < time.Duration(seconds)*time.Second {
		c := under[0]
		now = c.answered
		p.answered(c.weight, time.UnixMicro(c.sent.Microseconds()), time.UnixMicro(now.Microseconds()),
			(serverAhead + c.began).Microseconds(), (serverAhead + c.ended).Microseconds())
		took = now - c.sent
		now += w.gap
		under = append(under[1:], send())
	}
	return work, took
}

// TestPrice: whatever Redis is like, a call keeps it busy for about callTime, or for longer
// if it is slow for other reasons than its work; and what it works off in a time is known.
func TestPrice(t *testing.T) {
	for _, row := range []struct {
		what       string
		world      priceWorld
		work       [2]time.Duration // of Redis in one call, from and to
		throughput float64          // weight per ms
	}{
		{"as measured", priceWorld{cost: 1000, way: 200 * time.Microsecond}, [2]time.Duration{callTime / 2, 2 * callTime}, 1000},
		{"five times as slow", priceWorld{cost: 5000, way: 200 * time.Microsecond}, [2]time.Duration{callTime / 2, 2 * callTime}, 200},
		{"a millisecond of ten", priceWorld{cost: 1000, way: 200 * time.Microsecond, running: time.Millisecond}, [2]time.Duration{leastWeight * weightCost, callTime}, 100},
		{"twenty milliseconds away", priceWorld{cost: 1000, way: 20 * time.Millisecond}, [2]time.Duration{callTime / 2, 2 * callTime}, 1000},
	} {
		p := price{call: callWeight, cost: weightCost}
		work, took := row.world.run(&p, 3)
		if work < row.work[0] || work > row.work[1] {
			t.Errorf("%s: a call is %v of Redis's work, want %v", row.what, work, row.work)
		}
		if got := p.within(100*time.Millisecond) / 100; got < 0.6*row.throughput || got > 1.6*row.throughput {
			t.Errorf("%s: a weight of %.0f each ms, want %.0f", row.what, got, row.throughput)
		}
		t.Logf("%s: cost %.0f, slow %.1f; a call is %v of work and took %v", row.what, p.cost, p.slow(), work, took)
		row.world.gap, row.world.running = time.Millisecond, 0
		row.world.run(&p, 2)
		if p.slow() > 1.5 {
			t.Errorf("%s: %.1f times as slow while nothing waits", row.what, p.slow())
		}
	}
}

// TestPriceOfPauses: a Redis that stood still in the middle of a call, or before it, is not
// taken for slow or dear for longer than a second.
func TestPriceOfPauses(t *testing.T) {
	for _, row := range []struct {
		what         string
		before, busy time.Duration // Redis begins with a call, and needs for it
		then         time.Duration // when the next call comes
	}{
		{"in a call", 500 * us, 500 * ms, 5 * ms},
		{"before a call, and then idle", 250 * ms, 2 * ms, 1250 * ms},
	} {
		p, at := price{call: callWeight, cost: weightCost}, time.Unix(1_800_000_000, 0)
		call := func(weight float64, before, busy time.Duration) {
			began := at.Add(before)
			p.answered(weight, at, began.Add(busy+500*us), began.UnixMicro(), began.Add(busy).UnixMicro())
			at = began.Add(busy + 3*ms)
		}
		for range 100 {
			call(2000, 500*us, 2*ms)
		}
		call(2000, row.before, row.busy)
		paused := p.within(sendWithin(testBudget))
		at = at.Add(row.then)
		for end := at.Add(time.Second); row.busy > row.before && at.Before(end); {
			call(2000, 500*us, 2*ms)
		}
		call(7, 500*us, 40*us)
		after := p.within(sendWithin(testBudget))
		t.Logf("%s: room for %.0f, and then for %.0f", row.what, paused, after)
		if after < 10_000 {
			t.Errorf("%s: room for %.0f a second after, %.0f is what an idle Redis does", row.what, after, float64(sendWithin(testBudget))/weightCost)
		}
	}
}
