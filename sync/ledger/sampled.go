package ledger

import (
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
)

// MaxChecks is how many sampled checks wait at once for their usage to be
// published. Beyond it the oldest is forgotten: its usage is published all the same.
const MaxChecks = 32

// sampledChecks are those whose usage has not been published, so that the
// publication can be linked to them. Nearly always there are none, and then
// nothing is locked.
//
//	Record, Local ─ add ─▶ waiting ─ taken, by Take ─▶ Checks, once
type sampledChecks struct {
	count atomic.Int32 // of waiting; may be read without the lock

	mu      sync.Mutex     // taken inside a shard's, never the other way
	waiting []sampledCheck // oldest first
}

// sampledCheck is one of them.
type sampledCheck struct {
	id    uint64 // the series' that it charged
	taken bool   // its usage is in what Take has given
	span  trace.SpanContext
}

func (c *sampledChecks) add(id uint64, span trace.SpanContext) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == MaxChecks {
		c.waiting = append(c.waiting[:0], c.waiting[1:]...)
	}
	c.waiting = append(c.waiting, sampledCheck{id: id, span: span})
	c.count.Store(int32(len(c.waiting)))
}

// take notes that what was counted under an id so far is on its way out. The shard
// is locked, so what is charged later is not on its way yet.
func (c *sampledChecks) take(id uint64) {
	if c.count.Load() == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.waiting {
		if c.waiting[i].id == id {
			c.waiting[i].taken = true
		}
	}
}

// Checks gives the sampled checks whose usage Take has given, and forgets them. It is
// nil, and costs next to nothing, while nothing is sampled.
func (l *Ledger) Checks() []trace.SpanContext {
	c := &l.sampled
	if c.count.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var spans []trace.SpanContext
	c.waiting = slices.DeleteFunc(c.waiting, func(w sampledCheck) bool {
		if w.taken {
			spans = append(spans, w.span)
		}
		return w.taken
	})
	c.count.Store(int32(len(c.waiting)))
	return spans
}
