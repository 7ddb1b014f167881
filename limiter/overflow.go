package limiter

import (
	"hash/maphash"
	"sync"
)

// overflow counts the live partitions of unlisted tenants, so that an attacker
// who invents ids fills one shared partition instead of Redis. Its verdict is
// this process's own. Safe for concurrent use.
type overflow struct {
	now  func() int64 // µs, a clock that no step of the host's moves
	seed maphash.Seed

	mu   sync.Mutex
	live map[uint64]int64 // hash of the keys → when it is gone, µs
}

func newOverflow(now func() int64) *overflow {
	return &overflow{now: now, seed: maphash.MakeSeed(), live: make(map[uint64]int64)}
}

// admit reports whether the partition with these keys may be counted as itself:
// it is live already, or there are fewer than most. It stays live for two
// windows (µs) after the last request for it.
func (o *overflow) admit(keys []string, window int64, most int) bool {
	id, now := o.id(keys), o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.live[id]; !ok && len(o.live) >= most {
		o.sweep(now)
		if len(o.live) >= most {
			return false
		}
	}
	o.live[id] = now + 2*window
	return true
}

// would is admit without taking a place.
func (o *overflow) would(keys []string, most int) bool {
	id, now := o.id(keys), o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.live[id]; !ok && len(o.live) >= most {
		o.sweep(now)
		return len(o.live) < most
	}
	return true
}

func (o *overflow) id(keys []string) uint64 {
	var h maphash.Hash
	h.SetSeed(o.seed)
	for _, k := range keys {
		h.WriteString(k)
	}
	return h.Sum64()
}

// sweep drops the expired among a few entries; map iteration starts at random.
func (o *overflow) sweep(now int64) {
	n := 0
	for id, until := range o.live {
		if until <= now {
			delete(o.live, id)
		}
		if n++; n == sweepSome {
			return
		}
	}
}

// size counts the live ones, dropping the others.
func (o *overflow) size() int {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, until := range o.live {
		if until <= now {
			delete(o.live, id)
		}
	}
	return len(o.live)
}
