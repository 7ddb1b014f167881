package limiter

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// denyCache remembers denials until they end, so that a flood costs Redis nothing. A
// denial with retry-after r holds for r: nothing can be admitted meanwhile that would free
// units. It is used again only for the same limits under the same configuration (the
// identity of the key plan), the same cost, since a higher one would wait longer, and
// ceilings that are not higher. Safe for concurrent use.
type denyCache struct {
	start      time.Time // its clock is the time since then, ns
	resets     func() int64
	generation atomic.Int64 // incremented by forget
	seed       maphash.Seed
	denials    *expiring.Map[denialKey, denial]
}

const (
	// maxCached bounds how long a step of Redis's clock, a report by another process or
	// the loss of what Redis held can go unnoticed here. A denial by a global limit is also
	// about what other regions use, and how peers see this one. What a bound denies any process
	// of the region may borrow at any moment: a round trip after it was wanted. What reservations hold they may free at any moment.
	maxCached, maxCachedGlobal, maxCachedBounded = 30 * time.Second, time.Second, 50 * time.Millisecond
	// mostCached bounds memory under a flood of ids that are each denied.
	mostCached = 1 << 18
)

// denialKey is a hash of a partition set and of the costs in it, under one configuration.
type denialKey struct {
	plan *store.KeyPlan
	hash uint64
}

// denial is one answer. Its entry ends when it does, counted from before the store was asked.
type denial struct {
	generation int64
	answered   time.Duration // when the store answered; retry-after counts from here
	keys       []string
	cost       int64
	costs      []int64 // store.Call.Costs
	ceilings   []int64
	limits     []quota.LimitState
}

// newDenyCache returns an empty cache. resets is a number that changes when what was
// denied may have been reset.
func newDenyCache(start time.Time, resets func() int64) *denyCache {
	return &denyCache{start: start, resets: resets, seed: maphash.MakeSeed(), denials: expiring.New[denialKey, denial](mostCached)}
}

// current is the generation of denials that hold. A question that was asked under another
// may have been answered before a reset.
func (d *denyCache) current() int64 { return d.generation.Load() + d.resets() }

// forget drops everything, for when usage was reset or limits were replaced.
func (d *denyCache) forget() { d.generation.Add(1) }

func (d *denyCache) keyOf(c *store.Call) denialKey {
	hash := expiring.Hash(d.seed, c.Keys) ^ uint64(c.Cost)
	for _, cost := range c.Costs {
		hash = bits.RotateLeft64(hash, 1) ^ uint64(cost)
	}
	return denialKey{c.Plan, hash}
}

// refundable is of a limit of which any process of the region may give units back at any moment. A denial has the state of all
// limits, so one that is not refundable may not keep it either.
func refundable(s quota.LimitState) bool { return s.Limit.Refundable }

// remember keeps a denial that was asked for at sent, under the generation of that time,
// and answered by the store at answered.
func (d *denyCache) remember(c *store.Call, limits []quota.LimitState, generation int64, sent, answered time.Time) {
	if c.Record != "" || slices.ContainsFunc(limits, refundable) {
		return
	}
	lasts := time.Duration(0)
	for i := range limits {
		most := maxCached
		switch l := limits[i].Limit; {
		case l.MaxOvershoot > 0 || limits[i].Held > 0:
			most = maxCachedBounded
		case l.Scope == quota.ScopeGlobal:
			most = maxCachedGlobal
		}
		lasts = max(lasts, min(limits[i].RetryAfter, most))
	}
	now, k := answered.Sub(d.start), d.keyOf(c)
	s := d.denials.Shard(k.hash)
	s.Lock()
	defer s.Unlock()
	e := s.Hold(k, int64(now))
	if e == nil {
		if !s.Evict() {
			return
		}
		e = &expiring.Entry[denial]{}
		s.Put(k, e)
	}
	e.Ends = int64(sent.Sub(d.start) + lasts)
	e.Value = denial{generation, now, c.Keys, c.Cost, c.Costs, c.Ceilings, limits}
}

// recall returns the limits of a denial that still holds for the call at now,
// with their times counted on.
func (d *denyCache) recall(c *store.Call, now time.Time) ([]quota.LimitState, bool) {
	if c.Record != "" || c.Op != store.OpCheck {
		return nil, false
	}
	at := now.Sub(d.start)
	e := d.find(c, at)
	if e.generation != d.current() || e.cost != c.Cost || !slices.Equal(e.costs, c.Costs) || !slices.Equal(e.keys, c.Keys) {
		return nil, false
	}
	for i, ceiling := range c.Ceilings {
		if ceiling > e.ceilings[i] {
			return nil, false
		}
	}
	limits := slices.Clone(e.limits)
	passed := max(0, at-e.answered)
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

// find returns the denial with a call's hash, zero for none.
func (d *denyCache) find(c *store.Call, at time.Duration) denial {
	k := d.keyOf(c)
	s := d.denials.Shard(k.hash)
	s.Lock()
	defer s.Unlock()
	if e := s.Get(k, int64(at)); e != nil {
		return e.Value
	}
	return denial{}
}

func (d *denyCache) size(now time.Time) int { return d.denials.Live(int64(now.Sub(d.start))) }
