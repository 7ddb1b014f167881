package oracle

import (
	"cmp"
	"maps"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Op is what a Question does.
type Op byte

const (
	// Check charges if the cost fits every limit.
	Check Op = 'c'
	// Peek answers as Check would and changes nothing.
	Peek Op = 'p'
	// Report charges in any case.
	Report Op = 'r'
	// Refund takes the newest units back, in any case.
	Refund Op = 'f'
)

// Outcome of a Question.
const (
	Admitted = 'a'
	Denied   = 'd'
	Replayed = 'm' // an earlier admission, given again
	Reused   = 'x' // its Record came with another Print before
)

// IdempotencyUS is how long an admission is replayed, microseconds.
const IdempotencyUS = 60_000_000

// Ask is one limit of a question, and how much of it this region may use.
type Ask struct {
	Limit   *quota.Limit
	Ceiling int64
}

// Part is one partition of a question and the limits that are asked of it, all
// of one algorithm; only logs answer more than one limit.
type Part struct {
	Name string
	Asks []Ask
	Cost int64 // 0: that of the question. Parts of one name are charged one after the other
}

// Question is one check, over all its partitions at once.
type Question struct {
	Op    Op
	Cost  int64
	Parts []Part
	// Record names the record of an admission, "" for none, and Print distinguishes
	// the question from others under the same Record.
	Record, Print string
	Hold          Hold // of Reserve, Settle and Extend
	// Counters names what counts each global limit, in the order of Parts and Asks.
	Counters []quota.CounterKey
}

// need is what the limits of a part need of a log: the most units and the longest window.
type need struct{ units, width int64 }

// counted is what a charge counts as. In a log a report above every limit that was charged
// within two of its windows is as one of the largest, so that it does not outlive a limit
// that is raised.
func (pt *partition) counted(now int64, p Part, cost int64) int64 {
	if p.Asks[0].Limit.Algorithm != quota.SlidingLog {
		return cost
	}
	own := need{}
	for _, a := range p.Asks {
		own = need{max(own.units, a.Limit.Units), max(own.width, a.Limit.WindowUS())}
	}
	pt.needs[own] = now
	largest := int64(0)
	for n, last := range pt.needs {
		if n == own || last+2*n.width > now {
			largest = max(largest, n.units)
		}
	}
	return min(cost, largest)
}

// State is one limit as an answer leaves it.
type State struct {
	Remaining int64
	WaitUS    int64 // until the cost fits: 0 now, −1 never under this ceiling
	ResetUS   int64 // until nothing is used
	Over      int64 // of a global limit that denies: units used beyond the ceiling, counted up to L
	Counter   quota.Counter
	Held      int64 // by reservations, after the call
	Gauge     quota.Gauge
}

// Answer is what a Question ought to get. States are in the order of Parts and
// their Asks; there are none when the outcome is Reused.
type Answer struct {
	Outcome byte
	States  []State
	Hold    Reservation // of Reserve, Settle and Extend
}

// Region is one region's store.
type Region struct {
	partitions map[string]*partition
	records    map[string]record
	totals     map[quota.CounterKey]quota.Counter
	periods    map[quota.CounterKey]periodTotals
	gauges     map[quota.CounterKey]quota.Gauge
	sets       map[string]*set
	// reservations are never forgotten: what is too old is Gone.
	reservations map[string]reservation
}

type record struct {
	us     int64
	print  string
	answer Answer
}

type partition struct {
	clock clock
	usage usage
	asks  []Ask          // of the question at hand
	needs map[need]int64 // when each was charged last
}

// NewRegion returns a region in which nothing was used.
func NewRegion() *Region {
	return &Region{
		partitions: map[string]*partition{}, records: map[string]record{}, totals: map[quota.CounterKey]quota.Counter{}, periods: map[quota.CounterKey]periodTotals{}, gauges: map[quota.CounterKey]quota.Gauge{},
		sets: map[string]*set{}, reservations: map[string]reservation{},
	}
}

// Forget drops all partitions, records and reservations whose name begins with prefix, and a tenant's usage counters of
// generations up to upTo.
func (r *Region) Forget(prefix, tenant string, upTo int64) {
	forget(r.partitions, prefix)
	forget(r.records, prefix)
	forget(r.sets, prefix)
	forget(r.reservations, prefix)
	for key, c := range r.totals {
		if key.Tenant == tenant && c.Generation <= upTo {
			delete(r.totals, key)
			delete(r.periods, key)
			delete(r.gauges, key)
		}
	}
}

func forget[V any](m map[string]V, prefix string) {
	maps.DeleteFunc(m, func(name string, _ V) bool { return strings.HasPrefix(name, prefix) })
}

// Decide answers a question that reaches the store at time.
func (r *Region) Decide(time int64, q Question) Answer {
	if old, ok := r.records[q.Record]; ok && q.Record != "" && time < old.us+IdempotencyUS {
		if old.print != q.Print {
			return Answer{Outcome: Reused}
		}
		return Answer{Outcome: Replayed, States: old.answer.States, Hold: old.answer.Hold}
	}
	var settled reservation
	switch _, taken := r.reservations[q.Hold.Name]; {
	case q.Op == Refund:
		return r.refund(time, q)
	case q.Op == Extend:
		return r.extend(time, q)
	case q.Op == Reserve && taken:
		return Answer{Outcome: Taken}
	case q.Op == Settle:
		var done *Answer
		if settled, done = r.settle(time, q); done != nil {
			return *done
		}
	}
	fits, answer := true, Answer{Outcome: Denied}
	costs, sums := make([]int64, len(q.Parts)), make([]int64, len(q.Parts)) // sums with parts of the same name before
	for i, p := range q.Parts {
		charged, held := q.takes(p)
		costs[i], sums[i] = charged, held
		for n := range i + 1 {
			if q.Parts[n].Name == p.Name {
				sums[i] += costs[n]
			}
		}
		answer.Hold.TooMany = answer.Hold.TooMany || held > 0 && len(r.set(p.Name).open(time)) >= quota.MaxHolds
		for _, a := range p.Asks {
			fits = fits && r.wait(time, p, a, sums[i]) == 0
		}
	}
	fits = fits && !answer.Hold.TooMany
	past := q.Op == Report || q.Op == Settle
	writes := past || q.Op == Check || q.Op == Reserve && q.Cost > 0
	charge := past || writes && fits
	if fits || charge {
		answer.Outcome = Admitted
	}
	totals := q.Counters
	for i, p := range q.Parts {
		pt := r.partition(p)
		if charge && costs[i] > 0 {
			pt.charge(time, p, costs[i])
		} else if writes && !charge {
			_, pt.clock.ahead = pt.read(time)
		}
		for _, a := range p.Asks {
			if charge && a.Limit.Scope == quota.ScopeGlobal {
				if costs[i] > 0 {
					r.count(totals[0], time, a.Limit, costs[i], true, r.period(p, a.Limit, time))
				}
				totals = totals[1:]
			}
		}
	}
	switch {
	case q.Op == Settle:
		answer.Outcome, answer.Hold = Settled, settled.Reservation
		r.reservations[q.Hold.Name] = settled
	case q.Op == Reserve && charge:
		answer.Hold = r.reserve(time, q)
	}
	totals = q.Counters
	for i, p := range q.Parts {
		pt, set := r.partition(p), r.set(p.Name)
		for _, a := range p.Asks {
			s := State{Held: set.held(time), ResetUS: max(pt.reset(time, a), set.ends(time))}
			s.Remaining = max(0, a.Ceiling-pt.used(time, a)-s.Held)
			if !charge {
				s.WaitUS = r.wait(time, p, a, sums[i])
				if _, held := q.takes(p); held > 0 && len(set.open(time)) >= quota.MaxHolds && s.WaitUS >= 0 {
					s.WaitUS = max(s.WaitUS, set.until(time, set.open(time)[0]), 1)
				}
			}
			if a.Limit.Scope == quota.ScopeGlobal {
				if !charge {
					s.Over = max(0, min(pt.used(time, a), a.Limit.Units)-a.Ceiling+s.Held)
				}
				if writes && a.Limit.Holds() {
					r.note(totals[0], time, a.Limit, set, r.period(p, a.Limit, time))
				}
				s.Counter, s.Gauge = r.count(totals[0], time, a.Limit, 0, false, r.period(p, a.Limit, time)), r.gauges[totals[0]]
				totals = totals[1:]
			}
			answer.States = append(answer.States, s)
		}
	}
	for name := range settled.sets {
		r.set(name).pop(time)
	}
	for _, p := range q.Parts {
		if _, popped := settled.sets[p.Name]; writes && !popped {
			r.set(p.Name).pop(time)
		}
	}
	if charge && q.Record != "" {
		r.records[q.Record] = record{us: time, print: q.Print, answer: answer}
	}
	return answer
}

func (r *Region) refund(time int64, q Question) Answer {
	answer := Answer{Outcome: Admitted}
	for _, p := range q.Parts {
		r.partition(p).refund(time, p, cmp.Or(p.Cost, q.Cost))
	}
	for _, p := range q.Parts {
		pt, set := r.partition(p), r.set(p.Name)
		for _, a := range p.Asks {
			held := set.held(time)
			answer.States = append(answer.States, State{
				Remaining: max(0, a.Ceiling-pt.used(time, a)-held), ResetUS: max(pt.reset(time, a), set.ends(time)), Held: held,
			})
		}
	}
	return answer
}

// wait is how long until a cost fits under a limit of a part.
func (r *Region) wait(time int64, p Part, a Ask, cost int64) int64 {
	pt := r.partition(p)
	if s := r.set(p.Name); len(s.holds) > 0 {
		return s.wait(time, pt, a, cost)
	}
	return pt.wait(time, a, cost)
}

// Charge is a Report without an answer: a fast way to a long history.
func (r *Region) Charge(time int64, q Question) {
	totals := q.Counters
	for _, p := range q.Parts {
		r.partition(p).charge(time, p, q.Cost)
		for _, a := range p.Asks {
			if a.Limit.Scope == quota.ScopeGlobal {
				r.count(totals[0], time, a.Limit, q.Cost, true, r.period(p, a.Limit, time))
				totals = totals[1:]
			}
		}
	}
}

func (r *Region) partition(p Part) *partition {
	pt := r.partitions[p.Name]
	if pt == nil {
		pt = &partition{usage: newUsage(p.Asks[0].Limit), needs: map[need]int64{}}
		r.partitions[p.Name] = pt
	}
	pt.asks = p.Asks
	return pt
}

// read is the partition's clock at time.
func (pt *partition) read(time int64) (now, ahead int64) {
	if pt.asks[0].Limit.Calendar != nil { // the time itself decides
		return time, 0
	}
	unused := time >= pt.clock.newest
	for _, a := range pt.asks {
		unused = unused && pt.usage.under(a.Limit, time).used(time) == 0
	}
	return pt.clock.read(time, unused)
}

func (pt *partition) charge(time int64, p Part, cost int64) {
	now, ahead := pt.read(time)
	pt.usage = pt.usage.under(p.Asks[0].Limit, now).charge(now, pt.counted(now, p, cost))
	pt.clock = clock{newest: now, ahead: ahead}
}

func (pt *partition) refund(time int64, p Part, units int64) {
	if pt.clock.newest == 0 {
		return
	}
	now, ahead := pt.read(time)
	var newest int64
	pt.usage, newest = pt.usage.under(p.Asks[0].Limit, now).refund(now, units, p.Asks[0].Limit)
	if pt.clock = (clock{newest: newest, ahead: ahead}); newest == 0 {
		pt.clock.ahead = 0
	}
}

func (pt *partition) used(time int64, a Ask) int64 {
	now, _ := pt.read(time)
	return pt.usage.under(a.Limit, now).used(now)
}

func (pt *partition) wait(time int64, a Ask, cost int64) int64 {
	if cost > a.Ceiling {
		return -1
	}
	return pt.untilAtMost(time, a, a.Ceiling-cost)
}

func (pt *partition) reset(time int64, a Ask) int64 { return pt.untilAtMost(time, a, 0) }

// untilAtMost returns how long until at most that many units are used.
func (pt *partition) untilAtMost(time int64, a Ask, units int64) int64 {
	now, ahead := pt.read(time)
	u := pt.usage.under(a.Limit, now)
	if u.used(now) <= units {
		return 0
	}
	return first(now, func(t int64) bool { return u.used(t) <= units }) - ahead - time
}

// first returns the least t from now on for which a condition holds that, once
// true, stays true: it tries ever farther times, and then halves.
func first(now int64, holds func(t int64) bool) int64 {
	far := int64(1)
	for !holds(now + far) {
		far *= 2
	}
	least, most := now+far/2, now+far // it holds at most, and not before least
	for least < most {
		if middle := least + (most-least)/2; holds(middle) {
			most = middle
		} else {
			least = middle + 1
		}
	}
	return most
}
