package limiter

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/quota"
)

// MemoryStore is the Store in this process's memory, with the meaning of the
// scripts: one conformance suite holds both. It serves a daemon without Redis,
// and it is the counter that decides while Redis is away. Safe for concurrent
// use; what it holds is gone with the process.
type MemoryStore struct {
	now     func() int64
	seed    func(key string) []charge
	charged func(c *Call)
	most    int64
	keep    bool
	hash    maphash.Seed
	life    atomic.Int64  // incremented by renew; keys of an earlier one count as absent
	size    atomic.Int64  // keys of all shards together
	turn    atomic.Uint64 // of the shards, to free memory
	shards  [memoryShards]memoryShard
}

const (
	memoryShards = 64
	// DefaultMemoryPartitions bounds what random ids can make a MemoryStore hold.
	DefaultMemoryPartitions = 1_000_000
	// sweepEvery and sweepSome: every sweepEvery calls a shard checks sweepSome of its
	// entries and drops the expired, so a flood of new ids is swept as it comes.
	sweepEvery, sweepSome = 8, 16
	idempotencyUS         = 60_000_000
)

// MemoryOptions configures a MemoryStore.
type MemoryOptions struct {
	// Now is the store's clock, µs since the epoch; nil means the monotonic clock
	// of this process, counted from the wall clock at its start. It may go back.
	Now func() int64
	// Partitions bounds how many are kept, whoever's they are; 0 means
	// DefaultMemoryPartitions. Newcomers beyond are refused until others expire, never
	// others evicted. Calls that come at the same moment may pass it by what they bring:
	// one call for each of 64 shards.
	Partitions int
	// seed returns what is already known of a key when it is first seen.
	seed func(key string) []charge
	// charged is called for each call that is charged, before another can see its keys, so
	// that a seed which learns from it never misses one. It must not ask the store.
	charged func(c *Call)
	// keep is for tests that move Now past every expiry and back, where a Redis
	// whose own clock stands still expires nothing.
	keep bool
}

// charge is units that were admitted at a time of the store's clock.
type charge struct{ us, units int64 }

// memoryShard is a part of the keys and its lock. All keys of a tenant are in
// one shard, so a call takes one lock.
type memoryShard struct {
	mu       sync.Mutex
	keys     map[string]*memoryKey
	widest   int // most keys since the map was made
	records  map[string]*memoryRecord
	counters map[quota.CounterKey]*memoryCounter
	calls    int
}

type memoryRecord struct {
	us      int64
	print   string
	verdict Verdict
}

// again is the verdict of a record for a call whose plan may have changed since: as in
// Redis, limits that the record lacks are zero, and those that are gone are left out.
func (r *memoryRecord) again(plan *KeyPlan, now int64) Verdict {
	limits := make([]LimitVerdict, len(plan.limits)) // the caller's, who uses them again
	copy(limits, r.verdict.Limits)
	return Verdict{Outcome: replayed, StoreUS: now, Limits: limits}
}

// NewMemoryStore returns an empty store.
func NewMemoryStore(o MemoryOptions) *MemoryStore {
	if o.Now == nil {
		start := time.Now()
		base := start.UnixMicro()
		o.Now = func() int64 { return base + time.Since(start).Microseconds() }
	}
	if o.Partitions == 0 {
		o.Partitions = DefaultMemoryPartitions
	}
	m := &MemoryStore{
		now: o.Now, seed: o.seed, charged: o.charged, keep: o.keep,
		most: int64(o.Partitions), hash: maphash.MakeSeed(),
	}
	for i := range m.shards {
		m.shards[i].keys = make(map[string]*memoryKey)
		m.shards[i].records = make(map[string]*memoryRecord)
		m.shards[i].counters = make(map[quota.CounterKey]*memoryCounter)
	}
	return m
}

// Decide implements Store. It does not wait and does not fail.
func (m *MemoryStore) Decide(_ context.Context, calls []Call, verdicts []Verdict) error {
	now := m.now()
	for i := range calls {
		if !m.keep && m.full() {
			m.makeRoom(now)
		}
		s := m.shard(calls[i].Keys[0])
		s.mu.Lock()
		if s.calls++; !m.keep && s.calls%sweepEvery == 0 {
			m.sweep(s, now)
		}
		verdicts[i] = m.decide(s, &calls[i], now)
		s.mu.Unlock()
	}
	return nil
}

