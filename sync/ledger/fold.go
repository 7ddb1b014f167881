package ledger

import (
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// maxUS bounds every time on a store's clock, µs: the year 2112.
	maxUS = int64(1) << 52
	// foldSlice is how many counters are folded under one hold of a shard's lock.
	foldSlice = 64
)

// Fold merges a message: what a region has admitted. author is the region,
// clockUS its store clock at the moment at of ours. It takes all or, with a
// *wire.Error, nothing; but counters that are over by that clock are skipped, since a
// late message is not a bad one, and those that find no room are turned away.
//
// A bucket ahead of the author's clock, which stepped back, counts whole from now on. With
// our own region as author the counters are a sibling's: they are merged into our own, as
// published.
//
// What is new in it was admitted since the message before, which is now as far as a window goes.
func (l *Ledger) Fold(author string, clockUS int64, at time.Duration, groups []wire.Group) error {
	return l.fold(&fold{author: author, clockUS: clockUS, nowUS: at.Microseconds()}, groups)
}

// FoldWhole merges counters of which earlier messages are missing, like Fold: those of a
// snapshot, those that another region forwarded, and those after a gap. What is new in them
// was admitted at any time; a snapshot brings how its author's own counters grew.
func (l *Ledger) FoldWhole(author string, clockUS int64, at time.Duration, groups []wire.Group) error {
	return l.fold(&fold{author: author, clockUS: clockUS, nowUS: at.Microseconds(), whole: true}, groups)
}

// FoldReturned merges counters of our own as a peer remembers them, like FoldWhole. What we and
// our store had lost is published to the other peers like any change.
func (l *Ledger) FoldReturned(clockUS int64, at time.Duration, groups []wire.Group) error {
	return l.fold(&fold{author: l.o.Self, clockUS: clockUS, nowUS: at.Microseconds(), whole: true, returned: true}, groups)
}

func (l *Ledger) fold(f *fold, groups []wire.Group) error {
	if f.clockUS < 0 || f.clockUS >= maxUS {
		return wire.Refuse(wire.ReasonRange, "the clock of %s shows %d µs, which is no time", f.author, f.clockUS)
	}
	for i := range groups {
		if err := groups[i].Check(); err != nil {
			return wire.Refuse(wire.ReasonRange, "%w", err)
		}
	}
	if f.region = l.Region(f.author); f.region < 0 {
		return wire.Refuse(wire.ReasonRegions, "region %s is one more than the %d that a process can know", f.author, MaxRegions)
	}
	l.noteClock(f.region, f.clockUS, f.nowUS)
	for i := range groups {
		g := &groups[i]
		if (g.Bucket+2)*g.WindowUS > f.clockUS {
			l.foldGroup(f, g)
		}
	}
	if f.urgent {
		signal.Send(l.urgent)
	}
	return nil
}

// fold is a message on its way in.
type fold struct {
	author         string
	region         int
	nowUS, clockUS int64
	began          int64   // the group's bucket, by our clock
	whole          bool    // earlier messages are missing
	returned       bool    // by a peer, to us
	path           *growth // of the counter that is merged, if it came with it
	urgent         bool
	done           []finished
	most           int64 // of the group's limit
	excess         int64 // by which the group's counters went beyond it
}

// grow raises a counter by the message, and takes the path that came with it.
func (f *fold) grow(c *counter, units, began, windowUS int64) {
	switch {
	case units <= c.units:
	case f.whole:
		c.raise(units, began, f.nowUS, windowUS)
	default:
		c.grow(units, began, f.nowUS, windowUS)
	}
	if f.path != nil {
		c.learn(units, f.nowUS, windowUS, f.path)
	}
}

// foldGroup takes the shards as they come, and those that follow each other in one under one hold of its lock.
func (l *Ledger) foldGroup(f *fold, g *wire.Group) {
	merge := l.foldPeer
	if f.region == 0 {
		merge = l.foldOwn
	}
	k := limitKey{g.Limit, g.WindowUS}
	f.began = place(&k, g.Bucket, f.clockUS, f.nowUS)
	f.most, f.excess = l.mostOf(g.Limit), 0
	for i := 0; i < len(g.IDs); {
		sh := l.shard(g.IDs[i])
		sh.mu.Lock()
		for end := min(i+foldSlice, len(g.IDs)); i < end && l.shard(g.IDs[i]) == sh; i++ {
			if g.Units[i] > 0 {
				if f.path = nil; len(g.Growth) > 0 {
					f.path = (*growth)(g.Growth[2*i:])
				}
				merge(sh, f, &k, g.IDs[i], quota.Counter{Bucket: g.Bucket, Generation: g.Generations[i], Units: g.Units[i]})
			}
		}
		sh.mu.Unlock()
		l.report(f.done)
		f.done = f.done[:0]
	}
	if f.excess > 0 && l.o.Excess != nil {
		l.o.Excess(f.author, g.Limit, f.excess)
	}
}

// foldPeer merges a counter of another region.
func (l *Ledger) foldPeer(sh *shard, f *fold, k *limitKey, id uint64, u quota.Counter) {
	p := l.open(sh, id, k)
	if p == 0 {
		l.turnedAway(k.windowUS, f.nowUS)
		return
	}
	s := sh.at(p)
	c := l.peerCounter(sh, f, s, u)
	if c == nil {
		l.turnedAway(k.windowUS, f.nowUS)
		return
	}
	if u.Units <= c.units {
		f.grow(&c.counter, u.Units, f.began, k.windowUS)
		return
	}
	before := s.bucketOf(s.peers, c)
	f.excess += max(0, before+u.Units-c.units-max(f.most, before))
	f.grow(&c.counter, u.Units, f.began, k.windowUS)
	// A peer uses it too, and must know what we have not published.
	if s.own != nil && s.own.state != idle && sh.enlist(s.own, f.nowUS, true) {
		f.urgent = true
	}
}

// peerCounter finds or makes the counter; nil when there is no room.
func (l *Ledger) peerCounter(sh *shard, f *fold, s *series, u quota.Counter) *peerCounter {
	name, n, again := uint64(u.Generation)<<regionBits|uint64(f.region), 0, false
	for i := range s.peers {
		c := &s.peers[i]
		if c.name == name && c.bucket == u.Bucket {
			return c
		}
		if c.region() == f.region {
			n++
			again = again || c.bucket == u.Bucket
		}
	}
	f.done = l.finish(sh, s, f.nowUS, f.done)
	if n >= maxCounters || !l.reserve() {
		return nil
	}
	s.renewed = s.renewed || again
	s.peers = append(s.peers, peerCounter{name, counter{bucket: u.Bucket, began: f.began}})
	return &s.peers[len(s.peers)-1]
}

// foldOwn merges a counter of our own region that others have. What none of them can have
// published is left out.
func (l *Ledger) foldOwn(sh *shard, f *fold, k *limitKey, id uint64, u quota.Counter) {
	to := update{
		sh: sh, id: id, limit: *k, bucket: u.Bucket, generation: u.Generation, nowUS: f.nowUS,
		clockUS: f.clockUS, done: f.done,
	}
	o, c := l.ownCounter(&to)
	f.done = to.done
	if c == nil {
		return
	}
	if most := max(c.units, o.room(c, f.most)); u.Units > most {
		f.excess += u.Units - most
		u.Units = most
	}
	grows := u.Units > c.units
	if f.grow(&c.counter, u.Units, to.began, k.windowUS); grows && f.returned {
		sh.enlist(o, f.nowUS, false)
		return
	}
	if !f.returned {
		c.published = max(c.published, u.Units)
		sh.settle(o)
	}
}
