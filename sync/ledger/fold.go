package ledger

import (
	"time"

	"github.com/regiond/regiond/sync/wire"
)

const (
	// maxUS bounds every time on a store's clock, µs: the year 2112.
	maxUS = int64(1) << 52
	// foldSlice is how many counters are folded under one hold of a shard's lock.
	foldSlice = 64
)

// Fold merges a message that wire.Decode returned: what a region has admitted. author is the
// region, clockUS its store clock at the moment at of ours. It takes all or, with a
// *wire.Error, nothing; but counters that are over by that clock are skipped, since a
// late message is not a bad one, and those that find no room are turned away.
//
// A bucket ahead of the author's clock, which stepped back, counts whole from now on. With
// our own region as author the counters are a sibling's: they are merged into our own, as
// published.
//
// What is new in it was admitted since the message before, which is now as far as a window goes. With whole it was at any time,
// since earlier messages are missing: those of a snapshot, of what another region forwarded, and after a gap. Of these a snapshot
// brings how its author's own counters grew.
func (l *Ledger) Fold(author string, clockUS int64, at time.Duration, groups []wire.Group, whole bool) error {
	return l.fold(&fold{author: author, whole: whole}, clockUS, at, groups)
}

// FoldReturned merges counters of our own as a peer remembers them, like a whole Fold. What we and
// our store had lost is published to the other peers like any change.
func (l *Ledger) FoldReturned(clockUS int64, at time.Duration, groups []wire.Group) error {
	return l.fold(&fold{author: l.o.Self, whole: true, returned: true}, clockUS, at, groups)
}

func (l *Ledger) fold(f *fold, clockUS int64, at time.Duration, groups []wire.Group) error {
	f.clockUS, f.nowUS = clockUS, at.Microseconds()
	if f.clockUS < 0 || f.clockUS >= maxUS {
		return wire.Refuse(wire.ReasonRange, "the clock of %s shows %d µs, which is no time", f.author, f.clockUS)
	}
	if f.region = l.Region(f.author); f.region < 0 {
		return wire.Refuse(wire.ReasonRegions, "region %s is one more than the %d that a process can know", f.author, MaxRegions)
	}
	l.noteClock(f.region, f.clockUS, f.nowUS)
	for i := range groups {
		g := &groups[i]
		f.limit, f.bucket, f.ends = limitKey{g.Limit, g.WindowUS, g.EndsUS != 0}, g.Bucket, g.EndsUS
		f.over = f.limit.over(f.limit.beganUS(f.bucket, f.ends), f.clockUS)
		l.foldGroup(f, g)
	}
	return nil
}

// fold is a message on its way in.
type fold struct {
	update        // of the counter that is merged
	over     bool // its bucket is
	author   string
	region   int
	whole    bool    // earlier messages are missing
	returned bool    // by a peer, to us
	path     *growth // of the counter, if it came with it
	most     int64   // of the group's limit
	excess   int64   // by which the group's counters went beyond it
}

// grow raises a counter by the message, and takes the path that came with it.
func (f *fold) grow(c *counter, units int64) {
	switch {
	case units <= c.units:
	case f.limit.periods:
		c.count(&f.update, units)
	case f.whole:
		c.raise(units, f.began, f.nowUS, f.limit.windowUS)
	default:
		c.grow(units, f.began, f.nowUS, f.limit.windowUS)
	}
	if f.path != nil {
		c.learn(units, f.nowUS, f.limit.windowUS, f.path)
	}
}

// foldGroup takes the shards as they come, and those that follow each other in one under one hold of its lock.
func (l *Ledger) foldGroup(f *fold, g *wire.Group) {
	merge := l.foldPeer
	if f.region == 0 {
		merge = l.foldOwn
	}
	f.began = f.place()
	f.most, f.excess = l.o.Most(g.Limit, 0), 0
	for i := 0; i < len(g.IDs); {
		f.sh = l.shard(g.IDs[i])
		f.sh.mu.Lock()
		for end := min(i+foldSlice, len(g.IDs)); i < end && l.shard(g.IDs[i]) == f.sh; i++ {
			f.id, f.generation = g.IDs[i], g.Generations[i]
			if g.Units[i] > 0 && !f.over {
				if f.path = nil; len(g.Growth) > 0 {
					f.path = (*growth)(g.Growth[2*i:])
				}
				merge(f, g.Units[i])
			}
			if len(g.Gauges) > 0 && g.Gauges[i].Sequence > 0 {
				f.gauge = g.Gauges[i]
				l.foldGauge(f)
			}
		}
		f.sh.mu.Unlock()
	}
	if f.excess > 0 && l.o.Excess != nil {
		l.o.Excess(f.author, g.Limit, f.excess)
	}
}

// foldPeer merges a counter of another region.
func (l *Ledger) foldPeer(f *fold, units int64) {
	p := l.open(&f.update)
	if p == 0 {
		return
	}
	s := f.sh.at(p)
	c := l.peerCounter(f, s)
	if c == nil {
		return
	}
	if units > c.units {
		before := s.bucketOf(s.peers, c)
		f.excess += max(0, before+units-c.units-max(f.most, before))
		if s.own != nil && s.own.state != idle { // a peer uses it too, and must know what we have not published
			l.enlist(f.sh, s.own, f.nowUS, true)
		}
	}
	f.grow(&c.counter, units)
}

// peerCounter finds or makes the counter; nil when there is no room.
func (l *Ledger) peerCounter(f *fold, s *series) *peerCounter {
	name, n, again := uint64(f.generation)<<regionBits|uint64(f.region), 0, false
	for i := range s.peers {
		c := &s.peers[i]
		if c.name == name && c.bucket == f.bucket {
			return c
		}
		if c.region() == f.region {
			n++
			again = again || c.bucket == f.bucket
		}
	}
	if !l.reserve(&f.update, s, n) {
		return nil
	}
	s.renewed = s.renewed || again
	s.peers = append(s.peers, peerCounter{name, counter{bucket: f.bucket, began: f.began}})
	return &s.peers[len(s.peers)-1]
}

// foldOwn merges a counter of our own region that others have. What none of them can have
// published is left out.
func (l *Ledger) foldOwn(f *fold, units int64) {
	o, c := l.ownCounter(&f.update)
	if c == nil {
		return
	}
	if most := max(c.units, o.room(c, l.o.Most(f.limit.name, o.limitUnits))); units > most {
		f.excess += units - most
		units = most
	}
	grows := units > c.units
	f.grow(&c.counter, units)
	switch {
	case !f.returned:
		c.published = max(c.published, units)
		f.sh.settle(o)
	case grows:
		l.enlist(f.sh, o, f.nowUS, false)
	}
}
