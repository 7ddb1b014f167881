package ledger

import (
	"cmp"
	"math"
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
	// lateAfterUS is the age at which a change goes before urgent ones: a tick of
	// 100 ms may pass before the next Take, and none shall wait longer than a second.
	lateAfterUS = 800_000
)

// Urgent has something in it when Take would find something urgent. It holds at
// most one.
func (l *Ledger) Urgent() <-chan struct{} { return l.urgent }

// Unsent is the age of the oldest change that was not taken; 0 when there is none.
func (l *Ledger) Unsent() time.Duration {
	nowUS := l.nowUS()
	oldest := nowUS
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		if o := sh.rings[waiting].next; o != &sh.rings[waiting] { // the first has waited for longest
			oldest = min(oldest, o.since)
		}
		for o := sh.rings[urgent].next; o != &sh.rings[urgent]; o = o.next {
			oldest = min(oldest, o.since)
		}
		sh.mu.Unlock()
	}
	return time.Duration(nowUS-oldest) * time.Microsecond
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

// enlist puts a series into the outbox, or among what is urgent once it is.
func (l *Ledger) enlist(sh *shard, o *own, nowUS int64, isUrgent bool) {
	switch {
	case o.state == urgent || o.state == waiting && !isUrgent:
		return
	case o.state == waiting:
		nowUS = o.since
		o.unlist()
	}
	if o.state, o.since = waiting, nowUS; isUrgent {
		o.state = urgent
		signal.Send(l.urgent)
	}
	end := &sh.rings[o.state]
	o.prev, o.next = end.prev, end
	o.prev.next, o.next.prev = o, o
}

func (o *own) unlist() {
	o.prev.next, o.next.prev = o.next, o.prev
	o.state, o.prev, o.next = idle, nil, nil
}

// Take gives at most that many counters to publish now and counts them as published:
// with all false those of series that are urgent, otherwise of all that changed.
// When there are more, what has waited for 800 ms goes first, then what is urgent, each in
// the order in which it came, and shard by shard from where the last Take ended.
// What is left keeps its age, and Urgent has something in it again.
//
// number is that of the first message that will carry them, see Live. The message's time
// has to be read after Take, as after Live: a bucket that begins in between would lie ahead
// of it.
func (l *Ledger) Take(entries int, all bool, number uint64) []wire.Group {
	l.take.Lock()
	defer l.take.Unlock()
	t := taking{l: l, entries: entries, number: number, nowUS: l.nowUS()}
	if all {
		t.drain(waiting, t.nowUS-lateAfterUS)
	}
	if t.drain(urgent, math.MaxInt64); all {
		t.drain(waiting, math.MaxInt64)
	}
	if len(t.out) >= entries {
		signal.Send(l.urgent) // there may be more
	}
	return group(t.out, false)
}

// taking is one Take.
type taking struct {
	l       *Ledger
	entries int
	number  uint64
	nowUS   int64
	out     []entry
}

// drain takes from the series that are in a state since before a time, until there are enough entries.
func (t *taking) drain(state outboxState, before int64) {
	for range shardCount {
		for sh := &t.l.shards[t.l.turn]; t.slice(sh, &sh.rings[state], before); {
		}
		if len(t.out) >= t.entries {
			return
		}
		t.l.turn = (t.l.turn + 1) % shardCount
	}
}

// slice takes from the first series of a ring, under one hold of the shard's lock, and reports whether there is more to take.
func (t *taking) slice(sh *shard, ring *own, before int64) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for range sliceSeries {
		o := ring.next
		if o == ring || o.since >= before || len(t.out) >= t.entries || !t.whole(sh, o) {
			return false
		}
	}
	return true
}

// whole takes what can be published of a series, oldest buckets first, and takes that off the outbox. It reports whether there
// was room for all. What is over, so that no peer would look at it, counts as published without being sent.
func (t *taking) whole(sh *shard, o *own) bool {
	slices.SortFunc(o.counters, func(a, b ownCounter) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.generation, b.generation))
	})
	s, first := sh.at(o.place), len(t.out)
	most := t.l.most(s)
	for i := range o.counters {
		c := &o.counters[i]
		units := o.claim(c, most)
		switch {
		case s.limit.over(c.began, t.nowUS):
			c.published = c.units
			continue
		case units <= c.published:
			continue
		case len(t.out) == t.entries:
			return false
		}
		t.out = append(t.out, entry{limit: s.limit, id: s.id, bucket: c.bucket, ends: c.endsOf(s.limit), generation: c.generation, units: units})
		c.published, o.number = units, t.number
	}
	for i := range s.all() {
		g := &s.all()[i]
		if g.region() != 0 || g.unsent() == 0 && len(t.out) == first { // else it goes with what is used, also again
			continue
		}
		rows := s.appendGauge(t.out, first, g, most, t.nowUS, t.l.clocks[0].Load())
		if len(rows) > t.entries {
			return false
		}
		t.out = rows
		g.published(g.sequence, g.units)
		o.number = t.number
	}
	o.unlist()
	sh.sampled = slices.DeleteFunc(sh.sampled, func(c sampledCheck) bool {
		if c.id == s.id {
			t.l.checks = append(t.l.checks[max(0, len(t.l.checks)+1-MaxChecks):], c.span)
		}
		return c.id == s.id
	})
	return true
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
	l.take.Lock()
	defer l.take.Unlock()
	checks := l.checks
	l.checks = nil
	return checks
}
