package limiter

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// values bounds the partitions of one listed tenant, so that whoever chooses the values of
// a dimension fills one shared partition instead of Redis. Each list of dimensions that
// limits count by has as many places as there may be values; several dimensions together
// make one value. It outlives reloads. Safe for concurrent use.
type values struct {
	mu sync.Mutex
	by []*valueSet // few: tenants have one or two such lists
}

// valueSet holds hashes of the values that may have a key in Redis, in two generations. One
// that is used moves to the recent one. A generation lasts as long as a key of the one before
// can live, so a value keeps its place for one to two lives of
// its keys after its last use.
type valueSet struct {
	by     []string
	recent map[uint64]struct{}
	older  map[uint64]struct{}
	ends   int64         // when a generation begins, µs
	life   time.Duration // the longest of a key that was used in the recent one
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

// admit reports whether the value of a request may be counted as itself under a key: it has
// a place, or there is one left of most. With take it keeps it.
func (v *values) admit(id uint64, k *store.PlannedKey, nowUS int64, most int, take bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.set(k.Limits[0].By)
	s.turn(nowUS)
	if _, ok := s.recent[id]; !ok {
		if _, ok := s.older[id]; !ok && len(s.recent)+len(s.older) >= most {
			return false
		}
		if !take {
			return true
		}
		delete(s.older, id)
		s.recent[id] = struct{}{}
	}
	if take {
		s.life = max(s.life, k.Life+placeMargin)
	}
	return true
}

func (v *values) set(by []string) *valueSet {
	for _, s := range v.by {
		if slices.Equal(s.by, by) {
			return s
		}
	}
	s := &valueSet{by: by, recent: map[uint64]struct{}{}}
	v.by = append(v.by, s)
	return s
}

// turn begins a new generation when it is time.
func (s *valueSet) turn(nowUS int64) {
	if nowUS < s.ends {
		return
	}
	life := s.life.Microseconds()
	s.older = s.recent
	if nowUS >= s.ends+life { // all of them are over
		s.older = nil
	}
	s.recent, s.ends, s.life = map[uint64]struct{}{}, nowUS+life, 0
}
