// Package expiring is a bounded map of entries that end, each at a time of a clock that its
// users read, in whatever unit. Nothing runs in the background: whoever looks for an entry
// sweeps a few others. When it is full, its user decides what that means: nothing is dropped
// before its end but by Drop and Evict.
package expiring

import (
	"hash/maphash"
	"iter"
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Map is a map of at most so many entries. Safe for concurrent use; of its shards, those
// who call their methods hold the lock, so that several entries are changed together.
type Map[K comparable, V any] struct {
	most   atomic.Int64
	size   atomic.Int64  // entries of all shards, and places that were taken for more
	turn   atomic.Uint64 // the shard that is swept when there is no room
	shards []Shard[K, V]
}

// Shard is a part of a Map, locked by those who call its methods.
type Shard[K comparable, V any] struct {
	sync.Mutex
	of      *Map[K, V]
	entries map[K]*Entry[V]
	widest  int // most entries since the map was made
	uses    int
}

// Entry is for those who hold the lock of its shard, and changed in place.
type Entry[V any] struct {
	Value V
	Ends  int64 // the time from which on it counts as gone
}

const (
	// Shards is how many a Map of New has.
	Shards = 64
	// sweepEvery and sweepSome: after 32 uses, or 8 of them for newcomers, a shard checks 16
	// of its entries: it is swept twice as fast as it is filled.
	sweepEvery, sweepSome, newcomerUses = 32, 16, 3
	// shrinkAbove is how many entries the map of a shard has room for in any case.
	shrinkAbove = 1024
)

// New returns a Map of at most so many entries.
func New[K comparable, V any](most int) *Map[K, V] { return newMap[K, V](most, Shards) }

// NewSmall returns a Map with one shard, for 200 bytes in place of 6 KB where there are thousands of maps.
func NewSmall[K comparable, V any](most int) *Map[K, V] { return newMap[K, V](most, 1) }

func newMap[K comparable, V any](most, shards int) *Map[K, V] {
	m := &Map[K, V]{shards: make([]Shard[K, V], shards)}
	m.Bound(most)
	for i := range m.shards {
		m.shards[i].of, m.shards[i].entries = m, make(map[K]*Entry[V])
	}
	return m
}

// Bound sets how many entries there may be. Those that are too many stay until they end.
func (m *Map[K, V]) Bound(most int) { m.most.Store(int64(most)) }

// Size counts the entries, ended ones that were not yet swept among them.
func (m *Map[K, V]) Size() int { return int(m.size.Load()) }

// Shard returns the shard of all keys with a hash.
func (m *Map[K, V]) Shard(hash uint64) *Shard[K, V] {
	return &m.shards[hash%uint64(len(m.shards))]
}

// Live counts the entries, after dropping the ended of one shard after the other.
func (m *Map[K, V]) Live(now int64) int {
	for i := range m.shards {
		s := &m.shards[i]
		s.Lock()
		s.sweep(now, len(s.entries))
		s.Unlock()
	}
	return m.Size()
}

// All returns the entries, ended ones that were not yet swept among them.
func (s *Shard[K, V]) All() iter.Seq2[K, *Entry[V]] { return maps.All(s.entries) }

// Get returns the entry of a key, nil when there is none or it has ended.
func (s *Shard[K, V]) Get(key K, now int64) *Entry[V] {
	if s.uses++; s.uses >= sweepEvery {
		s.uses = 0
		s.sweep(now, sweepSome)
	}
	e := s.entries[key]
	if e != nil && e.Ends <= now { // as good as swept, whenever that comes to it
		s.Drop(key)
		return nil
	}
	return e
}

// Hold returns the entry of a key, one that was put just now where there is none, nil where there is no room. The
// caller sets its end.
func (s *Shard[K, V]) Hold(key K, now int64) *Entry[V] {
	e := s.Get(key, now)
	if e == nil && s.Take(1, now) {
		e = &Entry[V]{}
		s.Put(key, e)
	}
	return e
}

// Take reserves places for n new entries, that are put under the same lock. It is false if
// so many are not to be had; what has ended anywhere makes room.
func (s *Shard[K, V]) Take(n int, now int64) bool {
	m := s.of
	s.uses += n * newcomerUses
	for {
		if m.size.Add(int64(n)) <= m.most.Load() {
			return true
		}
		s.Give(n)
		if m.makeRoom(s, now) == 0 {
			return false
		}
	}
}

// Give returns n places that were taken and not used.
func (s *Shard[K, V]) Give(n int) { s.of.size.Add(int64(-n)) }

// Put adds an entry that a place was taken for.
func (s *Shard[K, V]) Put(key K, e *Entry[V]) {
	s.entries[key] = e
	s.widest = max(s.widest, len(s.entries))
}

// Evict drops an entry of the shard, whose place is taken for another: of some, the one that
// ends first. It is false if there is none.
func (s *Shard[K, V]) Evict() bool {
	var first K
	var ends *Entry[V]
	seen := 0
	for key, e := range s.entries { // begins at random
		if ends == nil || e.Ends < ends.Ends {
			first, ends = key, e
		}
		if seen++; seen == sweepSome {
			break
		}
	}
	delete(s.entries, first)
	return ends != nil
}

// Drop forgets a key that is held.
func (s *Shard[K, V]) Drop(key K) {
	delete(s.entries, key)
	s.Give(1)
}

// makeRoom sweeps some entries of the shard whose turn it is, and of the following until
// it has seen enough. It returns how many it dropped, and stays where it found some. own
// is locked by the caller; another shard that is locked is passed over.
func (m *Map[K, V]) makeRoom(own *Shard[K, V], now int64) int {
	for range m.shards {
		turn := m.turn.Load()
		s := m.Shard(turn)
		seen, dropped := 0, 0
		if s == own {
			seen, dropped = s.sweep(now, sweepSome)
		} else if s.TryLock() {
			seen, dropped = s.sweep(now, sweepSome)
			s.Unlock()
		}
		if dropped > 0 {
			return dropped
		}
		m.turn.CompareAndSwap(turn, turn+1)
		if seen == sweepSome {
			break
		}
	}
	return 0
}

// sweep drops the ended among some entries. Map iteration starts at random, so in time
// each entry is seen.
func (s *Shard[K, V]) sweep(now int64, some int) (seen, dropped int) {
	for key, e := range s.entries {
		if seen == some {
			break
		}
		if seen++; e.Ends <= now {
			delete(s.entries, key)
			dropped++
		}
	}
	if dropped == 0 {
		return seen, 0
	}
	s.Give(dropped)
	// A map keeps the size that it once had, and iterating over some entries passes
	// through all of that.
	if s.widest > shrinkAbove && len(s.entries) <= s.widest/8 {
		entries := make(map[K]*Entry[V], len(s.entries))
		maps.Copy(entries, s.entries)
		s.entries, s.widest = entries, len(entries)
	}
	return seen, dropped
}

// Hash is a hash of some keys in order.
func Hash(seed maphash.Seed, keys []string) (hash uint64) {
	for _, key := range keys {
		hash = bits.RotateLeft64(hash, 1) ^ maphash.String(seed, key)
	}
	return hash
}
