package ledger

import (
	"cmp"
	"slices"
)

// sliceSlots is how many series are looked at under one hold of a shard's lock:
// some tens of microseconds, which a decision may have to wait for.
const sliceSlots = 128

// run is what a series holds in one aligned window.
type run struct {
	window, units int64
	over          bool // all of it
}

// finished is an aligned window that is over: the global count it came to.
type finished struct {
	limit string
	units int64
}

// Sweep reports the windows of a part of the series that are over, frees them, and
// counts what stays for Census.
// 64 calls see everything once. A series that is still in use needs no Sweep: its
// windows end when it gets its next bucket.
func (l *Ledger) Sweep() {
	turn := int(l.swept.Add(1) % shardCount)
	sh := &l.shards[turn]
	if sh.used.Load() == 0 {
		l.keep(turn, nil)
		return
	}
	var done []finished
	counts := tallies{}
	for i, more := uint32(1), true; more; i += sliceSlots {
		done, more = l.sweepSlice(sh, i, done[:0], counts)
		l.report(done)
	}
	l.keep(turn, counts)
}

// sweepSlice sweeps the slots from first on, adds what stays to counts, and reports
// whether there are more.
func (l *Ledger) sweepSlice(sh *shard, first uint32, done []finished, counts tallies) ([]finished, bool) {
	nowUS := l.nowUS()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := first; i < first+sliceSlots && i <= sh.series.high; i++ {
		s := sh.series.at(i)
		if s.shape == 0 {
			continue
		}
		done = l.finish(sh, i, nowUS, done)
		if s.peers == 0 && s.own == 0 {
			l.close(sh, i)
			continue
		}
		counts.count(sh, s, l.shapes.at(s.shape), nowUS)
	}
	return done, first+sliceSlots <= sh.series.high
}

// finish frees the aligned windows of a series in which every region's totals are
// over, and appends their counts to done. With buckets shorter than W totals stay
// until the last of their window is over.
func (l *Ledger) finish(sh *shard, i uint32, nowUS int64, done []finished) []finished {
	s := sh.series.at(i)
	sp := l.shapes.at(s.shape)
	if !sh.anyOver(s, sp, nowUS) {
		return done
	}
	runs := sh.overRuns(s, sp, nowUS)
	if len(runs) == 0 {
		return done
	}
	ended := func(bucket int64) bool {
		_, ok := slices.BinarySearchFunc(runs, sp.window(bucket), func(r run, w int64) int { return cmp.Compare(r.window, w) })
		return ok
	}
	own := sh.dropOwn(s, ended)
	l.owned.Add(-int64(own))
	l.freed(sh.dropPeers(s, ended) + own)
	if l.overshoot != nil {
		for _, r := range runs {
			done = append(done, finished{limit: sp.limit, units: r.units})
		}
	}
	return done
}

func (sh *shard) anyOver(s *series, sp *shape, nowUS int64) bool {
	for c := range sh.peersOf(s) {
		if sp.over(c.place, nowUS) {
			return true
		}
	}
	for c := range sh.ownOf(s.own) {
		if sp.over(c.place, nowUS) {
			return true
		}
	}
	return false
}

// overRuns gives the aligned windows that are over, in order, each once. The
// result lives until the next call.
func (sh *shard) overRuns(s *series, sp *shape, nowUS int64) []run {
	runs := sh.runs[:0]
	for c := range sh.peersOf(s) {
		runs = append(runs, run{sp.window(c.bucket()), c.units(), sp.over(c.place, nowUS)})
	}
	for c := range sh.ownOf(s.own) {
		runs = append(runs, run{sp.window(c.bucket), c.units, sp.over(c.place, nowUS)})
	}
	sh.runs = runs
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.window, b.window) })
	n := 0
	for _, r := range runs {
		if n > 0 && runs[n-1].window == r.window {
			runs[n-1].units += r.units
			runs[n-1].over = runs[n-1].over && r.over
			continue
		}
		runs[n] = r
		n++
	}
	return slices.DeleteFunc(runs[:n], func(r run) bool { return !r.over })
}

// dropPeers frees peers' totals in buckets that ended, and counts them.
func (sh *shard) dropPeers(s *series, ended func(bucket int64) bool) int {
	n := 0
	for link := &s.peers; *link != 0; {
		i := *link
		c := sh.cells.at(i)
		if !ended(c.bucket()) {
			link = &c.next
			continue
		}
		*link = c.next
		sh.cells.release(i)
		n++
	}
	return n
}

// dropOwn does the same for ours, and lets go of what a series has for our own
// region with the last of them.
func (sh *shard) dropOwn(s *series, ended func(bucket int64) bool) int {
	if s.own == 0 {
		return 0
	}
	n := 0
	o := sh.owns.at(s.own)
	for link := &o.cells; *link != 0; {
		i := *link
		c := sh.ownCells.at(i)
		if !ended(c.bucket) {
			link = &c.next
			continue
		}
		*link = c.next
		sh.ownCells.release(i)
		n++
	}
	if n > 0 {
		sh.settle(s.own)
	}
	if o.cells == 0 {
		sh.owns.release(s.own)
		s.own = 0
	}
	return n
}

// report tells of finished windows. No lock is held.
func (l *Ledger) report(done []finished) {
	for _, f := range done {
		if units, ok := l.limit(f.limit); ok {
			l.overshoot(f.limit, f.units, units)
		}
	}
}
