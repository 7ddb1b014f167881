package ledger

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/regiond/regiond/quota"
)

const (
	// shardCount is 2^6 locks: the six upper bits of an id choose one, so ids in
	// ascending order come shard by shard.
	shardCount = 64
	shardShift = 64 - 6
	// sliceSeries is how many series are visited under one hold of a shard's lock: some
	// tens of microseconds, which a decision may have to wait for.
	sliceSeries = 128
	// maxLimits bounds the different limits that live series may have, over all regions:
	// a hundred policies with a dozen limits use a tenth of it, and an author that
	// invents names cannot grow the table.
	maxLimits = 16_384
)

// shard is the series whose ids begin with the same six bits.
//
//	first[id] ─▶ series ─next▶ series    the same id under another limit, or in another window
//	               │ │
//	               │ └─ own ─▶ ownCounter, ownCounter …    and a place in waiting or urgent
//	               └─ peers ─▶ peerCounter, peerCounter …  of any other region and generation
//
// first and next are places in all, counted from 1; 0 is none. They are no pointers, and
// all is one piece of memory, because the garbage collector would have to follow a
// million of them: that took 228 ms of processor time in each of its rounds.
type shard struct {
	mu    sync.Mutex
	first map[uint64]uint32 // the newest of each id
	// all is in no order. It is walked from its end, and the last takes the place of one
	// that is removed: so a walk misses nothing, even if it gives up the lock on its way.
	all     []series
	rings   [urgent + 1]own // of unpublished changes by state, see outbox.go; each is its own end
	windows []window
	sampled []sampledCheck // oldest first
}

// series is a partition under one limit.
type series struct {
	id    uint64
	limit *limit
	peers []peerCounter
	own   *own // nil while our region has neither counters nor a gauge in it
	// gauges are those of all regions, nil for none: few series have any.
	gauges *[]gauge
	next   uint32
	// renewed: a region has several generations in one bucket, or had.
	renewed bool
}

// capped is how much the i-th counter of a peer is worth when all of a bucket are worth most.
func (s *series) capped(i int, most int64) int64 {
	if s.renewed {
		most -= min(most, s.bucketOf(s.peers[:i], &s.peers[i]))
	}
	return min(s.peers[i].units, most)
}

// bucketOf adds up those of the counters that are of the same region and bucket as c.
func (*series) bucketOf(counters []peerCounter, c *peerCounter) (units int64) {
	for i := range counters {
		if o := &counters[i]; o.region() == c.region() && o.bucket == c.bucket {
			units += o.units
		}
	}
	return units
}

// counter is how much a region used of a bucket.
type counter struct {
	bucket int64
	began  int64 // µs of our monotonic clock at which the bucket began
	units  int64
	growth growth // of a period its ends
}

// grow raises the counter. What is new was admitted now, as far as we know. If the author's clock
// stepped back, the bucket began later than we thought.
func (c *counter) grow(units, began, nowUS, windowUS int64) {
	c.began = max(c.began, began)
	c.growth.grow((nowUS-c.began)*slots/windowUS, c.units, units)
	c.units = units
}

// raise raises the counter by what may have been admitted long ago, since earlier messages are missing. It
// counts from now on, and so never too short, until somebody knows better.
func (c *counter) raise(units, began, nowUS, windowUS int64) {
	c.grow(units, began, nowUS, windowUS)
	c.growth[1] |= guessed
}

// count raises the counter of a period. It does not fade, so how it grew does not matter.
func (c *counter) count(u *update, units int64) {
	c.began, c.units = max(c.began, u.began), units
	c.growth[0] = max(c.growth[0], uint64(u.ends))
}

// ends is when a period does by its region's clock: the latest of the ends that the region's processes have given it.
func (c *counter) ends() int64 { return int64(c.growth[0]) }

// endsOf is ends of a limit with a calendar, else 0.
func (c *counter) endsOf(m *limit) int64 {
	if m.periods {
		return c.ends()
	}
	return 0
}

// learn takes the path that the counter's region has of so many units in place of a guess. What has come since
// then counts from now on.
func (c *counter) learn(units, nowUS, windowUS int64, path *growth) {
	if units > c.units || !c.growth.isGuess() || path.isGuess() || !path.fits(units) {
		return
	}
	c.growth = *path
	if units < c.units {
		c.growth.grow((nowUS-c.began)*slots/windowUS, units, c.units)
	}
}

// counted is how much of the counter counts at atUS as used in the window that ends then: all of
// it until the bucket began a window ago, and from then on it fades as it grew. A period counts whole until it ends.
func (c *counter) counted(k *limitKey, atUS int64) int64 {
	windowUS := k.windowUS
	switch age := atUS - c.began; {
	case age < windowUS:
		return c.units
	case age < 2*windowUS && !k.periods:
		return c.growth.left(c.units, age-windowUS, windowUS)
	}
	return 0
}

