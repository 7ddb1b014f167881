package oracle

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"

	"github.com/regiond/regiond/quota"
)

const (
	// Reserve charges 1 to parts that count requests and holds the cost of those that count tokens, 1 of concurrent ones.
	Reserve Op = 'h'
	// Settle frees what a reservation holds and charges the cost to parts that count tokens.
	Settle Op = 's'
	// Extend has what a reservation holds end later, or earlier.
	Extend Op = 'e'

	// Settled is the outcome of a Settle that charged; Replayed has the Reservation of the first.
	Settled = 's'
	// Gone is that of one which came too late, or of an Extend of what is not open.
	Gone = 'g'
	// Taken is that of a Reserve whose Reservation there is.
	Taken = 't'
)

// Hold is the reservation of a question, µs.
type Hold struct {
	Name            string // of its record
	ID              int64
	TTL, Keep, Gone int64
}

// Reservation is what an answer says of a reservation.
type Reservation struct {
	ID, Expires, Held, Charged int64
	Released, TooMany          bool
}

// some is how many holds that are over leave the set in one call, and how many open ones a wait looks at.
const some = 64

type hold struct {
	id, units, ends int64
}

func (h hold) text() string { return fmt.Sprint(big.NewInt(h.id).Text(62), ":", h.units) }

// set is what reservations hold of a part.
type set struct {
	clock clock
	holds []hold // by their ends, then by their texts
}

// at is the set's clock at time.
func (s *set) at(time int64) (now, ahead int64) {
	return s.clock.read(time, !slices.ContainsFunc(s.holds, func(h hold) bool { return h.ends > time }))
}

// open is what is not over, and some of what is where that is much.
func (s *set) open(time int64) []hold {
	now, _ := s.at(time)
	over := 0
	for over < min(some, len(s.holds)) && s.holds[over].ends <= now {
		over++
	}
	return s.holds[over:]
}

func units(holds []hold) (sum int64) {
	for _, h := range holds {
		sum += h.units
	}
	return sum
}

func (s *set) held(time int64) int64 { return units(s.open(time)) }

// find is the hold of a reservation, if it is not over.
func (s *set) find(time, id int64) (hold, bool) {
	now, _ := s.at(time)
	i := slices.IndexFunc(s.holds, func(h hold) bool { return h.id == id && h.ends > now })
	if i < 0 {
		return hold{}, false
	}
	return s.holds[i], true
}

func (s *set) add(time int64, h hold) {
	now, ahead := s.at(time)
	h.ends += now
	s.holds = append(s.holds, h)
	slices.SortFunc(s.holds, func(a, b hold) int { return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.text(), b.text())) })
	s.clock = clock{newest: now, ahead: ahead}
}

func (s *set) remove(time int64, h hold) {
	now, ahead := s.at(time)
	s.holds = slices.DeleteFunc(s.holds, func(o hold) bool { return o == h })
	s.clock = clock{newest: now, ahead: ahead}
}

// pop forgets what is over. A set that nobody holds anything of has no clock.
func (s *set) pop(time int64) {
	_, ahead := s.at(time)
	s.holds, s.clock.ahead = slices.Clone(s.open(time)), ahead
	if len(s.holds) == 0 {
		s.clock = clock{}
	}
}

// ends is how long until the last hold ends, of those that are not over.
func (s *set) ends(time int64) int64 {
	open := s.open(time)
	if len(open) == 0 {
		return 0
	}
	return s.until(time, open[len(open)-1])
}

func (s *set) until(time int64, h hold) int64 {
	now, ahead := s.at(time)
	if h.ends <= now {
		return 0
	}
	return h.ends - ahead - time
}

// heldIn is what is held after a time, of the holds that a wait looks at.
func (s *set) heldIn(time, after int64) int64 {
	left := int64(0)
	for i, h := range s.open(time) {
		if i >= some || s.until(time, h) > after {
			left += h.units
		}
	}
	return left
}

// reservation is the record of one.
type reservation struct {
	Reservation
	sets    map[string]int64 // how much of which
	settled bool
	ends    int64 // when it is forgotten
}

func (r *Region) set(name string) *set {
	if r.sets[name] == nil {
		r.sets[name] = &set{}
	}
	return r.sets[name]
}

// takes is what a question charges to a part and what it holds of it.
func (q *Question) takes(p Part) (charged, held int64) {
	l := p.Asks[0].Limit
	concurrent, tokens := l.Algorithm == quota.Concurrent, l.Counts == quota.CountsTokens
	switch {
	case q.Op == Reserve && concurrent:
		return 0, 1
	case q.Op == Reserve && tokens:
		return 0, max(1, q.Cost)
	case q.Op == Reserve:
		return 1, 0
	case q.Op == Settle && !tokens:
		return 0, 0
	}
	return cmp.Or(p.Cost, q.Cost), 0
}

