package ledger

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/quota"
)

// Estimates fills out with the estimated usage of a partition by each region
// in the window of windowUS that ends at a moment of our monotonic clock, with what its open reservations hold: out[i] for the
// region that Region gave i; what does not fit in out is left out. out[0] is our own, with
// what our siblings have published.
//
// All series of the id count, whatever their window is. What was counted for another
// window counts whole while any of its bucket may lie in this
// one: never too little, as long as it is held, and that is for its own window.
//
// Of a peer no more than most counts altogether, whatever generations it names: what it claims
// beyond that, it never was allowed to admit.
//
// lost is what of our own counters our store no longer holds, or never held: it has
// to be counted like a peer's, or a store that forgets hands out its limit again. That
// is true of a store that holds known, the newest of our counters for windowUS
// of which something counts; of one that does not, everything is lost.
func (l *Ledger) Estimates(id uint64, windowUS, most int64, at time.Duration, out []int64) (lost int64, known quota.Counter) {
	return l.estimates(id, most, at, out, func(c *counter, k *limitKey) (units int64, shown bool) {
		units = c.countedIn(windowUS, k, at.Microseconds())
		return units, units > 0 && k.windowUS == windowUS
	}, false)
}

// PeriodEstimates is Estimates for a limit with a calendar: all that each region has used in the period of a number, by its own
// calendar and clock, and nothing of any other. That does not fade, so at matters to open reservations alone. known may be of any
// period: one that is gone shows that the store lost the key.
func (l *Ledger) PeriodEstimates(id uint64, number, most int64, at time.Duration, out []int64) (lost int64, known quota.Counter) {
	return l.estimates(id, most, at, out, func(c *counter, _ *limitKey) (units int64, shown bool) {
		if c.bucket == number {
			units = c.units
		}
		return units, c.units > 0
	}, true)
}

// estimates adds up what counts of each counter; of our own, known is the newest of those that are shown.
func (l *Ledger) estimates(
	id uint64, most int64, at time.Duration, out []int64, counts func(*counter, *limitKey) (units int64, shown bool), periods bool,
) (lost int64, known quota.Counter) {
	clear(out)
	sh := l.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	held := false
	for p := sh.first[id]; p != 0; p = sh.at(p).next {
		s := sh.at(p)
		held = held || s.gauges != nil
		if s.limit.periods != periods {
			continue
		}
		for i := range s.peers {
			c := &s.peers[i]
			if r := c.region(); r < len(out) {
				units, _ := counts(&c.counter, &s.limit.limitKey)
				out[r] = min(most, out[r]+units)
			}
		}
		if s.own == nil {
			continue
		}
		generation := l.held(s.own)
		for i := range s.own.counters {
			c := &s.own.counters[i]
			units, shown := counts(&c.counter, &s.limit.limitKey)
			if len(out) > 0 {
				out[0] += units
			}
			if !quota.SameKey(c.generation, generation) || l.isLocal(s.own, c) {
				lost += units
			} else if counter := (quota.Counter{Bucket: c.bucket, Generation: c.generation, Units: c.units}); shown && counter.Compare(known) > 0 {
				known = counter
			}
		}
	}
	for r := 0; held && r < len(out); r++ {
		if out[r] += sh.heldBy(id, r, at.Microseconds()); r > 0 { // of a peer up to most with what it has used
			out[r] = min(most, out[r])
		}
	}
	return lost, known
}

// Period is the number of the period in which our store counts a partition under a limit with a calendar at its TIME storeUS, as far
// as our counters show: quota.Periods.At. now is the period that lies there by the calendar, and next the one after it.
func (l *Ledger) Period(id uint64, storeUS int64, now, next quota.Period) int64 {
	sh := l.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var p quota.Periods
	for at := sh.first[id]; at != 0; at = sh.at(at).next {
		s := sh.at(at)
		for i := 0; s.limit.periods && s.own != nil && i < len(s.own.counters); i++ {
			c := &s.own.counters[i]
			switch u := (quota.PeriodUnits{Number: c.bucket, End: c.ends(), Units: c.units}); {
			case u.Number > p.Newest.Number:
				p = quota.Periods{Newest: u, Older: p.Newest}
			case u.Number > p.Older.Number && u.Number < p.Newest.Number:
				p.Older = u
			}
		}
	}
	p, older := p.At(storeUS, now, next)
	return p.Count(older).Number
}

