package ledger

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/regiond/regiond/sync/wire"
)

// Live gives the live counters of a region, in pieces of about that many: of our own those
// of series that changed in a message with a number above since, with 0 all. Counters that
// come and go meanwhile may be among them or not. No lock is held between pieces. Our own come with
// how they grew, of which only the region itself is believed.
func (l *Ledger) Live(origin string, since uint64, entries int) iter.Seq[[]wire.Group] {
	entries = max(entries, 1)
	region := l.known(origin)
	return func(yield func([]wire.Group) bool) {
		if region < 0 {
			return
		}
		var buf []entry
		for i := range l.shards {
			for left := math.MaxInt; left > 0; {
				left, buf = l.collect(&l.shards[i], left, entries, region, since, buf)
				if len(buf) >= entries {
					if !yield(group(buf, region == 0)) {
						return
					}
					buf = buf[:0]
				}
			}
		}
		if len(buf) > 0 {
			yield(group(buf, region == 0))
		}
	}
}

// collect appends live counters of a region in the shard's first so many series, from the last of
// them on, until there are that many counters or a slice is done, and returns how many series are left.
func (l *Ledger) collect(sh *shard, left, entries, region int, since uint64, buf []entry) (int, []entry) {
	nowUS, ahead := l.nowUS(), l.clocks[region].Load()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	left = min(left, len(sh.all))
	for visited := 0; left > 0 && visited < sliceSeries && len(buf) < entries; visited++ {
		left--
		if s := &sh.all[left]; since == 0 || s.own != nil && s.own.number > since {
			buf = s.live(region, l.most(s), nowUS, ahead, buf)
		}
	}
	return left, buf
}

// live appends the live counters of a region, no more than most of each bucket. aheadUS is the region's
// clock minus ours.
func (s *series) live(region int, most, nowUS, aheadUS int64, buf []entry) []entry {
	first := len(buf)
	add := func(c *counter, generation, units int64) {
		if units > 0 && !s.limit.over(c.began, nowUS) {
			buf = append(buf, entry{s.limit, s.id, c.bucket, c.endsOf(s.limit), generation, units, s.path(c, units, aheadUS), wire.Gauge{}})
		}
	}
	if region != 0 {
		for i := range s.peers {
			if c := &s.peers[i]; c.region() == region {
				add(&c.counter, c.generation(), s.capped(i, most))
			}
		}
	} else if s.own != nil {
		for i := range s.own.counters {
			c := &s.own.counters[i]
			add(&c.counter, c.generation, s.own.claim(c, most))
		}
	}
	for i := range s.all() {
		if g := &s.all()[i]; g.region() == region {
			buf = s.appendGauge(buf, first, g, most, nowUS, aheadUS)
		}
	}
	return buf
}

// path is how so many units of a counter grew, for a receiver by whose clock the bucket begins as the region's clock
// says. Where it began at another time for us (that clock stepped, a message was late) slots are others, and a part of
// the units has another path: neither is of use.
func (s *series) path(c *counter, units, aheadUS int64) growth {
	if s.limit.periods {
		return growth{}
	}
	off := c.began - (c.bucket*s.limit.windowUS - aheadUS)
	if most := max(s.limit.windowUS/slots, sameUS); off > most || off < -most || units < c.units {
		return growth{0, guessed}
	}
	return c.growth
}

// sameUS is by how much two clocks and messages may differ in the best of cases.
const sameUS = 20_000

type entry struct {
	limit      *limit
	id         uint64
	bucket     int64
	ends       int64 // of a period, else 0
	generation int64
	units      int64
	growth     growth // of a snapshot
	gauge      wire.Gauge
}

// group puts counters together by limit and bucket, in a fixed order, with how they grew or without.
// In each they are in the order of generations, whose differences are then short: one or two bytes of
// a message. It sorts es.
func group(es []entry, grown bool) []wire.Group {
	slices.SortFunc(es, func(a, b entry) int {
		if a.limit != b.limit {
			return a.limit.compare(&b.limit.limitKey)
		}
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.ends, b.ends), cmp.Compare(a.generation, b.generation), cmp.Compare(a.id, b.id))
	})
	var gs []wire.Group
	for i := range es {
		e := &es[i]
		if i == 0 || e.limit != es[i-1].limit || e.bucket != es[i-1].bucket || e.ends != es[i-1].ends {
			gs = append(gs, wire.Group{Limit: e.limit.name, WindowUS: e.limit.windowUS, Bucket: e.bucket, EndsUS: e.ends})
		}
		g := &gs[len(gs)-1]
		if g.Gauges == nil && e.gauge.Sequence > 0 {
			g.Gauges = make([]wire.Gauge, len(g.IDs))
		}
		if g.Gauges != nil {
			g.Gauges = append(g.Gauges, e.gauge)
		}
		g.IDs, g.Generations, g.Units = append(g.IDs, e.id), append(g.Generations, e.generation), append(g.Units, e.units)
		if grown && !e.limit.periods {
			g.Growth = append(g.Growth, e.growth[:]...)
		}
	}
	return gs
}