// wait is how long until a cost fits under what is not held, for a part with a set; that is, until by both clocks enough
// units have aged and holds have ended.
func (s *set) wait(time int64, pt *partition, a Ask, cost int64) int64 {
	now, ahead := pt.read(time)
	u := pt.usage.under(a.Limit, now)
	fits := func(after int64) bool {
		return u.used(max(now, time+after+ahead))+s.heldIn(time, after)+cost <= a.Ceiling
	}
	open := s.open(time)
	switch {
	case cost > a.Ceiling:
		return -1
	case u.used(now)+units(open)+cost <= a.Ceiling:
		return 0
	case len(open) > some:
		if last := s.until(time, open[some-1]); !fits(last) {
			return max(1, last)
		}
	}
	if fits(0) { // what is over ends with the next call
		return 1
	}
	return first(0, fits)
}

// settle judges a Settle: done is its answer if it charges nothing, and otherwise what it frees is free.
func (r *Region) settle(time int64, q Question) (rec reservation, done *Answer) {
	was, known := r.reservations[q.Hold.Name]
	gone := q.Hold.Gone
	if known {
		gone = was.ends
	}
	switch {
	case time >= gone:
		return rec, &Answer{Outcome: Gone}
	case was.settled:
		return rec, &Answer{Outcome: Replayed, Hold: was.Reservation}
	}
	rec = reservation{Reservation: was.Reservation, settled: true, ends: max(was.ends, q.Hold.Gone, time+q.Hold.Keep)}
	rec.ID, rec.Released, rec.Charged, rec.sets = q.Hold.ID, known, q.Cost, was.sets
	for name := range was.sets {
		h, open := r.set(name).find(time, q.Hold.ID)
		if rec.Released = rec.Released && open; open {
			r.set(name).remove(time, h)
		}
	}
	return rec, nil
}

func (r *Region) extend(time int64, q Question) Answer {
	rec, known := r.reservations[q.Hold.Name]
	open := known && !rec.settled && time < rec.ends
	if !open {
		return Answer{Outcome: Gone}
	}
	for name := range rec.sets {
		_, is := r.set(name).find(time, q.Hold.ID)
		open = open && is
	}
	for name := range rec.sets {
		s := r.set(name)
		h, _ := s.find(time, q.Hold.ID)
		if open {
			s.remove(time, h)
			s.add(time, hold{id: h.id, units: h.units, ends: q.Hold.TTL})
		}
		s.pop(time)
	}
	if !open {
		return Answer{Outcome: Gone}
	}
	rec.Expires, rec.ends = time+q.Hold.TTL, time+q.Hold.TTL+q.Hold.Keep
	r.reservations[q.Hold.Name] = rec
	answer, totals := Answer{Outcome: Admitted, Hold: rec.Reservation}, q.Counters
	for _, p := range q.Parts {
		for _, a := range p.Asks {
			s := State{}
			if a.Limit.Scope == quota.ScopeGlobal {
				if a.Limit.Holds() {
					now := r.period(p, a.Limit, time)
					r.note(totals[0], time, a.Limit, r.set(p.Name), now)
					s.Counter, s.Gauge = r.count(totals[0], time, a.Limit, 0, false, now), r.gauges[totals[0]]
				}
				totals = totals[1:]
			}
			answer.States = append(answer.States, s)
		}
	}
	return answer
}

// note has the gauge of a limit say what is held of a set and until when. Each change has its TIME as number, or the
// next if that is larger, and a limit that nothing was charged to gets a counter of nothing.
func (r *Region) note(name quota.CounterKey, time int64, l *quota.Limit, s *set, period quota.PeriodUnits) {
	was := r.gauges[name]
	now := quota.Gauge{Sequence: was.Sequence}
	if left := s.ends(time); left > 0 { // else some may wait to be removed
		now.Units, now.UntilUS = s.held(time), time+left
	}
	if now == was {
		return
	}
	if now.Sequence = max(now.Sequence+1, time); r.count(name, time, l, 0, false, period).Generation == 0 {
		r.count(name, time, l, 0, true, period)
	}
	r.gauges[name] = now
}

// reserve makes the holds of a Reserve that fits.
func (r *Region) reserve(time int64, q Question) Reservation {
	rec := reservation{sets: map[string]int64{}, ends: time + q.Hold.TTL + q.Hold.Keep}
	rec.ID, rec.Expires, rec.Held = q.Hold.ID, time+q.Hold.TTL, q.Cost
	for _, p := range q.Parts {
		if _, units := q.takes(p); units > 0 {
			r.set(p.Name).add(time, hold{id: q.Hold.ID, units: units, ends: q.Hold.TTL})
			rec.sets[p.Name] = units
		}
	}
	r.reservations[q.Hold.Name] = rec
	return rec.Reservation
}
