package limiter

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/quota"
)

// places are those of partitions that are counted as themselves, by hash. They are bounded, so that whoever invents ids
// fills one shared partition instead of Redis. The verdict is this process's own. Safe for concurrent use.
type places struct {
	*expiring.Map[uint64, struct{}]
	swept atomic.Int64 // when all of them were looked at, µs
}

// placeMargin is how much longer a place lives than the keys in Redis: a call that waits
// before it is sent sets their TTL later.
const placeMargin = time.Second

// admit reports whether a partition may be counted as itself: it has a place, or there is one left. With take it keeps it
// for as long as its keys live in Redis after this use, so that the places bound those too.
func (p *places) admit(id uint64, nowUS int64, life time.Duration, take bool) bool {
	return p.find(id, nowUS, life, take) || p.sweep(nowUS) && p.find(id, nowUS, life, take)
}

// find looks at some of the others where there is no place left.
func (p *places) find(id uint64, nowUS int64, life time.Duration, take bool) bool {
	s := p.Shard(id)
	s.Lock()
	defer s.Unlock()
	if !take {
		room := s.Get(id, nowUS) != nil
		if !room && s.Take(1, nowUS) {
			s.Give(1)
			room = true
		}
		return room
	}
	place := s.Hold(id, nowUS)
	if place != nil {
		place.Ends = max(place.Ends, nowUS+(life+placeMargin).Microseconds())
	}
	return place != nil
}

// sweep frees all places that have ended: some looks miss the last few. So that a flood of newcomers does not keep the
// process busy, it rests for 1 µs a place, 100 times what it takes (0.8 ms for 100,000).
func (p *places) sweep(nowUS int64) bool {
	before := p.swept.Load()
	if nowUS-before < int64(p.Size()) || !p.swept.CompareAndSwap(before, nowUS) {
		return false
	}
	p.Live(nowUS)
	return true
}

// overflow has the places of partitions of tenants that the configuration does not list.
type overflow struct {
	now    func() int64 // µs, a clock that no step of the host's moves
	seed   maphash.Seed
	places *places
	values sync.Map // tenant → *values, also over reloads
}

func newOverflow(now func() int64) *overflow {
	return &overflow{now: now, seed: maphash.MakeSeed(), places: &places{Map: expiring.New[uint64, struct{}](0)}}
}

// admit is about the partition with these keys.
func (o *overflow) admit(keys []string, ttl time.Duration, take bool) bool {
	return o.places.admit(expiring.Hash(o.seed, keys), o.now(), ttl, take)
}

func (o *overflow) size() int { return o.places.Live(o.now()) }

// valuesOf are the places of a listed tenant's values.
func (o *overflow) valuesOf(tenant string) *values {
	v, ok := o.values.Load(tenant)
	if !ok {
		v, _ = o.values.LoadOrStore(tenant, &values{})
	}
	return v.(*values)
}

// forget drops what it has of tenants whose values have no place any more. A request under way may take one that nobody finds then; its
// value takes another next time.
func (o *overflow) forget() {
	o.values.Range(func(tenant, v any) bool {
		if v.(*values).unused(o.now()) {
			o.values.CompareAndDelete(tenant, v)
		}
		return true
	})
}

// values has the places of one listed tenant. Each list of dimensions that limits count by has as many as there may be
// values; several dimensions together make one value. Safe for concurrent use.
type values struct {
	mu sync.Mutex
	by []valueSet // few: tenants have one or two such lists
}

type valueSet struct {
	by []string
	*places
}

// of are the places of values of some dimensions.
func (v *values) of(by []string, most int) *places {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.by, func(s valueSet) bool { return slices.Equal(s.by, by) })
	if i < 0 {
		i, v.by = len(v.by), append(v.by, valueSet{by, &places{Map: expiring.NewSmall[uint64, struct{}](most)}})
	}
	p := v.by[i].places
	p.Bound(most)
	return p
}

// unused reports whether no value has a place.
func (v *values) unused(nowUS int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !slices.ContainsFunc(v.by, func(s valueSet) bool { return s.Live(nowUS) > 0 })
}

// valueID is a hash of the values that a request has of some dimensions. No caller can make
// two values collide.
func valueID(seed maphash.Seed, by []string, dims quota.Dimensions) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, name := range by {
		v, _ := dims.Value(name)
		_, _ = h.WriteString(v)
		_ = h.WriteByte(0) // ids have none
	}
	return h.Sum64()
}
