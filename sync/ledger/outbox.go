package ledger

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/sync/wire"
)

// The outbox of a shard is two rings of what our own region has in series whose
// counters were not published whole. waiting is in the order of their oldest change.
//
//	          Record, Local                   > 1 % of L unpublished, or a peer uses it too
//	idle ────────────────────▶ waiting ───────────────────────────────▶ urgent
//	  ▲                           │                                        │
//	  └── all was taken, came back from others who have it, or is over ────┘
type outboxState uint8

const (
	idle outboxState = iota
	waiting
	urgent
)

const (
	// epsilonInverse is 1/ε: peers together may be left behind by 1 % of L before a
	// change is urgent.
	epsilonInverse = 100
	// lateAfterUS is the age at which a change goes before fuller ones: a tick of
	// 100 ms may pass before the next Take, and none shall wait longer than a second.
	lateAfterUS = 800_000
	// notLate comes after every time.
	notLate = int64(1) << 62
)

// Urgent has something in it when Take would find something urgent. It holds at
// most one.
func (l *Ledger) Urgent() <-chan struct{} { return l.urgent }

// Unsent is the age of the oldest change that was not taken; 0 when there is none.
func (l *Ledger) Unsent() time.Duration {
	nowUS := l.nowUS()
	oldest := nowUS
	for i := range l.shards {
		oldest = min(oldest, l.shards[i].oldest(nowUS))
	}
	return time.Duration(nowUS-oldest) * time.Microsecond
}

// oldest is since when a change of the shard waits; nowUS when none does.
func (sh *shard) oldest(nowUS int64) int64 {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o := sh.waiting.next; o != &sh.waiting {
		nowUS = min(nowUS, o.since)
	}
	for o := sh.urgent.next; o != &sh.urgent; o = o.next {
		nowUS = min(nowUS, o.since)
	}
	return nowUS
}

// changed notes that a counter of our own has grown, or a gauge has changed, and reports whether its series
// became urgent by that. peers is how many other regions there are, at least 1.
func (sh *shard) changed(o *own, limitUnits, peers, nowUS int64) (becameUrgent bool) {
	o.limitUnits = limitUnits
	return sh.enlist(o, nowUS, sh.unpublished(o) > max(1, limitUnits/(epsilonInverse*peers)))
}

// unpublished is how much of our own counters and gauges was not taken yet.
func (sh *shard) unpublished(o *own) (units int64) {
	for i := range o.counters {
		units += o.counters[i].units - o.counters[i].published
	}
	for _, g := range sh.at(o.place).all() {
		if g.region() == 0 {
			units += g.unsent()
		}
	}
	return units
}

// claim is how much of a counter is published. Reports, and checks after a reset, let our
// region use more than most in a bucket, but no peer counts more.
func (o *own) claim(c *ownCounter, most int64) int64 { return min(c.units, o.room(c, most)) }

// room is what the other counters of a bucket leave of most to publish of one.
func (o *own) room(c *ownCounter, most int64) int64 {
	for i := range o.counters {
		if d := &o.counters[i]; d != c && d.bucket == c.bucket {
			most -= d.published
		}
	}
	return max(0, most)
}

// settle takes a series off the outbox when nothing of it is unpublished any more.
func (sh *shard) settle(o *own) {
	if o.state != idle && sh.unpublished(o) == 0 {
		o.unlist()
	}
}

// enlist puts a series into the outbox, or among what is urgent once it is, and
// reports whether it became so now.
func (sh *shard) enlist(o *own, nowUS int64, isUrgent bool) bool {
	switch {
	case o.state == urgent || o.state == waiting && !isUrgent:
		return false
	case o.state == waiting:
		nowUS = o.since
		o.unlist()
	}
	end := &sh.waiting
	if o.state, o.since = waiting, nowUS; isUrgent {
		o.state, end = urgent, &sh.urgent
	}
	o.prev, o.next = end.prev, end
	o.prev.next, o.next.prev = o, o
	return isUrgent
}

func (o *own) unlist() {
	o.prev.next, o.next.prev = o.next, o.prev
	o.state, o.prev, o.next = idle, nil, nil
}

// Take gives at most that many counters to publish now and counts them as published:
// with all false those of series that are urgent, otherwise of all that changed.
// When there are more, what has waited longest goes first if that is more than
// 800 ms, then what is urgent, then the fullest: the most unpublished for its L.
// What is left keeps its age, and Urgent has something in it again if that is urgent.
//
// number is that of the first message that will carry them, see Live. The message's time
// has to be read after Take, as after Live: a bucket that begins in between would lie ahead
// of it.
func (l *Ledger) Take(entries int, all bool, number uint64) []wire.Group {
	if entries < 1 {
		return nil
	}
	nowUS := l.nowUS()
	cs, counters, urgents := l.candidates(entries, all, nowUS)
	if counters > entries {
		slices.SortFunc(cs, func(a, b candidate) int { return compareCandidates(&a, &b) })
	}
	out := make([]entry, 0, min(counters, entries))
	for i := range cs {
		if len(out) == entries {
			break
		}
		var whole bool
		if out, whole = l.takeFrom(&cs[i], entries, out, number); whole && cs[i].state == urgent {
			urgents--
		}
	}
	if urgents > 0 {
		signal.Send(l.urgent)
	}
	return group(out, false)
}

// candidate is a series that Take may take.
type candidate struct {
	own                     *own
	id                      uint64
	limit                   *limit
	unpublished, limitUnits int64
	most                    int64 // of the limit
	lateSince               int64 // since when it waits, or notLate
	state                   outboxState
}