// Reset implements Store.
func (m *MemoryStore) Reset(_ context.Context, tenant string) error {
	prefix := string(appendPrefix(nil, tenant))
	s := m.shard(prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.keys {
		if strings.HasPrefix(k, prefix) {
			m.drop(s, k)
		}
	}
	maps.DeleteFunc(s.records, func(k string, _ *memoryRecord) bool { return strings.HasPrefix(k, prefix) })
	return nil
}

// renew makes every key start again from what seed has of it, by now at least.
func (m *MemoryStore) renew() { m.life.Add(1) }

// TimeUS reads the store's clock, microseconds since the epoch.
func (m *MemoryStore) TimeUS(context.Context) (int64, error) { return m.now(), nil }

// shard returns the shard of a key's tenant: the text up to the closing brace.
func (m *MemoryStore) shard(key string) *memoryShard {
	if i := strings.IndexByte(key, '}'); i >= 0 {
		key = key[:i]
	}
	return &m.shards[maphash.String(m.hash, key)%memoryShards]
}

var errFull = errors.New("the in-memory store holds as many partitions as it may")

func (m *MemoryStore) decide(s *memoryShard, c *Call, now int64) Verdict {
	if c.Record != "" {
		if r := s.records[c.Record]; r != nil && r.us+idempotencyUS > now {
			if r.print != c.Print {
				return Verdict{Outcome: reused, StoreUS: now}
			}
			return r.again(c.Plan, now)
		}
	}
	states := make([]*memoryKey, len(c.Keys))
	for i := range c.Keys {
		if states[i] = m.load(s, c, i, now); states[i] == nil {
			return Verdict{Outcome: 'e', StoreUS: now, Err: &StoreError{Reason: quota.ReasonRedisRefused, Err: errFull}}
		}
	}
	v := Verdict{Outcome: admitted, StoreUS: now, Limits: make([]LimitVerdict, len(c.Plan.limits))}
	n := 0
	for i, k := range states {
		for _, l := range c.Plan.keys[i].limits {
			v.Limits[n].Remaining, v.Limits[n].WaitUS = k.judge(l, c.Ceilings[n], c.Cost)
			if v.Limits[n].WaitUS != 0 {
				v.Outcome = denied
			}
			n++
		}
	}
	charged := c.Op == OpReport || c.Op == OpCheck && v.Outcome == admitted
	m.settle(s, c, states, charged, now)
	if charged && m.charged != nil {
		m.charged(c)
	}
	n = 0
	for i, k := range states {
		for _, l := range c.Plan.keys[i].limits {
			if charged {
				v.Limits[n].Remaining, v.Limits[n].WaitUS = max(0, v.Limits[n].Remaining-c.Cost), 0
			} else if l.Scope == quota.ScopeGlobal {
				v.Limits[n].Over = max(0, min(k.used(l), l.Units)-c.Ceilings[n])
			}
			v.Limits[n].ResetUS = k.reset(l)
			n++
		}
	}
	if charged {
		v.Outcome = admitted
	}
	m.count(s, c, &v, charged, now)
	if charged && c.Record != "" {
		kept := v
		kept.Limits = slices.Clone(v.Limits)
		s.records[c.Record] = &memoryRecord{us: now, print: c.Print, verdict: kept}
	}
	return v
}

// settle keeps what a call changed: the charge, or only the step of the clock
// that a denial was the first to see.
func (m *MemoryStore) settle(s *memoryShard, c *Call, states []*memoryKey, charged bool, now int64) {
	for i, k := range states {
		plan := &c.Plan.keys[i]
		switch {
		case charged:
			k.charge(plan, c.Cost)
			k.expires = now + plan.ttl.Microseconds()
			m.hold(s, c.Keys[i], k)
		case c.Op == OpCheck:
			k.offset = k.clock.Offset
		}
	}
}

// load returns the state of the call's i-th key at now, nil when there is no room.
func (m *MemoryStore) load(s *memoryShard, c *Call, i int, now int64) *memoryKey {
	plan := &c.Plan.keys[i]
	k := s.keys[c.Keys[i]]
	if k != nil && k.expires <= now && !m.keep { // as good as swept, whenever that comes to it
		m.drop(s, c.Keys[i])
		k = nil
	}
	if k == nil && m.full() {
		return nil
	}
	if life := m.life.Load(); k == nil || k.life != life {
		k = newMemoryKey(plan)
		k.life = life
		if m.seed != nil {
			for _, e := range m.seed(c.Keys[i]) {
				k.at(plan, e.us)
				k.charge(plan, e.units)
				k.expires = now + plan.ttl.Microseconds()
				m.hold(s, c.Keys[i], k)
			}
		}
	}
	k.at(plan, now)
	return k
}

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

// makeRoom sweeps a shard, whichever tenants it holds: the keys of one that sends no
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
// iteration starts at random, so in time every entry is checked.
func (m *MemoryStore) sweep(s *memoryShard, now int64) int {
	n := dropSome(s.keys, func(k *memoryKey) bool { return k.expires <= now })
	if n > 0 {
		m.size.Add(-int64(n))
		s.shrink()
	}
	dropSome(s.records, func(r *memoryRecord) bool { return r.us+2*idempotencyUS <= now })
	dropSome(s.counters, func(t *memoryCounter) bool { return t.expires <= now })
	return n
}

// shrink makes a map anew of which little is left. It would keep the size that it once
// had, and iterating over some of its entries would pass through all of that.
func (s *memoryShard) shrink() {
	if s.widest <= shrinkAbove || len(s.keys) > s.widest/8 {
		return
	}
	keys := make(map[string]*memoryKey, len(s.keys))
	maps.Copy(keys, s.keys)
	s.keys, s.widest = keys, len(keys)
}

// dropSome drops the expired among a few entries and returns how many.
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
