package limiter

import "maps"

// shrinkAbove is how many keys a shard's map has room for in any case.
const shrinkAbove = 1024

// full reports whether there is no room for another partition.
func (m *MemoryStore) full() bool { return m.size.Load() >= m.most }

// hold keeps k under a key. It needs the shard's lock, as the others here do.
func (m *MemoryStore) hold(s *memoryShard, key string, k *memoryKey) {
	before := len(s.keys)
	s.keys[key] = k
	if len(s.keys) > before {
		m.size.Add(1)
		s.widest = max(s.widest, len(s.keys))
	}
}

// drop forgets a key that is held.
func (m *MemoryStore) drop(s *memoryShard, key string) {
	delete(s.keys, key)
	m.size.Add(-1)
}

// makeRoom sweeps a shard, whoever's keys are in it: those of a tenant that asks no
// more would else keep others out for good. The next call goes on with the same shard as long
// as something was found there, and then with the next. It takes that shard's lock.
func (m *MemoryStore) makeRoom(now int64) {
	turn := m.turn.Load()
	s := &m.shards[turn%memoryShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.sweep(s, now) == 0 {
		m.turn.CompareAndSwap(turn, turn+1)
	}
}

// sweep drops some of what has expired and returns how many keys that were. Map
// iteration begins anywhere, so in time everything is looked at.
func (m *MemoryStore) sweep(s *memoryShard, now int64) int {
	n := dropSome(s.keys, func(k *memoryKey) bool { return k.expires <= now })
	if n > 0 {
		m.size.Add(-int64(n))
		s.shrink()
	}
	dropSome(s.records, func(r *memoryRecord) bool { return r.us+2*idempotencyUS <= now })
	dropSome(s.totals, func(t *memoryTotal) bool { return t.expires <= now })
	return n
}

// shrink makes a map anew of which little is left. It would keep the size that it once
// had, and each look at some of its entries would go through all of that.
func (s *memoryShard) shrink() {
	if s.widest <= shrinkAbove || len(s.keys) > s.widest/8 {
		return
	}
	keys := make(map[string]*memoryKey, len(s.keys))
	maps.Copy(keys, s.keys)
	s.keys, s.widest = keys, len(keys)
}

// dropSome looks at a few entries, drops those that are over and returns how many.
func dropSome[K comparable, V any](entries map[K]V, over func(V) bool) (dropped int) {
	n := 0
	for key, v := range entries {
		if over(v) {
			delete(entries, key)
			dropped++
		}
		if n++; n == sweepSome {
			break
		}
	}
	return dropped
}
