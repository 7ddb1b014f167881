package limitertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// RunPrograms holds a store to the oracle over random programs: costs, ceilings
// that move, several windows over several partitions, reports, peeks, idempotency
// keys, batches, reloads, and a clock that steps. Every verdict must be equal in full.
func RunPrograms(t *testing.T, newStore New) {
	for name, run := range map[string]func(*rapid.T, *pair){
		"short":   func(t *rapid.T, p *pair) { program(t, p, false) },
		"plain":   func(t *rapid.T, p *pair) { program(t, p, true) },
		"reloads": reloadProgram,
		"lowered": loweredProgram,
		"waits":   waitProgram,
		"runs":    runProgram,
		"charges": chargesProgram,
		"refunds": refundsProgram,
	} {
		t.Run(name, func(t *testing.T) {
			kept, now := newStore(t)
			tenants := 0
			rapid.Check(t, func(t *rapid.T) {
				tenants++
				run(t, newPair(kept, now, fmt.Sprint("t", tenants)))
			})
		})
	}
	t.Run("long logs", func(t *testing.T) {
		kept, now := newStore(t)
		for seed := range uint64(longPrograms) {
			longProgram(t, seed, newPair(kept, now, fmt.Sprint("long", seed)))
		}
	})
}

// pair is a store and the reference that it must equal, with one clock.
type pair struct {
	store     store.Store
	reference *reference
	setStore  func(us int64)
	tenant    string
	us        int64
	steps     int
	known     map[quota.CounterKey]quota.Counter // that the last answers had
	seen      func(*store.Verdict)               // each verdict of the store, if it is set
}

func newPair(s store.Store, now func(us int64), tenant string) *pair {
	return &pair{store: s, reference: newReference(), setStore: now, tenant: tenant, us: Epoch + 260_197, known: map[quota.CounterKey]quota.Counter{}}
}

// now sets both clocks to us.
func (p *pair) now() {
	p.setStore(p.us)
	p.reference.us = p.us
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Fatalf(format string, args ...any)
}

// compare has both decide a batch now. Ceilings rest on what was answered last, but now and then on nothing.
func (p *pair) compare(t failer, calls ...store.Call) {
	p.now()
	p.steps++
	for i := range calls {
		for n := range calls[i].Counters {
			if p.steps%4 > 0 {
				calls[i].Known = append(calls[i].Known, p.known[calls[i].Counters[n]])
			}
		}
	}
	if len(calls) == 1 {
		p.elsewhen(t, &calls[0])
	}
	got, want := decide(p.store, calls...), decide(p.reference, calls...)
	for i := range calls {
		q := p.reference.questions[calls[i].Plan]
		if p.seen != nil {
			p.seen(&got[i])
		}
		if g, w := q.Text(&got[i])+q.Shared(&got[i]), q.Text(&want[i])+q.Shared(&want[i]); g != w || got[i].StoreUS != want[i].StoreUS {
			c := calls[i]
			t.Fatalf("step %d, %c %d of %d under %v at %d:\nstore  %s\noracle %s",
				p.steps, c.Op, i, c.Cost, c.Ceilings, got[i].StoreUS, g, w)
		}
		n := 0
		for k, l := range calls[i].Plan.Limits {
			if l.Scope == quota.ScopeGlobal && k < len(got[i].Limits) {
				// Of a period in which nothing was charged the store has no counter.
				if c := got[i].Limits[k].Counter; got[i].Outcome != store.Replayed && (c.EndsUS == 0 || c.Units > 0) {
					p.known[calls[i].Counters[n]] = got[i].Limits[k].Counter
				}
				n++
			}
		}
	}
}

// elsewhen has the store decide a call whose ceilings are for a period that never counts: that must show the one that does and
// change nothing, as the call shows that follows, for that period.
func (p *pair) elsewhen(t failer, c *store.Call) {
	if c.Plan.GlobalPeriods == 0 || c.Record != "" || c.Op.OfReservation() || c.Op == store.OpRefund {
		return
	}
	other := *c
	other.Periods = make([]int64, c.Plan.GlobalPeriods)
	other.Periods[p.steps%len(other.Periods)] = 1
	v := decide(p.store, other)[0]
	if v.Err == nil && v.Outcome == store.Lost {
		return
	}
	if v.Err != nil || v.Outcome != store.Elsewhen {
		t.Fatalf("step %d, ceilings for the period 1: %c, %v", p.steps, v.Outcome, v.Err)
	}
	for i, l := range c.Plan.Limits {
		if l.Scope == quota.ScopeGlobal && l.Calendar != nil {
			c.Periods = append(c.Periods, v.Limits[i].Counter.Bucket)
		}
	}
}