// countedIn is counted in a window of another length than the bucket's: all units of a bucket that
// overlaps it.
func (c *counter) countedIn(inUS int64, k *limitKey, atUS int64) int64 {
	switch {
	case inUS == k.windowUS:
		return c.counted(k, atUS)
	case c.began+k.windowUS+inUS <= atUS:
		return 0
	}
	return c.units
}

type peerCounter struct {
	name uint64 // generation (57 bits) and region (7): what it is found by, beside its bucket
	counter
}

// regionBits holds every index below MaxRegions.
const regionBits = 7

func (c *peerCounter) region() int       { return int(c.name & (MaxRegions - 1)) }
func (c *peerCounter) generation() int64 { return int64(c.name >> regionBits) }

// own is what a series has while our region has counters or a gauge in it; it goes with the last.
type own struct {
	counters []ownCounter
	number   uint64 // of the message that carries the newest change; 0: none does yet
	place    uint32 // of the series
	// known: generation is that of the key in the store by the newest Record, at its TIME
	// seenUS; 0: the store has no such key.
	known              bool
	state              outboxState
	generation, seenUS int64
	local              int64 // generation of what Local counted; 0: Options.Boot, or nothing

	since      int64 // µs of our clock: age of the oldest unpublished change
	limitUnits int64 // L by the newest Record
	prev, next *own  // in the outbox
}

// ownCounter is a usage counter of our own region. published is how much of it was
// taken from the outbox, came from somebody who has it, or grew while there were no peers.
type ownCounter struct {
	counter
	generation, published int64
}

// limitKey is what makes two series of one id the same.
type limitKey struct {
	name     string // "<policy>.<limit>"
	windowUS int64  // of its buckets too
	periods  bool   // its buckets are periods of a calendar, about as long
}

// beganUS is when a bucket began by its region's clock; of a period it is a window before that ends.
func (k *limitKey) beganUS(bucket, ends int64) int64 {
	if k.periods {
		return ends - k.windowUS
	}
	return bucket * k.windowUS
}

// limit is a limit as counters are counted under it. All series of one share it.
type limit struct {
	limitKey
	series int // that have it; guarded by limits.mu
}

// limits are those of live series.
type limits struct {
	mu    sync.Mutex
	known map[limitKey]*limit
}

// acquire gives a limit to one more series; nil when there are too many limits.
func (t *limits) acquire(k *limitKey) *limit {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.known[*k]
	if m == nil {
		if len(t.known) == maxLimits {
			return nil
		}
		m = &limit{limitKey: *k}
		m.name = strings.Clone(k.name) // it may be a piece of a whole message
		t.known[m.limitKey] = m
	}
	m.series++
	return m
}

// release is for a series that is gone.
func (t *limits) release(m *limit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.series--; m.series == 0 {
		delete(t.known, m.limitKey)
	}
}

func (k *limitKey) compare(o *limitKey) int {
	switch c := cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.windowUS, o.windowUS)); {
	case c != 0 || k.periods == o.periods:
		return c
	case k.periods:
		return 1
	}
	return -1
}

// over reports whether a bucket that began at a time of our clock counts nothing any
// more at nowUS. A period does not since it ended, but is kept: the clock of a region may be behind, or set back.
func (k *limitKey) over(began, nowUS int64) bool { return began+2*k.windowUS <= nowUS }

func (l *Ledger) shard(id uint64) *shard { return &l.shards[id>>shardShift] }

// at is the series at a place, until another is opened or closed. The shard is locked,
// here and in all that follows.
func (sh *shard) at(place uint32) *series { return &sh.all[place-1] }

// find returns the place of the series of an id under a limit, or 0.
func (sh *shard) find(id uint64, k *limitKey) uint32 {
	p := sh.first[id]
	for p != 0 && sh.at(p).limit.limitKey != *k {
		p = sh.at(p).next
	}
	return p
}

// open finds or makes a series; 0 when there is no room for another.
func (l *Ledger) open(u *update) uint32 {
	if p := u.sh.find(u.id, &u.limit); p != 0 {
		return p
	}
	if l.series.Add(1) <= int64(l.o.MaxSeries) {
		if m := l.limits.acquire(&u.limit); m != nil {
			u.sh.all = append(u.sh.all, series{id: u.id, limit: m, next: u.sh.first[u.id]})
			u.sh.first[u.id] = uint32(len(u.sh.all))
			return u.sh.first[u.id]
		}
	}
	l.series.Add(-1)
	l.turnedAway(u)
	return 0
}

// close removes the series at a place, which has no counters. The last one moves there.
func (l *Ledger) close(sh *shard, place uint32) {
	s := *sh.at(place)
	sh.relink(s.id, place, s.next)
	if sh.first[s.id] == 0 {
		delete(sh.first, s.id)
	}
	if last := uint32(len(sh.all)); last != place {
		moved := *sh.at(last)
		sh.relink(moved.id, last, place)
		*sh.at(place) = moved
		if moved.own != nil {
			moved.own.place = place
		}
	}
	sh.all[len(sh.all)-1] = series{}
	sh.all = sh.all[:len(sh.all)-1]
	l.limits.release(s.limit)
	l.series.Add(-1)
}

