package limiter

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/limiter/store"
)

// pending are the settles that the store did not take, by the number of their reservation. They are charged when it is back, and
// may be sent again until it answers: a settle is idempotent. They are gone with the process.
type pending struct {
	added chan struct{}

	mu   sync.Mutex
	byID map[int64]*query // guarded by mu
}

const (
	// mostPending bounds the settles that a process keeps: 700 bytes each, with what they charge.
	mostPending = 1 << 16
	// lastSettles is how long a process that stops may take for them.
	lastSettles = 2 * time.Second
)

func newPending() *pending {
	return &pending{added: make(chan struct{}, 1), byID: map[int64]*query{}}
}

// add keeps the settle of a query, since nowUS by the clock of this process; added is false where there is one of that
// reservation, and room where there is no place.
func (p *pending) add(q *query, nowUS int64) (added, room bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID[q.call.Hold.ID] != nil {
		return false, true
	}
	if len(p.byID) >= mostPending {
		return false, false
	}
	kept := *q
	kept.hold.nowUS, kept.ceilings = nowUS, slices.Clone(q.ceilings) // whoever settles still reads its own
	p.byID[q.call.Hold.ID] = &kept
	signal.Send(p.added)
	return true, true
}

// next returns some of the settles.
func (p *pending) next() []*query {
	p.mu.Lock()
	defer p.mu.Unlock()
	some := make([]*query, 0, min(len(p.byID), writeMost))
	for _, q := range p.byID {
		if len(some) == writeMost {
			break
		}
		some = append(some, q)
	}
	return some
}

func (p *pending) some() bool { return p.size() > 0 }

// drop reports whether there was a settle of that reservation.
func (p *pending) drop(q *query) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, had := p.byID[q.call.Hold.ID]
	delete(p.byID, q.call.Hold.ID)
	return had
}

func (p *pending) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byID)
}

// settleLast charges what the store takes now, so that a process that stops beside a Redis that answers loses nothing.
func (l *Limiter) settleLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastSettles)
	defer cancel()
	for l.pending.some() && ctx.Err() == nil && l.settleSome(ctx) {
	}
	if n := l.pending.size(); n > 0 {
		l.log.Warn("this process ends with settles that redis did not take; send them again to have them charged", "settles", n)
	}
}

// settleSome reports whether the store took any.
func (l *Limiter) settleSome(ctx context.Context) bool {
	some := l.pending.next()
	calls, verdicts := make([]store.Call, len(some)), make([]store.Verdict, len(some))
	for i, q := range some {
		q.call.Ceilings = slices.Clone(q.call.Ceilings) // those of before may still be read
		q.call.Known, q.call.Periods = nil, nil
		q.takeCeilings()
		q.call.Periods = nil                                                   // it is charged in whatever period counts
		q.call.Hold.GoneUS = q.hold.ticket.goneUS + l.localUS() - q.hold.nowUS // it is not late because it has waited
		calls[i] = q.call
	}
	l.store.Decide(ctx, calls, verdicts)
	taken := false
	for i, q := range some {
		v := &verdicts[i]
		if v.Err != nil || v.Outcome == 0 {
			continue
		}
		q.publishUsage(context.Background(), v)
		l.countExceeded(q, v)
		if v.Undecided() { // its ceilings are others now
			continue
		}
		l.pending.drop(q)
		taken = true
	}
	return taken
}