func program(t *rapid.T, p *pair, plain bool) {
	limits := genLimits(t)
	if plain {
		limits = plainLogs(limits)
	}
	q := p.reference.ask(limits...)
	for range rapid.IntRange(1, 50).Draw(t, "steps") {
		p.us += genMove(t, limits)
		var calls []store.Call
		for range rapid.IntRange(1, 3).Draw(t, "batch") {
			c := genCall(t, q, p.tenant)
			if plain {
				c.Op, c.Cost = store.OpCheck, 1
			}
			calls = append(calls, c)
		}
		p.compare(t, calls...)
	}
}

func genLimits(t *rapid.T) []*quota.Limit {
	var limits []*quota.Limit
	for i := range rapid.IntRange(1, 4).Draw(t, "limits") {
		l := GenLimit(t, fmt.Sprint("l", i))
		if l.Algorithm != quota.GCRA && rapid.Bool().Draw(t, "global") {
			l.Scope = quota.ScopeGlobal
		}
		if rapid.IntRange(0, 2).Draw(t, "by") == 0 {
			l.By = []string{"user"}
		}
		limits = append(limits, l)
	}
	return limits
}

// plainLogs makes one partition's logs of all limits.
func plainLogs(limits []*quota.Limit) []*quota.Limit {
	for _, l := range limits {
		l.Algorithm, l.Calendar, l.Burst, l.By, l.Units = quota.SlidingLog, nil, 0, nil, min(l.Units, 40)
	}
	return limits
}

// genMove is by how much time moves on or back: mostly a little, often to within
// a microsecond of a window's edge, sometimes far.
func genMove(t *rapid.T, limits []*quota.Limit) int64 {
	longest := longest(limits)
	switch rapid.IntRange(0, 9).Draw(t, "move") {
	case 0:
		return -rapid.Int64Range(0, 2*longest).Draw(t, "back")
	case 1:
		return rapid.Int64Range(0, 2*longest).Draw(t, "on")
	case 2, 3:
		return rapid.SampledFrom(limits).Draw(t, "which").WindowUS() + rapid.Int64Range(-1, 1).Draw(t, "edge")
	case 4:
		return 0
	default:
		return rapid.Int64Range(0, longest/8+1).Draw(t, "little")
	}
}

func genCall(t *rapid.T, q *Question, tenant string) store.Call {
	op := rapid.SampledFrom([]store.Op{store.OpCheck, store.OpCheck, store.OpCheck, store.OpPeek, store.OpReport}).Draw(t, "op")
	cost := rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 7}).Draw(t, "cost")
	if rapid.IntRange(0, 9).Draw(t, "big") == 0 {
		cost = rapid.Int64Range(1, quota.MaxUnits).Draw(t, "cost")
	}
	ceilings := make([]int64, len(q.Limits))
	for i, l := range q.Limits {
		ceilings[i] = l.Capacity()
		if l.Scope == quota.ScopeGlobal && rapid.Bool().Draw(t, "lower") {
			ceilings[i] = rapid.Int64Range(0, l.Capacity()).Draw(t, "ceiling")
		}
	}
	c := q.Call(tenant, op, cost, ceilings)
	if op != store.OpPeek && rapid.IntRange(0, 7).Draw(t, "keyed") == 0 {
		c.Record = fmt.Sprintf("rl:{%s}:i:%d", tenant, rapid.IntRange(0, 2).Draw(t, "record"))
		c.Print = rapid.SampledFrom([]string{"one", "two"}).Draw(t, "print")
	}
	return c
}

// runProgram is a small log that is always busy, and now and then gets a cost above 1: it
// begins runs of weighted elements and leaves them again, at every place of the log. Two plans with windows of 1 and 5 ms
// share it, and the longer window is asked about while its plan was charged within two of them.
func runProgram(t *rapid.T, p *pair) {
	units := rapid.Int64Range(2, 12).Draw(t, "L")
	whole := rule("log", quota.SlidingLog, units, 1000)
	questions := []*Question{
		p.reference.ask(whole, rule("half", quota.SlidingLog, units/2, 500)), p.reference.ask(rule("log", quota.SlidingLog, units, 5000)),
	}
	longer, charged := questions[1], p.us
	p.compare(t, longer.Call(p.tenant, store.OpReport, 1, nil))
	for range rapid.IntRange(20, 200).Draw(t, "steps") {
		p.us += rapid.Int64Range(0, 2000/units).Draw(t, "on")
		cost := rapid.SampledFrom([]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3}).Draw(t, "cost")
		op := rapid.SampledFrom([]store.Op{store.OpCheck, store.OpCheck, store.OpReport}).Draw(t, "op")
		q := questions[rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "W")]
		switch {
		case q != longer:
		case p.us >= charged+2*longest(q.Limits):
			q = questions[0]
		case op == store.OpReport:
			charged = p.us
		}
		p.compare(t, q.Call(p.tenant, op, cost, nil), q.Call(p.tenant, store.OpPeek, 1, nil))
	}
}

