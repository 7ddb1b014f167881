package ledger

import (
	"iter"

	"github.com/regiond/regiond/sync/wire"
)

// rollLeast and rollMost bound the totals that one Roll gives; at ten a second the most
// is 300 KB/s.
const (
	rollLeast = 64
	rollMost  = 2048
)

// rollSlots is how many series one Roll looks at beyond those it takes: where few
// of a million are our own it shall not walk over all of them.
const rollSlots = 1 << 14

// cursor is a place in the ledger: the next slot of a shard to look at.
type cursor struct {
	shard int
	slot  uint32 // 0 and 1 are both the first
}

func (c *cursor) atEnd() bool { return c.shard == shardCount }

// roll is how far Roll got. Totals of the series it stopped in wait in rest.
type roll struct {
	cursor
	rest []entry
}

// Live gives all live totals of a region, in pieces of at most so many. Those that
// come and go meanwhile may be among them or not. No lock is held between pieces.
func (l *Ledger) Live(of string, entries int) iter.Seq[[]wire.Group] {
	entries = max(entries, 1)
	region := l.known(of)
	return func(yield func([]wire.Group) bool) {
		if region < 0 {
			return
		}
		var c cursor
		var buf []entry
		for !c.atEnd() || len(buf) > 0 {
			for !c.atEnd() && len(buf) < entries {
				buf, _ = l.collect(buf, &c, entries, region)
			}
			n := min(entries, len(buf))
			if n > 0 && !yield(group(buf[:n])) {
				return
			}
			buf = append(buf[:0], buf[n:]...)
		}
	}
}

// Roll gives the next of our own live totals: all of them in about so many calls, but
// at least rollLeast and at most rollMost in one. roundDone reports that the next call
// begins with the first again.
func (l *Ledger) Roll(calls int) (groups []wire.Group, roundDone bool) {
	l.rollMu.Lock()
	defer l.rollMu.Unlock()
	entries := min(max((l.Own()+calls-1)/calls, rollLeast), rollMost)
	r := &l.roll
	for seen, n := 0, 0; !r.atEnd() && len(r.rest) < entries && seen < rollSlots+entries; seen += n {
		r.rest, n = l.collect(r.rest, &r.cursor, entries, 0)
	}
	n := min(entries, len(r.rest))
	groups = group(r.rest[:n])
	r.rest = append(r.rest[:0], r.rest[n:]...)
	if roundDone = r.atEnd() && len(r.rest) == 0; roundDone {
		r.cursor = cursor{}
	}
	return groups, roundDone
}

// collect appends live totals of a region from c on, series by series, until there
// are so many or a slice of the shard is through. It reports how many slots it saw.
func (l *Ledger) collect(buf []entry, c *cursor, entries, region int) (_ []entry, slots int) {
	sh := &l.shards[c.shard]
	if sh.used.Load() == 0 {
		c.shard, c.slot = c.shard+1, 0
		return buf, 0
	}
	nowUS := l.nowUS()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for c.slot = max(c.slot, 1); c.slot <= sh.series.high && slots < sliceSlots; c.slot++ {
		if len(buf) >= entries {
			return buf, slots
		}
		slots++
		if s := sh.series.at(c.slot); s.shape != 0 {
			buf = l.liveOf(sh, s, region, nowUS, buf)
		}
	}
	if c.slot > sh.series.high {
		c.shard, c.slot = c.shard+1, 0
	}
	return buf, slots
}

// liveOf appends the live totals of a region in a series.
func (l *Ledger) liveOf(sh *shard, s *series, region int, nowUS int64, buf []entry) []entry {
	sp := l.shapes.at(s.shape)
	live := func(place, bucket int64) bool {
		return !sp.over(place, nowUS) && !l.ahead(region, bucket, sp, nowUS)
	}
	if region == 0 {
		for c := range sh.ownOf(s.own) {
			if live(c.place, c.bucket) {
				buf = append(buf, entry{sp, s.id, c.bucket, c.epoch, c.units})
			}
		}
		return buf
	}
	for c := range sh.peersOf(s) {
		if c.region() == region && live(c.place, c.bucket()) {
			buf = append(buf, entry{sp, s.id, c.bucket(), c.epoch(), c.units()})
		}
	}
	return buf
}
