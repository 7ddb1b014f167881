package ledger

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// lateUS is how much older than the newest Record another may be and still be one
// that was overtaken: a decision has given up long before. What is older yet comes
// from a store whose clock stepped back, and is news.
const lateUS = 1_000_000

// Series names what a counter counts: a partition under one limit.
type Series struct {
	ID    uint64 // keyed hash of the partition, see package wire
	Limit string // "<policy>.<limit>"
	Units int64  // L
	// WindowUS is W and the length of a bucket, µs. An id that is counted for another
	// window, here or in another region, because a configuration changed, is another
	// series; Estimates adds them up.
	WindowUS int64
	// Periods: it is of a limit with a calendar, whose buckets are periods. WindowUS is then about as long as one.
	Periods bool
	// Now is the period of now, for Local; zero of others.
	Now quota.Period
	// Check is the span of the check that has just charged it, when that is sampled;
	// else nil. It is no part of the name.
	Check *trace.SpanContext
	// Tenant is whose partition it is, for Supersede. It is no part of the name.
	Tenant string
}

// Record notes what our region's store holds of a series now, its counter and gauge, which was at its TIME
// storeUS. c.Generation 0 means that it has no such key. What is not a counter or a gauge
// (package quota, the ranges of package wire) is ignored, and so is what is over already.
//
// The newest Record shows which generation of the key the store has, and so which of
// our counters it lost. That is remembered with our counters: with none there is
// nothing to lose.
func (l *Ledger) Record(s *Series, c quota.Counter, g quota.Gauge, storeUS int64) {
	if c.Generation < 0 || c.Generation > maxUS || c.Units < 0 || c.Units > quota.MaxCounter {
		return
	}
	u, ok := l.update(s, storeUS)
	if !ok {
		return
	}
	if s.Periods && (c.Bucket > wire.MaxPeriod || c.EndsUS < 1 || c.EndsUS >= maxUS) && c.Generation != 0 {
		return
	}
	u.bucket, u.ends, u.generation, u.stored = c.Bucket, c.EndsUS, c.Generation, true
	if g.Sequence <= maxUS && g.Units >= 0 && g.Units <= quota.MaxUnits {
		u.gauge = wire.Gauge{Sequence: g.Sequence, Units: g.Units, LeftUS: max(0, g.UntilUS-storeUS)}
	}
	by := l.cuts(s.Tenant)
	if !l.outdated(s, by, &u) {
		l.charge(s, &u, by, c.Units)
	}
}

// Local adds units that this process admitted while the store is away, in the
// bucket that storeUS, the time there as far as known, lies in. The store never
// holds them, so they count as lost from the start.
func (l *Ledger) Local(s *Series, units, storeUS int64) {
	u, ok := l.update(s, storeUS)
	if units <= 0 || !ok {
		return
	}
	by := l.cuts(s.Tenant)
	u.bucket, u.generation = storeUS/s.WindowUS, l.local(by)
	if s.Periods {
		u.bucket, u.ends = s.Now.Number, s.Now.End
	}
	l.charge(s, &u, by, units)
}

// charge raises our own counter, to units that the store holds or by units that it does not, and takes the store's gauge.
func (l *Ledger) charge(s *Series, u *update, by *cuts, units int64) {
	peers := int64(l.o.Regions() - 1)
	u.sh.mu.Lock()
	defer u.sh.mu.Unlock()
	if by != nil {
		l.purge(u.sh, s.ID, by)
	}
	if u.generation != 0 {
		o, news := l.chargeCounter(s, u, units, peers)
		if u.gauge.Sequence > 0 {
			if in, g, newer := l.mergeGauge(u, 0); newer {
				if o, news = in.own, true; peers < 1 {
					g.published(g.sequence, g.units)
				}
			}
		}
		switch {
		case !news:
		case peers < 1:
			u.sh.settle(o)
		default:
			o.limitUnits = s.Units
			l.enlist(u.sh, o, u.nowUS, u.sh.unpublished(o) > max(1, s.Units/(epsilonInverse*peers)))
		}
		if s.Check != nil && o != nil && o.state != idle { // a later one's Record may have come first, with its usage
			u.sh.sampled = append(u.sh.sampled[max(0, len(u.sh.sampled)+1-MaxChecks):], sampledCheck{s.ID, *s.Check})
		}
	}
	if p := u.sh.find(s.ID, &u.limit); u.stored && p != 0 && u.sh.at(p).own != nil {
		l.observe(u.sh.at(p), u.nowUS, u.generation, u.clockUS)
	}
}

// chargeCounter reports whether the counter has grown. Without peers that counts as published.
func (l *Ledger) chargeCounter(s *Series, u *update, units, peers int64) (_ *own, grew bool) {
	if units < 1 {
		return nil, false
	}
	o, mine := l.ownCounter(u)
	if mine != nil && !u.stored {
		o.local = u.generation
		units = mine.units + min(units, quota.MaxCounter-mine.units)
	}
	if mine == nil || units <= mine.units {
		return o, false
	}
	switch {
	case s.Periods:
		mine.count(u, units)
	case u.stored && mine.units == 0 && u.began < 0 && u.generation < u.clockUS-u.nowUS: // some of it is older than this process
		mine.raise(units, u.began, u.nowUS, s.WindowUS)
	default:
		mine.grow(units, u.began, u.nowUS, s.WindowUS)
	}
	if peers < 1 {
		mine.published = mine.units
	}
	return o, true
}