// chargesProgram asks about several values of each limit at once, each at its own cost, and equal values more than once.
func chargesProgram(t *rapid.T, p *pair) {
	limits := genLimits(t)
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		var charges []quota.Charge
		for range rapid.SampledFrom([]int{1, 2, 3, 8, 20}).Draw(t, "charges") {
			l := *rapid.SampledFrom(limits).Draw(t, "limit")
			l.By = []string{l.Name}
			charges = append(charges, quota.Charge{
				Limit: &l, Cost: rapid.SampledFrom([]int64{1, 1, 1, 2, 5}).Draw(t, "cost"),
				Dimensions: quota.Dimensions{{Name: l.Name, Value: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "value")}},
			})
		}
		q := p.reference.askCharges(charges)
		op := rapid.SampledFrom([]store.Op{store.OpCheck, store.OpCheck, store.OpCheck, store.OpPeek, store.OpReport}).Draw(t, "op")
		p.us += genMove(t, limits)
		p.compare(t, q.chargesCall(p.tenant, op, charges), q.chargesCall(p.tenant, store.OpCheck, charges))
	}
}

// refundsProgram takes back what it charged, one value or several at once, some of them equal.
func refundsProgram(t *rapid.T, p *pair) {
	l := GenLimit(t, "l")
	l.By = []string{"v"}
	limits := []*quota.Limit{l}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		p.us += genMove(t, limits)
		op := rapid.SampledFrom([]store.Op{store.OpCheck, store.OpCheck, store.OpReport, store.OpPeek, store.OpRefund, store.OpRefund}).Draw(t, "op")
		var charges []quota.Charge
		for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "charges") {
			cost := rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 7}).Draw(t, "cost")
			if rapid.IntRange(0, 19).Draw(t, "big") == 0 {
				cost = rapid.Int64Range(1, quota.MaxUnits).Draw(t, "cost")
			}
			charges = append(charges, quota.Charge{Limit: l, Cost: cost, Dimensions: quota.Dimensions{
				{Name: "v", Value: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "value")},
			}})
		}
		q := p.reference.askCharges(charges)
		c := q.chargesCall(p.tenant, op, charges)
		if len(charges) == 1 {
			c.Costs = nil
		}
		p.compare(t, c, q.chargesCall(p.tenant, store.OpPeek, charges))
	}
}

// longPrograms is how many long logs each store is asked about.
const longPrograms = 24

// longProgram fills a log of up to 2,000 entries that arrived in rushes and
// pauses, many of them at one microsecond, and then asks about it from every
// place of its window. This is where a search that is clever about where an
// entry stands can be wrong.
func longProgram(t *testing.T, seed uint64, p *pair) {
	random := rand.New(rand.NewPCG(seed, 7))
	pick := func(from ...int64) int64 { return from[random.IntN(len(from))] }
	size := 1 + random.Int64N(2000)
	width := pick(10_000, 1_000_003, 60_000_000)
	whole := rule("log", quota.SlidingLog, size, width)
	whole.Scope = quota.ScopeGlobal
	q := p.reference.ask(whole, rule("half", quota.SlidingLog, size/2+1, width/2+1), rule("tenth", quota.SlidingLog, size/10+1, width/10+1))
	mixed := random.IntN(3) // no costs above 1, some from the middle on, all along
	for entries := int64(0); entries < size; {
		p.now()
		var calls []store.Call
		for range min(64, 1+random.Int64N(64), size-entries) {
			cost := int64(1)
			if mixed == 2 || mixed == 1 && entries > size/2 {
				cost = pick(1, 1, 2, 5)
			}
			calls = append(calls, q.Call(p.tenant, store.OpReport, cost, nil))
			entries++
		}
		decide(p.store, calls...)
		for _, c := range calls {
			p.reference.region.Charge(p.us, q.question(&c))
		}
		p.us += pick(0, 0, 1, width/500, random.Int64N(width/20+1), random.Int64N(width/4+1))
	}
	asks := make([]int64, 40)
	for i := range asks {
		asks[i] = p.us + random.Int64N(width+2)
	}
	slices.Sort(asks)
	for _, p.us = range asks {
		p.compare(t,
			q.Call(p.tenant, store.OpPeek, 1, nil),
			q.Call(p.tenant, store.OpCheck, pick(1, 2, size/3+1), []int64{1 + random.Int64N(size), size/2 + 1, size/10 + 1}),
			q.Call(p.tenant, store.OpCheck, 1, nil),
		)
	}
}
