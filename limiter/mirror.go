package limiter

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/regiond/regiond/quota"
)

// mirror remembers roughly what this process admitted lately, so that the store
// that decides while Redis is away does not begin at nothing. Per key it keeps
// mirrorBuckets counters over the longest window (or the drain of a full burst);
// each counts as spent at the end of its bucket, which errs towards denying by a
// sixteenth of that time.
// Bounded: beyond mirrorPerShard another key is forgotten. Safe for concurrent use.
type mirror struct {
	now    func() int64 // µs, the clock of the local store
	seeds  maphash.Seed
	shards [mirrorShards]mirrorShard
}

const (
	mirrorShards   = 64
	mirrorPerShard = 2048
	mirrorBuckets  = 16
)

type mirrorShard struct {
	mu   sync.Mutex
	keys map[string]*mirrorKey
}

type mirrorKey struct {
	step  int64 // µs of a bucket
	last  int64 // index of the newest bucket: time ÷ step
	units [mirrorBuckets]int64
}

func newMirror(now func() int64) *mirror {
	m := &mirror{now: now, seeds: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].keys = make(map[string]*mirrorKey)
	}
	return m
}

func (m *mirror) shard(key string) *mirrorShard {
	return &m.shards[maphash.String(m.seeds, key)%mirrorShards]
}

// add notes an admission.
func (m *mirror) add(c *Call) {
	now := m.now()
	for i, key := range c.Keys {
		step := c.Plan.keys[i].step
		s := m.shard(key)
		s.mu.Lock()
		k := s.keys[key]
		if k == nil {
			if len(s.keys) >= mirrorPerShard {
				s.evict(now)
			}
			k = &mirrorKey{step: step, last: now / step}
			s.keys[key] = k
		}
		if k.step != step { // another window now: what still counted was just now
			k.roll(now)
			sum := int64(0)
			for _, u := range k.units {
				sum += u
			}
			*k = mirrorKey{step: step, last: now / step}
			k.units[k.last%mirrorBuckets] = sum
		}
		k.roll(now)
		k.units[k.last%mirrorBuckets] += c.Cost
		s.mu.Unlock()
	}
}

// mirrorStep is the length of a limit's buckets, µs.
func mirrorStep(l *quota.Limit) int64 {
	return (memoryOf(l) + mirrorBuckets - 2) / (mirrorBuckets - 1)
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
func (k *mirrorKey) roll(now int64) {
	to := now / k.step
	for n := 0; k.last < to && n < mirrorBuckets; n++ {
		k.last++
		k.units[k.last%mirrorBuckets] = 0
	}
	k.last = max(k.last, to)
}

// evict drops a key, one that has gone quiet if a few looks find it.
func (s *mirrorShard) evict(now int64) {
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
func (m *mirror) seed(key string) []charge {
	now := m.now()
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[key]
	if k == nil {
		return nil
	}
	var charges []charge
	for i := max(0, k.last-mirrorBuckets+1); i <= k.last; i++ {
		if u := k.units[i%mirrorBuckets]; u > 0 {
			charges = append(charges, charge{us: min(now, (i+1)*k.step-1), units: u})
		}
	}
	return charges
}

// forget drops the keys of a tenant.
func (m *mirror) forget(tenant string) {
	prefix := string(appendPrefix(nil, tenant))
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for key := range s.keys {
			if strings.HasPrefix(key, prefix) {
				delete(s.keys, key)
			}
		}
		s.mu.Unlock()
	}
}
