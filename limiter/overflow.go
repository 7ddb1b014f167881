package limiter

import (
	"hash/maphash"
	"maps"
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
// it is live already, or there are fewer than most. With take it stays live for two
// windows (µs) after the last request for it.
func (o *overflow) admit(keys []string, window int64, most int, take bool) bool {
	id, now := o.id(keys), o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.live[id]; !ok && len(o.live) >= most {
		dropSome(o.live, func(until int64) bool { return until <= now })
		if len(o.live) >= most {
			return false
		}
	}
	if take {
		o.live[id] = now + 2*window
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

// size counts the live ones, dropping the others.
func (o *overflow) size() int {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.live, func(_ uint64, until int64) bool { return until <= now })
	return len(o.live)
}