// relink has what leads to one place lead to another.
func (sh *shard) relink(id uint64, from, to uint32) {
	if sh.first[id] == from {
		sh.first[id] = to
		return
	}
	before := sh.at(sh.first[id])
	for before.next != from {
		before = sh.at(before.next)
	}
	before.next = to
}

// reserve takes the room of one more counter in a series that has n of the region, after freeing what is over.
func (l *Ledger) reserve(u *update, s *series, n int) bool {
	l.finish(u.sh, s, u.nowUS)
	if n < maxCounters {
		if l.counters.Add(1) <= int64(l.o.MaxSeries)*countersPerSeries {
			return true
		}
		l.counters.Add(-1)
	}
	l.turnedAway(u)
	return false
}

// window is what a series holds in one aligned window, which is a bucket of each region.
type window struct {
	bucket, units int64
	region        int
	generation    int64
	over          bool // all of it
	repeated      bool // a region's clock stepped back, so it has two windows of this number
}

// limitUnits is L as our region went by it last, 0 where it has not used the partition.
func (s *series) limitUnits() int64 {
	if s.own == nil {
		return 0
	}
	return s.own.limitUnits
}

// most is Options.Most of a series.
func (l *Ledger) most(s *series) int64 { return l.o.Most(s.limit.name, s.limitUnits()) }

// finish frees the aligned windows of a series in which every region's counters are
// over, and reports them to Overshoot.
func (l *Ledger) finish(sh *shard, s *series, nowUS int64) {
	over, gone := sh.windowsOver(s, l.most(s), nowUS), func(g gauge) bool { return g.over(nowUS) }
	if len(over) == 0 && !slices.ContainsFunc(s.all(), gone) {
		return
	}
	limitUnits := s.limitUnits()
	l.drop(sh, s, func(_ int, _ int64, c *counter) bool {
		return slices.ContainsFunc(over, func(w window) bool { return w.bucket == c.bucket })
	}, gone)
	units, inForce := l.o.Limit(s.limit.name)
	for _, w := range over {
		of := limitUnits // an override may have changed it
		if of == 0 && w.units <= units {
			of = units // above it an override may allow it: who has used it knows
		}
		if l.o.Overshoot != nil && inForce && !w.repeated && of > 0 {
			l.o.Overshoot(s.limit.name, w.units, of)
		}
	}
}

// drop frees the counters and gauges of a series that are gone.
func (l *Ledger) drop(sh *shard, s *series, gone func(region int, generation int64, c *counter) bool, goneGauge func(gauge) bool) {
	before := len(s.peers) + len(s.all())
	s.peers = slices.DeleteFunc(s.peers, func(c peerCounter) bool { return gone(c.region(), c.generation(), &c.counter) })
	if left := slices.DeleteFunc(s.all(), goneGauge); len(left) > 0 {
		*s.gauges = left
	} else {
		s.gauges = nil
	}
	freed := before - len(s.peers) - len(s.all())
	if o := s.own; o != nil {
		before := len(o.counters)
		o.counters = slices.DeleteFunc(o.counters, func(c ownCounter) bool { return gone(0, c.generation, &c.counter) })
		freed += before - len(o.counters)
		sh.settle(o)
		if len(o.counters) == 0 && !slices.ContainsFunc(s.all(), func(g gauge) bool { return g.region() == 0 }) {
			s.own = nil
		}
	}
	l.counters.Add(-int64(freed))
}

// windowsOver returns the aligned windows that are over, in order, each once, with no more
// than most of each bucket of a peer. The result lives until the next call.
func (sh *shard) windowsOver(s *series, most, nowUS int64) []window {
	all := sh.windows[:0]
	for i := range s.peers {
		c := &s.peers[i]
		all = append(all, window{c.bucket, s.capped(i, most), c.region(), c.generation(), s.limit.over(c.began, nowUS), false})
	}
	for i := 0; s.own != nil && i < len(s.own.counters); i++ {
		c := &s.own.counters[i]
		all = append(all, window{c.bucket, c.units, 0, c.generation, s.limit.over(c.began, nowUS), false})
	}
	if sh.windows = all; !slices.ContainsFunc(all, func(w window) bool { return w.over }) {
		return nil
	}
	slices.SortFunc(all, func(a, b window) int {
		return cmp.Or(cmp.Compare(a.bucket, b.bucket), cmp.Compare(a.region, b.region), cmp.Compare(a.generation, b.generation))
	})
	n := 0
	for _, w := range all {
		if n > 0 && all[n-1].bucket == w.bucket {
			n--
			last := all[n]
			w.units, w.over = w.units+last.units, w.over && last.over
			w.repeated = last.repeated || last.region == w.region && quota.SameKey(last.generation, w.generation)
		}
		all[n] = w
		n++
	}
	return slices.DeleteFunc(all[:n], func(w window) bool { return !w.over })
}
