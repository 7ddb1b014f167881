package ledger

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/regiond/regiond/sync/wire"
)

// lateAfterUS is the age at which a change goes before fuller ones: a tick of
// 100 ms may pass before the next Take, and none shall wait longer than a second.
const lateAfterUS = 800_000

// Take gives at most so many totals to publish now and counts them as published:
// with all false those of series that are urgent, otherwise of all that changed.
// When there are more, what has waited longest goes first if that is more than
// 800 ms, then what is urgent, then the fullest: the most unpublished for its L.
// What is left keeps its age, and Urgent has something in it again if that is urgent.
//
// The message's time has to be read after Take, as after Live and Roll: a bucket
// that begins in between would lie ahead of it.
func (l *Ledger) Take(entries int, all bool) []wire.Group {
	if entries < 1 || l.listed.Load() == 0 {
		return nil
	}
	nowUS := l.nowUS()
	cs, cells, urgents := l.candidates(entries, all, nowUS)
	if cells > entries {
		slices.SortFunc(cs, compareCandidates)
	}
	out := make([]entry, 0, min(cells, entries))
	for i := range cs {
		if len(out) == entries {
			break
		}
		var whole bool
		if out, whole = l.takeFrom(&cs[i], entries, out, nowUS); whole && cs[i].urgent {
			urgents--
		}
	}
	if urgents > 0 {
		l.signal()
	}
	return group(out)
}

// candidate is a series that Take may take.
type candidate struct {
	shard                   *shard
	own                     uint32
	id                      uint64
	shape                   *shape
	unpublished, limitUnits int64
	lateSince               int64 // since when it waits, or never when that is not long
	urgent                  bool
}

// never comes after every time.
const never = int64(1) << 62

// candidates gives the series to take from, how many totals they have unpublished,
// and how many series were urgent. Of very many it keeps those that go first, and
// once there were so many it looks no longer at who goes after all of them: a
// million that wait, as after a start, are not sorted again and again.
func (l *Ledger) candidates(entries int, all bool, nowUS int64) (cs []candidate, cells, urgents int) {
	last := (*candidate)(nil) // of those that were kept
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		end := sh.last // behind it comes what this walk puts off
		for k := sh.first; k != 0; {
			o := sh.owns.at(k)
			if o.state != urgent && !all {
				break
			}
			next := o.after
			if k == end {
				next = 0
			}
			if c, n := l.candidate(sh, k, nowUS); n > 0 {
				cells += n
				if c.urgent {
					urgents++
				}
				if last == nil || compareCandidates(c, *last) < 0 {
					cs = append(cs, c)
				}
			}
			k = next
		}
		sh.mu.Unlock()
		if len(cs) > 2*entries {
			foremost(cs, entries)
			cs = cs[:entries] // each has at least one total
			end := cs[entries-1]
			last = &end
		}
	}
	return cs, cells, urgents
}

// foremost brings the n candidates that go first to the front, the last of them to
// place n−1, without putting them in order: that takes a fraction of sorting all.
func foremost(cs []candidate, n int) {
	for low, high := 0, len(cs)-1; low < high; {
		pivot := cs[low+rand.IntN(high-low+1)]
		i, j := low, high
		for i <= j {
			for compareCandidates(cs[i], pivot) < 0 {
				i++
			}
			for compareCandidates(pivot, cs[j]) < 0 {
				j--
			}
			if i <= j {
				cs[i], cs[j] = cs[j], cs[i]
				i, j = i+1, j-1
			}
		}
		switch { // low … j ≤ pivot ≤ i … high
		case n-1 <= j:
			high = j
		case n-1 >= i:
			low = i
		default:
			return
		}
	}
}

// candidate counts what can be published of a series. What is over, so that no peer
// would look at it, counts as published without being sent. What lies ahead, so that
// peers would refuse it, waits; a series with nothing else is put off.
func (l *Ledger) candidate(sh *shard, k uint32, nowUS int64) (_ candidate, cells int) {
	o := sh.owns.at(k)
	s := sh.series.at(o.series)
	c := candidate{
		shard: sh, own: k, id: s.id, shape: l.shapes.at(s.shape),
		limitUnits: o.limitUnits, lateSince: never, urgent: o.state == urgent,
	}
	if o.since < nowUS-lateAfterUS {
		c.lateSince = o.since
	}
	for p := range sh.ownOf(k) {
		switch {
		case p.units == p.taken:
		case c.shape.over(p.place, nowUS):
			p.taken = p.units
		case !l.ahead(0, p.bucket, c.shape, nowUS):
			c.unpublished += p.units - p.taken
			cells++
		}
	}
	if cells == 0 {
		sh.putOff(k, nowUS)
	}
	return c, cells
}

// compareCandidates orders by who goes first, and to the last by name, so that the
// same changes are always taken in the same order.
func compareCandidates(a, b candidate) int {
	if c := cmp.Compare(a.lateSince, b.lateSince); c != 0 {
		return c
	}
	if a.urgent != b.urgent {
		if a.urgent {
			return -1
		}
		return 1
	}
	return cmp.Or(compareFullness(&b, &a), cmp.Compare(a.id, b.id), a.shape.compare(b.shape))
}

// compareFullness compares unpublished/L without rounding.
func compareFullness(a, b *candidate) int {
	ah, al := bits.Mul64(uint64(a.unpublished), uint64(b.limitUnits))
	bh, bl := bits.Mul64(uint64(b.unpublished), uint64(a.limitUnits))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// takeFrom appends what can be published of a series to out, oldest buckets first,
// until there are so many entries, and reports whether that was all.
func (l *Ledger) takeFrom(c *candidate, entries int, out []entry, nowUS int64) (_ []entry, whole bool) {
	sh := c.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	o := sh.owns.at(c.own)
	if s := sh.series.at(o.series); o.state == idle || s.id != c.id || l.shapes.at(s.shape) != c.shape {
		return out, true // it ended meanwhile, and the place may be another's, even of its id
	}
	for _, p := range sh.unpublishedCells(c.own) {
		if l.ahead(0, p.bucket, c.shape, nowUS) {
			break // as are all that follow
		}
		if len(out) == entries {
			return out, false
		}
		out = append(out, entry{c.shape, c.id, p.bucket, p.epoch, p.units})
		p.taken = p.units
	}
	sh.putOff(c.own, nowUS)
	l.checks.take(c.id)
	return out, true
}

// unpublishedCells gives those cells, oldest bucket first; nearly always it is one.
// The result lives until the next call.
func (sh *shard) unpublishedCells(own uint32) []*ownCell {
	ps := sh.outgoing[:0]
	for c := range sh.ownOf(own) {
		if c.units > c.taken {
			ps = append(ps, c)
		}
	}
	sh.outgoing = ps
	if len(ps) > 1 {
		slices.SortFunc(ps, func(a, b *ownCell) int {
			return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.epoch, b.epoch))
		})
	}
	return ps
}