// Usage is the estimated usage of one limit by all regions, over all of its
// partitions.
type Usage struct {
	Limit      string // "<policy>.<limit>"
	Partitions int64
	// Units in the window that ends now, as estimates count them, by region; our own
	// among them. A region that uses none may be missing.
	Units map[string]int64
}

// UsageStats returns what each limit in force is used, sorted by limit. It is as old as
// the last round of Sweep. No decision pays for it.
func (l *Ledger) UsageStats() []Usage {
	names, all := l.Names(), map[string]*Usage{}
	l.sweep.mu.Lock()
	defer l.sweep.mu.Unlock()
	for _, one := range l.sweep.swept {
		for limit, t := range one {
			u := all[limit]
			if u == nil {
				u = &Usage{Limit: limit, Units: map[string]int64{}}
				all[limit] = u
			}
			u.Partitions += t.partitions
			for region, units := range t.units {
				u.Units[names[region]] += units
			}
		}
	}
	var usage []Usage
	for _, limit := range slices.Sorted(maps.Keys(all)) {
		usage = append(usage, *all[limit])
	}
	return usage
}

// limitStats are what a shard's series come to, by limit.
type limitStats map[string]*limitUsage

type limitUsage struct {
	partitions int64
	units      []int64 // by region's index
}

// count adds a series, of a peer no more than most. The shard is locked.
func (ls limitStats) count(s *series, most, nowUS int64) {
	var used [MaxRegions]int64
	regions := 1 // up to the last that uses it
	for i := range s.peers {
		c := &s.peers[i]
		r := c.region()
		used[r], regions = min(most, used[r]+c.counted(&s.limit.limitKey, nowUS)), max(regions, r+1)
	}
	for i := 0; s.own != nil && i < len(s.own.counters); i++ {
		used[0] += s.own.counters[i].counted(&s.limit.limitKey, nowUS)
	}
	u := ls[s.limit.name]
	if u == nil {
		u = &limitUsage{}
		ls[s.limit.name] = u
	}
	u.partitions++
	u.units = append(u.units, make([]int64, max(0, regions-len(u.units)))...)
	for r := range regions {
		u.units[r] += used[r]
	}
}

// sweepMost bounds the series that one Sweep visits: with a million known partitions ten
// calls a second take less than 1 % of a processor.
const sweepMost = 2048

// sweep is how far Sweep has come, and what it has counted.
type sweep struct {
	mu    sync.Mutex
	shard int
	left  int                    // series of the shard that are still to come, at most
	stats limitStats             // of those before
	swept [shardCount]limitStats // of each shard, when it was last done
}

// Sweep reports the windows of a part of the series that are over, frees them, and counts
// what stays for UsageStats. 64 calls see everything once, or, above 131,000 series, one
// for each 2,048. A series that is still in use needs no Sweep: its windows end when it
// gets its next bucket.
func (l *Ledger) Sweep() {
	p := &l.sweep
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stats == nil {
		p.left, p.stats = math.MaxInt, limitStats{}
	}
	for visited := 0; p.left > 0 && visited < sweepMost; visited += sliceSeries {
		p.left = l.sweepSlice(&l.shards[p.shard], p.left, p.stats)
	}
	if p.left > 0 {
		return
	}
	for name := range p.stats {
		if _, ok := l.o.Limit(name); !ok {
			delete(p.stats, name) // it is not in force: anybody may have invented it
		}
	}
	p.swept[p.shard] = p.stats
	p.shard, p.stats = (p.shard+1)%shardCount, nil
}

// sweepSlice sweeps the last of the shard's first so many series, adds what stays to
// stats, and returns how many are left.
func (l *Ledger) sweepSlice(sh *shard, left int, stats limitStats) int {
	nowUS := l.nowUS()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	left = min(left, len(sh.all))
	for end := max(0, left-sliceSeries); left > end; {
		left--
		s := &sh.all[left]
		l.finish(sh, s, nowUS)
		if len(s.peers) == 0 && s.own == nil && s.gauges == nil {
			l.close(sh, uint32(left)+1)
			continue
		}
		stats.count(s, l.most(s), nowUS)
	}
	return left
}
