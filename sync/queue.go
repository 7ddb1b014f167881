package sync

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// maxLoansQueued bounds the wants, grants and returns that wait for the goroutine of Run,
	// and maxQueued the messages about resets and overrides, of which the latter leave some room to the former.
	maxLoansQueued = 8 * wire.MaxLoans
	maxQueued      = 128
	roomForResets  = 32
)

// queue holds what other goroutines have for the one of Run to publish. What the bus does not
// take of it is dropped: whoever needs it sends again.
type queue struct {
	ready chan struct{} // has something in it while something should not wait for a tick

	mu sync.Mutex
	queued
}

type queued struct {
	heartbeat bool
	loans     map[string]*wire.Loans // by recipient
	entries   int                    // of loans
	messages  []wire.Numbered        // about resets and overrides
	top       *wire.Top              // the newest; nil: none
}

// add changes what waits, which is published at once.
func (q *queue) add(change func(q *queued)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(&q.queued)
	signal.Send(q.ready)
}

func (q *queue) take() queued {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.queued
	q.queued = queued{}
	return out
}

// HeartbeatSoon requests a heartbeat because what View returns has changed. It never
// blocks; heartbeats that it causes are at least 20 ms apart.
func (m *Mesh) HeartbeatSoon() { m.queue.add(func(q *queued) { q.heartbeat = true }) }

// SendLoans has wants published for all other regions, where to is "", or grants and returns
// for the region to. It may be called from anywhere and never waits: what finds the bus away,
// or too much queued, is dropped and counted, since whoever lacks units asks again. With
// Partition a want names it to lenders that never met it; Sealed, From and PartitionID's
// meaning are as in wire.Want. l is not kept.
func (m *Mesh) SendLoans(to string, l *wire.Loans) {
	m.queue.add(func(q *queued) {
		if q.entries+l.Len() > maxLoansQueued {
			m.metrics.loansDropped.Add(int64(l.Len()))
			return
		}
		if q.loans == nil {
			q.loans = map[string]*wire.Loans{}
		}
		to := cmp.Or(to, EveryRegion)
		o := q.loans[to]
		if o == nil {
			o = &wire.Loans{}
			q.loans[to] = o
		}
		o.Wants, o.Grants, o.Returns = append(o.Wants, l.Wants...), append(o.Grants, l.Grants...), append(o.Returns, l.Returns...)
		q.entries += l.Len()
	})
}

// SendReset has a message about a reset published for all regions, siblings too. It may be
// called from anywhere and never waits: what finds too much queued is dropped and counted.
func (m *Mesh) SendReset(r wire.Reset) {
	if !m.enqueue(&r, maxQueued) {
		m.metrics.errors.Add(1)
	}
}

// SendOverrides has a payload about overrides published like a reset, sealed, and reports whether there was room for it. It is
// no longer the caller's.
func (m *Mesh) SendOverrides(payload []byte) bool {
	return m.enqueue(&wire.Overrides{Payload: payload}, maxQueued-roomForResets)
}

// enqueue queues msg where fewer than most are.
func (m *Mesh) enqueue(msg wire.Numbered, most int) (room bool) {
	m.queue.add(func(q *queued) {
		if room = len(q.messages) < most; room {
			q.messages = append(q.messages, msg)
		}
	})
	return room
}

// SendTop has a payload published for all other processes at the next tick, sealed, in place of
// one that still waits; it is no longer the caller's. It may be called from anywhere.
func (m *Mesh) SendTop(payload []byte) {
	m.queue.mu.Lock()
	defer m.queue.mu.Unlock()
	m.queue.top = &wire.Top{Payload: payload}
}

// publishQueued publishes what waits. Wants are for regions that are received from: one of
// another version is not.
func (m *Mesh) publishQueued() {
	q := m.queue.take()
	if q.heartbeat {
		m.heartbeatSoon()
	}
	if m.silenced() {
		return
	}
	other := func(p quota.Process) bool { return p.Region != m.peers.Self.Region }
	for _, to := range slices.Sorted(maps.Keys(q.loans)) {
		if to != EveryRegion || slices.ContainsFunc(m.peers.Received(m.o.Now()), other) {
			m.sendLoans(to, *q.loans[to])
		}
	}
	if q.top != nil {
		q.messages = append(q.messages, q.top)
	}
	for _, msg := range q.messages {
		_ = m.send(msg, "", nil) // counted there, as all are
	}
}

// sendLoans publishes one message, or two halves of what is too large.
func (m *Mesh) sendLoans(to string, l wire.Loans) {
	w, g, r, err := len(l.Wants), len(l.Grants), len(l.Returns), ErrTooLarge
	if l.Fits() {
		err = m.send(&l, "."+to, nil)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrTooLarge) && l.Len() > 1:
		w, g, r = (w+1)/2, (g+1)/2, r/2
		m.sendLoans(to, wire.Loans{Wants: l.Wants[:w], Grants: l.Grants[:g], Returns: l.Returns[:r]})
		m.sendLoans(to, wire.Loans{Wants: l.Wants[w:], Grants: l.Grants[g:], Returns: l.Returns[r:]})
	default:
		m.metrics.loansDropped.Add(int64(l.Len()))
	}
}

// publishResets gives a process that was not received until now the cuts of all tenants: it
// may have started since, or been cut off.
func (m *Mesh) publishResets() {
	if m.silenced() {
		return
	}
	for tenant, cuts := range m.o.Counters.Resets() {
		_ = m.send(&wire.Reset{ID: 1, Tenant: tenant, Cuts: cuts}, "", nil)
	}
}
