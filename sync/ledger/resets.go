package ledger

import (
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/regiond/regiond/sync/wire"
)

const (
	// maxResets bounds the tenants whose resets are known; beyond that the oldest is forgotten.
	maxResets = 1024
	// cutAheadUS is how far ahead of a region's clock, as we know it, a cut may be: one that is
	// further ahead would hide what the region is yet to use.
	cutAheadUS = 60_000_000
	// localUS is how long after a cut the generations lie in which Local counts: each process
	// has one of its own.
	localUS = 500_000
)

// resets are the tenants whose usage was deleted, and up to where.
//
// Ids do not name tenants, so what a reset supersedes is dropped when the tenant's partition is
// asked for or charged next. A cut stays, since the same counters may come again: late, repeated,
// or from a region that was not reached.
type resets struct {
	mu sync.Mutex // of writers
	of atomic.Pointer[map[string]*cuts]
}

// cuts are those of one tenant. Immutable.
type cuts struct {
	regions []cut // by index
	sinceUS int64 // of our clock
}

// cut supersedes counters of generations up to upTo; 0: none.
type cut struct {
	upTo  int64
	state wire.CutState
}

func (l *Ledger) cuts(tenant string) *cuts {
	return (*l.resets.of.Load())[tenant]
}

// Supersede has counters of a tenant count no more: those before the cuts. Of two cuts of a
// region the later holds. It reports whether one of them was news.
func (l *Ledger) Supersede(tenant string, by []wire.Cut) (news bool) {
	l.resets.mu.Lock()
	defer l.resets.mu.Unlock()
	next := &cuts{sinceUS: l.nowUS()}
	if c := l.cuts(tenant); c != nil {
		next.regions = slices.Clone(c.regions)
	}
	for _, c := range by {
		i := l.Region(c.Region)
		if i < 0 || i > 0 && c.UpTo > l.clock(i, next.sinceUS, math.MaxInt64-cutAheadUS)+cutAheadUS {
			continue
		}
		for len(next.regions) <= i {
			next.regions = append(next.regions, cut{})
		}
		if old := &next.regions[i]; c.UpTo > old.upTo || c.UpTo == old.upTo && c.State > old.state {
			*old, news = cut{c.UpTo, c.State}, true
		}
	}
	if !news {
		return false
	}
	all := maps.Clone(*l.resets.of.Load())
	if all[tenant] = next; len(all) > maxResets {
		oldest := tenant
		for name, c := range all {
			if c.sinceUS < all[oldest].sinceUS {
				oldest = name
			}
		}
		delete(all, oldest)
	}
	l.resets.of.Store(&all)
	return true
}

// Resets are the tenants whose usage was deleted, and their cuts.
func (l *Ledger) Resets() map[string][]wire.Cut {
	names, all := l.Names(), map[string][]wire.Cut{}
	for tenant, c := range *l.resets.of.Load() {
		for i, r := range c.regions {
			if r.upTo > 0 {
				all[tenant] = append(all[tenant], wire.Cut{Region: names[i], UpTo: r.upTo, State: r.state})
			}
		}
	}
	return all
}

// Purge drops what is superseded of a partition. It comes before Estimates.
func (l *Ledger) Purge(tenant string, id uint64) {
	if c := l.cuts(tenant); c != nil {
		sh := l.shard(id)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		l.purge(sh, id, c)
	}
}

func (l *Ledger) purge(sh *shard, id uint64, by *cuts) {
	nowUS := l.nowUS()
	for p := sh.first[id]; p != 0; p = sh.at(p).next {
		s := sh.at(p)
		l.drop(sh, s, func(region int, generation int64, c *counter) bool {
			return l.superseded(by, region, generation, s.limit.beganUS(c.bucket, c.endsOf(s.limit)), &s.limit.limitKey, nowUS)
		}, func(g gauge) bool {
			return g.region() < len(by.regions) && by.regions[g.region()].state == wire.CutDeleted && g.generation() <= by.regions[g.region()].upTo
		})
	}
}

// superseded reports whether a counter in a bucket that began at beganUS of its region's clock
// does not count. One ahead of that clock was not of its region, which cannot have made it yet.
func (l *Ledger) superseded(by *cuts, region int, generation, beganUS int64, k *limitKey, nowUS int64) bool {
	if region >= len(by.regions) || by.regions[region].upTo == 0 {
		return false
	}
	c := by.regions[region]
	before := generation <= c.upTo && (c.state == wire.CutDeleted || beganUS <= c.upTo)
	if k.periods { // one in which clocks are set back is longer than its window, and began before
		beganUS -= k.windowUS
	}
	return before || max(generation, beganUS) > l.clock(region, nowUS, math.MaxInt64-lateUS)+lateUS
}

// clock is a region's store clock, or what is given if that is not known.
func (l *Ledger) clock(region int, nowUS, unknown int64) int64 {
	if d := l.clocks[region].Load(); d != 0 {
		return d + nowUS
	}
	return unknown
}

// outdated reports whether a counter in our store is superseded. One that was deleted and is
// there again, since the store went back, counts again from the next bucket on: peers must not
// miss what is charged to it.
func (l *Ledger) outdated(s *Series, by *cuts, u *update) bool {
	if by == nil || u.generation == 0 || !l.superseded(by, 0, u.generation, u.limit.beganUS(u.bucket, u.ends), &u.limit, u.nowUS) {
		return false
	}
	if c := by.regions[0]; c.state == wire.CutDeleted && u.generation <= c.upTo && u.nowUS > by.sinceUS+lateUS {
		if l.Supersede(s.Tenant, []wire.Cut{{Region: l.o.Self, UpTo: c.upTo, State: wire.CutReturned}}) && l.o.Returned != nil {
			l.o.Returned(s.Tenant)
		}
	}
	return true
}

// local is the generation of what Local counts of a tenant: after its cut.
func (l *Ledger) local(by *cuts) int64 {
	if by != nil && len(by.regions) > 0 && by.regions[0].upTo >= l.o.Boot {
		return by.regions[0].upTo + 1 + l.o.Boot%localUS
	}
	return l.o.Boot
}
