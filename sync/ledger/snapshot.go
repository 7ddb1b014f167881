package ledger

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/regiond/regiond/sync/wire"
)

// Live gives the live counters of a region, in pieces of at most that many: of our own those
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
				for len(buf) >= entries {
					if !yield(group(buf[:entries], region == 0)) {
						return
					}
					buf = append(buf[:0], buf[entries:]...)
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
	if len(es) == 0 {
		return nil
	}
	slices.SortFunc(es, func(a, b entry) int {
		if a.limit != b.limit {
			return a.limit.compare(&b.limit.limitKey)
		}
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.ends, b.ends), cmp.Compare(a.generation, b.generation), cmp.Compare(a.id, b.id))
	})
	ids, numbers := make([]uint64, len(es)), make([]int64, 2*len(es))
	generations, units := numbers[:len(es)], numbers[len(es):]
	var gs []wire.Group
	var paths []uint64
	var gauges []wire.Gauge
	if grown {
		paths = make([]uint64, 0, 2*len(es))
	}
	for i := 0; i < len(es); {
		first, from, grew, held := &es[i], i, len(paths), false
		for ; i < len(es) && es[i].limit == first.limit && es[i].bucket == first.bucket && es[i].ends == first.ends; i++ {
			ids[i], generations[i], units[i] = es[i].id, es[i].generation, es[i].units
			if grown && !first.limit.periods {
				paths = append(paths, es[i].growth[:]...)
			}
			held = held || es[i].gauge.Sequence > 0
		}
		if gauges = nil; held {
			for _, e := range es[from:i] {
				gauges = append(gauges, e.gauge)
			}
		}
		gs = append(gs, wire.Group{
			Limit: first.limit.name, WindowUS: first.limit.windowUS, Bucket: first.bucket, EndsUS: first.ends, Gauges: gauges,
			IDs: ids[from:i:i], Generations: generations[from:i:i], Units: units[from:i:i], Growth: paths[grew:len(paths):len(paths)],
		})
	}
	return gs
}
