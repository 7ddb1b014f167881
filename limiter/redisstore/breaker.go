package redisstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
)

// breaker remembers that the store failed a moment ago, so that the next request
// need not find out again.
//
//	        a call fails
//	closed ─────────────▶ open ──┐ a probe at once, then each probeInterval
//	   ▲                    ▲    │
//	   │  good, held off    └────┘ bad, or held off
//	   └──────────────────────────
//
// One failed call opens it and one good probe closes it; no request is ever used as a test.
// If calls keep failing while probes succeed, it stays open for a time that doubles each
// time.
type breaker struct {
	isOpen atomic.Bool
	wake   chan struct{} // has an element when the prober should look at once

	mu     sync.Mutex
	closed time.Time     // when it was closed last
	opened time.Time     // when it was opened last
	hold   time.Duration // how long it stays open at least
}

const (
	probeInterval = 100 * time.Millisecond // while open
	idleInterval  = time.Second            // while closed: an idle store may be gone too
	maxHold       = time.Second
	// relapse is how soon after closing another failure counts as the same trouble.
	relapse = time.Second
)

func (b *breaker) open() bool { return b.isOpen.Load() }

// trip opens the breaker; it reports whether it was closed before.
func (b *breaker) trip(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isOpen.Load() {
		return false
	}
	if !b.closed.IsZero() && now.Sub(b.closed) < relapse {
		b.hold = min(max(2*b.hold, probeInterval), maxHold)
	} else {
		b.hold = 0
	}
	b.opened = now
	b.isOpen.Store(true)
	signal.Send(b.wake)
	return true
}

// probed closes an open breaker after a good probe, unless it is held off; it
// reports whether it did.
func (b *breaker) probed(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isOpen.Load() || now.Sub(b.opened) < b.hold {
		return false
	}
	b.closed = now
	b.isOpen.Store(false)
	return true
}
