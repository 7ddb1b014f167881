package limiter

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/quota"
)

// denyCache remembers denials until they end, at most maxCached, so that a flood
// costs Redis nothing. A denial of a log with retry-after r holds for r: nothing
// can be admitted meanwhile that would free units. It is used again only for the
// same limits under the same configuration (the identity of the key plan), the same cost
// and ceilings that are not higher. Safe for concurrent use.
type denyCache struct {
	seed   maphash.Seed
	shards [denyCacheShards]denyCacheShard
}

const (
	denyCacheShards = 64
	// maxCached bounds how long a reset or a report by another process of the
	// region, or a step of Redis's clock, can go unnoticed here.
	maxCached = time.Second
	// denyCachePerShard bounds memory under a flood of ids that are each denied.
	denyCachePerShard = 4096
)

type denyCacheShard struct {
	mu   sync.RWMutex
	seen map[denialKey]*denial
}

// denialKey is a partition set under one configuration.
type denialKey struct {
	plan *KeyPlan
	keys string
}

type denial struct {
	until    time.Time // counted from before the store was asked
	answered time.Time // when the store answered; retry-after counts from here
	cost     int64
	ceilings []int64
	limits   []quota.LimitState
}

func newDenyCache() *denyCache {
	d := &denyCache{seed: maphash.MakeSeed()}
	for i := range d.shards {
		d.shards[i].seen = make(map[denialKey]*denial)
	}
	return d
}

func keyOf(c *Call) denialKey { return denialKey{c.Plan, strings.Join(c.Keys, "")} }

func (d *denyCache) shard(k denialKey) *denyCacheShard {
	return &d.shards[maphash.String(d.seed, k.keys)%denyCacheShards]
}

// remember keeps a denial that was asked for at sent, and answered by the store at answered.
func (d *denyCache) remember(c *Call, limits []quota.LimitState, sent, answered time.Time) {
	if c.Record != "" {
		return
	}
	lasts := time.Duration(0)
	for i := range limits {
		lasts = max(lasts, limits[i].RetryAfter)
	}
	k := keyOf(c)
	entry := &denial{
		until: sent.Add(min(lasts, maxCached)), answered: answered,
		cost: c.Cost, ceilings: c.Ceilings, limits: limits,
	}
	s := d.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[k]; !ok && len(s.seen) >= denyCachePerShard {
		s.sweep(answered)
	}
	s.seen[k] = entry
}

// sweep makes room: it drops the ended among a few, and one in any case.
func (s *denyCacheShard) sweep(now time.Time) {
	n := 0
	for k, e := range s.seen {
		if n == 0 || !now.Before(e.until) {
			delete(s.seen, k)
		}
		if n++; n == sweepSome {
			return
		}
	}
}

// recall returns the limits of a denial that still holds for the call at now,
// with their times counted on.
func (d *denyCache) recall(c *Call, now time.Time) ([]quota.LimitState, bool) {
	if c.Record != "" || c.Op != OpCheck {
		return nil, false
	}
	k := keyOf(c)
	s := d.shard(k)
	s.mu.RLock()
	e := s.seen[k]
	s.mu.RUnlock()
	if e == nil || !now.Before(e.until) || e.cost != c.Cost {
		return nil, false
	}
	for i, ceiling := range c.Ceilings {
		if ceiling > e.ceilings[i] {
			return nil, false
		}
	}
	limits := slices.Clone(e.limits)
	passed := max(0, now.Sub(e.answered))
	for i := range limits {
		l := &limits[i]
		l.ResetAfter = max(0, l.ResetAfter-passed)
		// The denial as a whole still holds, yet of several limits that denied it
		// those that did for a shorter time may be over.
		l.RetryAfter = max(0, l.RetryAfter-passed)
		l.Denied = l.RetryAfter > 0
	}
	return limits, true
}

// forget drops everything, for when usage was reset.
func (d *denyCache) forget() {
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		clear(s.seen)
		s.mu.Unlock()
	}
}

// size counts them.
func (d *denyCache) size() int {
	n := 0
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.RLock()
		n += len(s.seen)
		s.mu.RUnlock()
	}
	return n
}
