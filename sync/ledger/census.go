package ledger

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Usage is what the regions are believed to use of one limit, over all of its
// partitions.
type Usage struct {
	Limit      string // "<policy>.<limit>"
	Partitions int64
	// Units in the window that ends now, as estimates count them, by region; our own
	// among them. A region that uses none may be missing.
	Units map[string]int64
}

// Census returns what each limit in force is used, sorted by limit. It is as old as
// the last rounds of Sweep: 64 calls renew it whole. No decision pays for it.
func (l *Ledger) Census() []Usage {
	l.namesMu.RLock()
	names := slices.Clone(l.names)
	l.namesMu.RUnlock()
	all := map[string]*Usage{}
	l.census.mu.Lock()
	defer l.census.mu.Unlock()
	for _, one := range l.census.shards {
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
	usage := make([]Usage, 0, len(all))
	for _, u := range all {
		usage = append(usage, *u)
	}
	slices.SortFunc(usage, func(a, b Usage) int { return cmp.Compare(a.Limit, b.Limit) })
	return usage
}

// census is what was counted of each shard when it was last swept.
type census struct {
	mu     sync.Mutex
	shards [shardCount]tallies
}

// tallies are what a shard's series come to, by limit.
type tallies map[string]*tally

type tally struct {
	partitions int64
	units      []int64 // by region's index
}

func (t *tally) add(region int, units int64) {
	for len(t.units) <= region {
		t.units = append(t.units, 0)
	}
	t.units[region] += units
}

// count adds a series. The shard is locked.
func (ts tallies) count(sh *shard, s *series, sp *shape, nowUS int64) {
	t := ts[sp.limit]
	if t == nil {
		t = &tally{}
		ts[strings.Clone(sp.limit)] = t
	}
	t.partitions++
	for c := range sh.peersOf(s) {
		t.add(c.region(), sp.counted(c.units(), c.place, nowUS))
	}
	for c := range sh.ownOf(s.own) {
		t.add(0, sp.counted(c.units, c.place, nowUS))
	}
}

// keep puts what was counted of a shard in the place of what was before, without
// limits that are not in force: their names may be anybody's.
func (l *Ledger) keep(shard int, ts tallies) {
	for limit := range ts {
		if _, ok := l.limit(limit); !ok {
			delete(ts, limit)
		}
	}
	l.census.mu.Lock()
	defer l.census.mu.Unlock()
	l.census.shards[shard] = ts
}