// candidates returns the series to take from, how many counters they have unpublished,
// and how many series were urgent. Of very many it keeps those that go first, and skips
// those that go after all of them: a million that wait, as after a start, are not
// sorted again and again.
func (l *Ledger) candidates(entries int, all bool, nowUS int64) (cs []candidate, counters, urgents int) {
	last := (*candidate)(nil) // of those that were kept
	for i := range l.shards {
		sh := &l.shards[i]
		visit := func(o *own) {
			c, n := l.candidate(sh, o, nowUS)
			if n == 0 {
				o.unlist()
				return
			}
			counters += n
			if c.state == urgent {
				urgents++
			}
			if last == nil || compareCandidates(&c, last) < 0 {
				cs = append(cs, c)
			}
		}
		sh.mu.Lock()
		for o := sh.waiting.next; all && o != &sh.waiting; {
			next := o.next
			done := last != nil && last.lateSince < o.since // as for all that follow
			if visit(o); done {
				break
			}
			o = next
		}
		for o := sh.urgent.next; o != &sh.urgent; {
			next := o.next
			visit(o)
			o = next
		}
		sh.mu.Unlock()
		if len(cs) > 2*entries {
			slices.SortFunc(cs, func(a, b candidate) int { return compareCandidates(&a, &b) })
			cs = cs[:entries] // each has at least one counter
			end := cs[entries-1]
			last = &end
		}
	}
	return cs, counters, urgents
}

// candidate counts what can be published of a series. What is over, so that no peer
// would look at it, counts as published without being sent.
func (l *Ledger) candidate(sh *shard, o *own, nowUS int64) (_ candidate, counters int) {
	s := sh.at(o.place)
	c := candidate{
		own: o, id: s.id, limit: s.limit, limitUnits: max(1, o.limitUnits), most: l.most(s),
		lateSince: notLate, state: o.state,
	}
	if o.since < nowUS-lateAfterUS {
		c.lateSince = o.since
	}
	for i := range o.counters {
		switch p := &o.counters[i]; {
		case p.units == p.published:
		case s.limit.over(p.began, nowUS):
			p.published = p.units
		default:
			if more := o.claim(p, c.most) - p.published; more > 0 {
				c.unpublished += more
				counters++
			}
		}
	}
	for _, g := range s.all() {
		if g.region() == 0 && g.unsent() > 0 {
			c.unpublished += g.unsent()
			counters++ // or it goes with one
		}
	}
	return c, counters
}

// compareCandidates orders by priority, then by name, so that the same changes are always
// taken in the same order.
func compareCandidates(a, b *candidate) int {
	if c := cmp.Or(cmp.Compare(a.lateSince, b.lateSince), cmp.Compare(b.state, a.state)); c != 0 {
		return c
	}
	return cmp.Or(compareFullness(b, a), cmp.Compare(a.id, b.id), a.limit.compare(&b.limit.limitKey))
}

// compareFullness compares unpublished/L without rounding.
func compareFullness(a, b *candidate) int {
	ah, al := bits.Mul64(uint64(a.unpublished), uint64(b.limitUnits))
	bh, bl := bits.Mul64(uint64(b.unpublished), uint64(a.limitUnits))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// takeFrom appends what can be published of a series to out, oldest buckets first,
// until there are that many entries, and reports whether that was all.
func (l *Ledger) takeFrom(c *candidate, entries int, out []entry, number uint64) (_ []entry, whole bool) {
	sh, o, m := l.shard(c.id), c.own, c.limit
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if o.state == idle {
		return out, true // it ended meanwhile
	}
	if len(o.counters) > 1 {
		slices.SortFunc(o.counters, func(a, b ownCounter) int {
			return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.generation, b.generation))
		})
	}
	first := len(out)
	for i := range o.counters {
		p := &o.counters[i]
		units := o.claim(p, c.most)
		if units <= p.published {
			continue
		}
		if len(out) == entries {
			return out, false
		}
		out = append(out, entry{limit: m, id: c.id, bucket: p.bucket, ends: p.endsOf(m), generation: p.generation, units: units})
		p.published, o.number = units, number
	}
	s := sh.at(o.place)
	for i := range s.all() {
		g := &s.all()[i]
		if g.region() != 0 || g.unsent() == 0 && len(out) == first { // else it goes with what is used, also again
			continue
		}
		rows := s.appendGauge(out, first, g, c.most, l.nowUS(), l.clocks[0].Load())
		if len(rows) > entries {
			return out, false
		}
		out = rows
		g.published(g.sequence, g.units)
		o.number = number
	}
	o.unlist()
	sh.sampled = slices.DeleteFunc(sh.sampled, func(s sampledCheck) bool {
		if s.id == c.id {
			l.takenMu.Lock()
			defer l.takenMu.Unlock()
			l.taken = append(l.taken, s.span)
			l.taken = l.taken[max(0, len(l.taken)-MaxChecks):]
		}
		return s.id == c.id
	})
	return out, true
}

// MaxChecks is how many sampled checks of a shard wait at once for their usage to be
// published. Beyond it the oldest is forgotten: its usage is published all the same.
const MaxChecks = 32

// sampledCheck is one whose usage was not published, so that the publication can be linked
// to it. Nearly always there is none.
type sampledCheck struct {
	id   uint64 // the series' that it charged
	span trace.SpanContext
}

// Checks gives the sampled checks whose usage Take has given, and forgets them.
func (l *Ledger) Checks() []trace.SpanContext {
	l.takenMu.Lock()
	defer l.takenMu.Unlock()
	taken := l.taken
	l.taken = nil
	return taken
}
