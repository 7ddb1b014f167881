package limiter

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"

	"github.com/regiond/regiond/quota"
)

// recentUsage keeps roughly what this process has admitted, so that the store
// that decides while Redis is away does not begin at nothing. Per key it keeps
// recentBuckets counters over the longest window (or the drain of a full burst);
// each counts as spent at the end of its bucket, which errs towards denying by a
// sixteenth of that time.
// Bounded: beyond recentPerShard another key is forgotten. Safe for concurrent use.
type recentUsage struct {
	now    func() int64 // µs, the clock of the local store
	seeds  maphash.Seed
	shards [recentShards]recentShard
}

const (
	recentShards   = 64
	recentPerShard = 2048
	recentBuckets  = 16
)

type recentShard struct {
	mu   sync.Mutex
	keys map[string]*recentKey
}

type recentKey struct {
	step  int64 // µs of a bucket
	last  int64 // index of the newest bucket: time ÷ step
	units [recentBuckets]int64
}

func newRecentUsage(now func() int64) *recentUsage {
	m := &recentUsage{now: now, seeds: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].keys = make(map[string]*recentKey)
	}
	return m
}

func (m *recentUsage) shard(key string) *recentShard {
	return &m.shards[maphash.String(m.seeds, key)%recentShards]
}

// add notes an admission.
func (m *recentUsage) add(c *Call) {
	now := m.now()
	for i, key := range c.Keys {
		step := c.Plan.keys[i].step
		s := m.shard(key)
		s.mu.Lock()
		k := s.keys[key]
		if k == nil {
			if len(s.keys) >= recentPerShard {
				s.evict(now)
			}
			k = &recentKey{step: step, last: now / step}
			s.keys[key] = k
		}
		if k.step != step { // another window now: what still counted was just now
			k.roll(now)
			sum := int64(0)
			for _, u := range k.units {
				sum += u
			}
			*k = recentKey{step: step, last: now / step}
			k.units[k.last%recentBuckets] = sum
		}
		k.roll(now)
		k.units[k.last%recentBuckets] += c.Cost
		s.mu.Unlock()
	}
}

// recentStep is the length of a limit's buckets, µs.
func recentStep(l *quota.Limit) int64 {
	return (memoryOf(l) + recentBuckets - 2) / (recentBuckets - 1)
}

// memoryOf is how far back an admission matters to a limit, µs: its window, or
// the time in which a full burst drains.
func memoryOf(l *quota.Limit) int64 {
	if l.Capacity() <= l.Units {
		return l.WindowUS()
	}
	return quota.MulDivUp(l.Capacity(), l.WindowUS(), l.Units)
}

// roll moves on to the bucket of now, emptying those it passes.
func (k *recentKey) roll(now int64) {
	to := now / k.step
	for n := 0; k.last < to && n < recentBuckets; n++ {
		k.last++
		k.units[k.last%recentBuckets] = 0
	}
	k.last = max(k.last, to)
}

// evict drops the least recently used of a few keys.
func (s *recentShard) evict(now int64) {
	n, quietest, oldest := 0, "", int64(0)
	for key, k := range s.keys {
		if end := (k.last + 1) * k.step; n == 0 || end < oldest {
			quietest, oldest = key, end
		}
		if n++; n == sweepSome || oldest < now {
			break
		}
	}
	delete(s.keys, quietest)
}

// seed returns what was admitted under a key, oldest first, none of it later than now.
func (m *recentUsage) seed(key string) []charge {
	now := m.now()
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[key]
	if k == nil {
		return nil
	}
	var charges []charge
	for i := max(0, k.last-recentBuckets+1); i <= k.last; i++ {
		if u := k.units[i%recentBuckets]; u > 0 {
			charges = append(charges, charge{us: min(now, (i+1)*k.step-1), units: u})
		}
	}
	return charges
}

// forget drops the keys of a tenant.
func (m *recentUsage) forget(tenant string) {
	prefix := string(appendPrefix(nil, tenant))
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		maps.DeleteFunc(s.keys, func(key string, _ *recentKey) bool { return strings.HasPrefix(key, prefix) })
		s.mu.Unlock()
	}
}
