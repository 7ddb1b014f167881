package sync

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/sync/wire"
)

const (
	// tickEntries bounds what one tick publishes, about 0.5 MB; the rest stays in the
	// ledger until the next.
	tickEntries = wire.MaxEntries
	// urgentEntries bounds an urgent message, about 100 KB, so that the next is not
	// delayed.
	urgentEntries = 8192
	// rollOver is how long one round of the rolling snapshot takes, unless that is too
	// much traffic, and rollRest the pause between two rounds: a snapshot of one slice
	// need not be repeated at every tick.
	rollOver = 30 * time.Second
	rollRest = time.Second
	// lastRounds bounds what a leaving process publishes, in messages of tickEntries.
	lastRounds = 16
)

// outbox numbers and publishes our messages.
type outbox struct {
	seq  uint64 // of the newest message that the bus took
	sent ring
	buf  []byte // of the message being written; Publish does not keep it
	// left is what was taken from the ledger and the bus refused. Nothing more is taken
	// until it is published, so it stays one tick's worth.
	left       [][]wire.Group
	leftSince  time.Duration
	span       trace.Span // of the first of left, while it is linked to checks; else nil
	lastUrgent time.Duration
	rollAt     time.Duration // when the next slice of the rolling snapshot is due
	down       bool          // the bus refused the newest message, and that was logged
}

// unsent is the age of the oldest unpublished change, here or in the ledger.
func (b *outbox) unsent(now time.Duration, c Changes) time.Duration {
	age := c.Unsent()
	if len(b.left) > 0 {
		age = max(age, now-b.leftSince)
	}
	return age
}

// publishChanges sends all changes, and reports whether the bus took them.
func (m *Mesh) publishChanges(now time.Duration) bool {
	if m.peers.silenced(now) {
		return false
	}
	late := m.outbox.unsent(now, m.o.Counters) > HeartbeatEvery
	if _, err := m.take(now, tickEntries, true); err != nil {
		return false
	}
	if late {
		m.heartbeatSoon() // peers exclude us because the last one had a large UnsentMS
	}
	return true
}

// rollOn sends the next slice of the rolling snapshot, if one is due. Only ticks call it,
// so there is at most one slice in TickEvery.
func (m *Mesh) rollOn(now time.Duration) {
	if now < m.outbox.rollAt {
		return
	}
	groups, roundDone := m.o.Counters.Roll(int(rollOver / TickEvery))
	if roundDone {
		m.outbox.rollAt = now + rollRest
	}
	left := messages(groups)
	for len(left) > 0 {
		var err error
		if left, _, err = m.sendFirst(left, nil); err != nil {
			return // the next round repeats it
		}
	}
}

// urgent sends the changes that bring a limit near, at most every urgentEvery.
func (m *Mesh) urgent() {
	now := m.o.Now()
	if m.peers.silenced(now) {
		return
	}
	if wait := urgentEvery - (now - m.outbox.lastUrgent); m.outbox.lastUrgent > 0 && wait > 0 {
		m.due.urgent = now + wait
		return
	}
	m.outbox.lastUrgent = max(now, 1)
	if taken, err := m.take(now, urgentEntries, false); err == nil && taken >= urgentEntries {
		m.due.urgent = now + urgentEvery // there may be more
	}
}

// take publishes what is left over and then what Counters.Take gives, and returns how many
// counters that gave.
func (m *Mesh) take(now time.Duration, entries int, all bool) (taken int, err error) {
	b := &m.outbox
	if err := m.drain(); err != nil {
		return 0, err
	}
	groups := m.o.Counters.Take(entries, all)
	b.left, b.leftSince = messages(groups), now
	return countersIn(groups), m.drain()
}

// drain publishes what is left.
func (m *Mesh) drain() error {
	b := &m.outbox
	for len(b.left) > 0 {
		left, sent, err := m.sendFirst(b.left, m.publication(b.left[0]))
		if err != nil {
			return err
		}
		if b.left = left; sent {
			m.published()
		}
	}
	return nil
}