// update names a counter that is to change.
type update struct {
	sh                 *shard
	id                 uint64
	limit              limitKey
	bucket, generation int64
	ends               int64 // when the bucket does by the store's clock, if it is a period
	gauge              wire.Gauge
	clockUS            int64 // the region's store's TIME at nowUS of our clock
	nowUS, began       int64 // began is when the bucket did, by our clock
	stored             bool  // the store holds the counter
}

// update fills in what needs no lock, and reports whether it makes sense.
func (l *Ledger) update(s *Series, storeUS int64) (update, bool) {
	u := update{sh: l.shard(s.ID), id: s.ID, limit: limitKey{s.Limit, s.WindowUS, s.Periods}, clockUS: storeUS, nowUS: l.nowUS()}
	if storeUS < 0 || storeUS >= maxUS || s.WindowUS < 1 || s.WindowUS > quota.MaxWindow.Microseconds() {
		return u, false
	}
	l.noteClock(0, storeUS, u.nowUS)
	return u, true
}

// yetToCome reports whether the store holds a bucket that lies further ahead of its clock
// than a charge can have put it: the store waits out a fall of less than a bucket in its
// newest, and else counts anew. So what is in it was admitted before the clock stepped
// back. We had it then, at its place, or peers have, and return it; as news it would count
// again whenever the store is read, until the clock comes there. The second more is for
// counters that were read a while after the clock.
func (u *update) yetToCome() bool {
	return u.stored && u.limit.beganUS(u.bucket, u.ends) > u.clockUS+u.limit.windowUS+lateUS
}

// place is when the bucket began by our clock, if nowUS of it is clockUS of the store's. One
// that lies ahead, since that clock stepped back, counts whole, and from now on. A period counts as if it had begun a window before
// its end: so it is over a window after that, whatever its length.
func (u *update) place() int64 {
	return u.nowUS - max(0, u.clockUS-u.limit.beganUS(u.bucket, u.ends))
}

// ownCounter finds or makes the counter of our own in a bucket; nil when that is over,
// yet to come, out of range or finds no room. The pointer is good for as long as the
// lock is held and no other counter is made.
func (l *Ledger) ownCounter(u *update) (*own, *ownCounter) {
	if most := maxUS / u.limit.windowUS; u.bucket < 0 || u.bucket > most && !u.limit.periods {
		return nil, nil
	}
	u.began = u.place()
	if u.limit.over(u.began, u.nowUS) {
		return nil, nil
	}
	n := 0
	if p := u.sh.find(u.id, &u.limit); p != 0 && u.sh.at(p).own != nil {
		o := u.sh.at(p).own
		n = len(o.counters)
		for i := range o.counters {
			if c := &o.counters[i]; c.bucket == u.bucket && c.generation == u.generation {
				return o, c
			}
		}
	}
	if u.yetToCome() {
		return nil, nil
	}
	p := l.open(u)
	if p == 0 {
		return nil, nil
	}
	s := u.sh.at(p)
	if !l.reserve(u, s, n) {
		return s.own, nil
	}
	if s.own == nil {
		s.own = &own{place: p}
	}
	s.own.counters = append(s.own.counters, ownCounter{counter: counter{bucket: u.bucket, began: u.began}, generation: u.generation})
	return s.own, &s.own.counters[len(s.own.counters)-1]
}

// observe takes in the generation that the store has of a series in which we have
// counters, and counts what it no longer holds and did before. Counters whose windows
// are over are no loss, since their key may have expired; and neither is what Local
// admitted, which the store never held.
func (l *Ledger) observe(s *series, nowUS, generation, storeUS int64) {
	o, before := s.own, *s.own
	if !o.known || storeUS >= o.seenUS || storeUS < o.seenUS-lateUS { // else a newer Record was here first
		o.known, o.generation, o.seenUS = true, generation, storeUS
	}
	if before.known && before.generation == o.generation {
		return
	}
	units := int64(0)
	for i := range o.counters {
		c := &o.counters[i]
		wasLost := before.known && !quota.SameKey(c.generation, before.generation)
		if !l.isLocal(o, c) && !wasLost && !quota.SameKey(c.generation, o.generation) {
			units += c.counted(&s.limit.limitKey, nowUS)
		}
	}
	if units > 0 {
		l.metrics.losses.Add(1)
		l.metrics.lostUnits.Add(units)
		if l.o.Lost != nil {
			there := storeUS // of what others tell us that we counted it may have been there until now
			if before.known {
				there = min(before.seenUS, storeUS)
			}
			l.o.Lost(there)
		}
	}
}

// held is the generation of the key in the store, as far as known: what was counted in
// another is lost. Before the first Record it is the newest that was counted in.
func (l *Ledger) held(o *own) (generation int64) {
	if o.known {
		return o.generation
	}
	for i := range o.counters {
		if c := &o.counters[i]; !l.isLocal(o, c) {
			generation = max(generation, c.generation)
		}
	}
	return generation
}

// isLocal reports whether a counter is of Local, so that the store never held it.
func (l *Ledger) isLocal(o *own, c *ownCounter) bool {
	return c.generation == l.o.Boot || c.generation == o.local
}