// sendFirst sends the first of some messages of counters and returns the rest, with the
// halves of the first in its place if the bus found it too large.
func (m *Mesh) sendFirst(all [][]wire.Group, span trace.Span) (left [][]wire.Group, sent bool, err error) {
	switch err := m.sendUsage("", wire.Chunk{}, all[0], span); {
	case errors.Is(err, ErrTooLarge):
		return m.halved(all), false, nil
	case err != nil:
		return all, false, err
	}
	return all[1:], true, nil
}

// halved replaces the first message, which was too large, by its halves. One of a single
// counter is dropped and counted.
func (m *Mesh) halved(left [][]wire.Group) [][]wire.Group {
	half := halves(left[0])
	if half == nil {
		count(m.metrics.errors, 1)
	}
	return append(half, left[1:]...)
}

// halves cuts a message in two; nil for a single counter.
func halves(message []wire.Group) [][]wire.Group {
	n := countersIn(message)
	if n < 2 {
		return nil
	}
	return wire.Split(message, (n+1)/2)
}

// publishAll is the last publication.
func (m *Mesh) publishAll() {
	now := m.o.Now()
	if m.peers.silenced(now) {
		return
	}
	for range lastRounds {
		if taken, err := m.take(now, tickEntries, true); err != nil || taken == 0 {
			return
		}
	}
}

// messages divides counters into messages within the caps, with sorted rows, which encode
// shortest.
func messages(groups []wire.Group) [][]wire.Group {
	for i := range groups {
		groups[i].Sort()
	}
	return wire.Split(groups, wire.MaxEntries)
}

// sendUsage sends one message of counters, with the context of span if that is not nil.
func (m *Mesh) sendUsage(of string, chunk wire.Chunk, groups []wire.Group, span trace.Span) error {
	u := wire.Usage{
		From: m.o.Self, Seq: m.outbox.seq + 1, TimeUS: m.o.TimeUS(),
		Origin: of, Chunk: chunk, Groups: groups,
	}
	if of != "" {
		u.OriginTimeUS, _ = m.o.Counters.ClockUS(of, m.o.Now())
	}
	kind := kindUsage
	if chunk.Snapshot != 0 {
		kind = kindSnapshot
	}
	m.outbox.buf = wire.AppendUsage(m.outbox.buf[:0], &u)
	return m.publish(kind, SubjectUsage+m.o.Self.Region, u.TimeUS, span)
}

// publish publishes the buffer under the next number. The number is used up only if the bus
// accepts the message, so that a refusal is no gap for peers.
func (m *Mesh) publish(kind, subject string, timeUS int64, span trace.Span) error {
	b := &m.outbox
	err := m.o.Bus.Publish(subject, b.buf, header(span)...)
	m.noteSent(kind, err)
	if err != nil {
		return err
	}
	b.seq++
	b.sent.add(sending{seq: b.seq, at: max(m.o.Now(), 1), timeUS: timeUS})
	return nil
}

// noteSent counts the outcome of a message and logs when it changes. A message that is too
// large does not mean that the bus is down.
func (m *Mesh) noteSent(kind string, err error) {
	b := &m.outbox
	if errors.Is(err, ErrTooLarge) {
		if kind == kindHeartbeat || kind == kindRequest { // counters are sent in smaller messages
			count(m.metrics.errors, 1)
		}
		return
	}
	if err != nil {
		count(m.metrics.errors, 1)
		if !b.down {
			m.o.Logger.Warn("the bus takes no messages; peers receive nothing from this process", "error", err)
		}
	} else {
		count(m.metrics.published, 1, "kind", kind)
		count(m.metrics.publishedBytes, len(b.buf), "kind", kind)
		if b.down {
			m.o.Logger.Info("the bus takes messages again")
		}
	}
	b.down = err != nil
}
