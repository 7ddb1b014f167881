package sync

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/sync/wire"
)

const (
	// tickEntries bounds what one tick publishes, about 0.5 MB; the rest waits for the
	// next, in the ledger.
	tickEntries = wire.MaxEntries
	// urgentEntries is about 100 KB: what is urgent shall not queue behind itself.
	urgentEntries = 8192
	// rollOver is how long one round of the rolling snapshot takes, unless that is too
	// much traffic, and rollRest the pause between two rounds: where one slice holds
	// everything, nothing is gained by repeating it at every tick.
	rollOver = 30 * time.Second
	rollRest = time.Second
	// lastRounds bounds what a leaving process still publishes.
	lastRounds = 16
)

// outbox is where our messages get their numbers and leave from.
type outbox struct {
	seq  uint64 // of the newest message that the bus took
	sent ring
	buf  []byte // of the message being written; Publish does not keep it
	// left is what was taken from the ledger and the bus did not take. Nothing more
	// is taken before it is gone, so it stays one tick's worth.
	left       [][]wire.Group
	leftSince  time.Duration
	span       trace.Span // of the first of left, while it is linked to checks; else nil
	lastUrgent time.Duration
	rollAt     time.Duration // when the next slice of the rolling snapshot is due
	down       bool          // the bus did not take the newest message, and the log says so
}

// unsent is the age of the oldest change that peers were not told, wherever it waits.
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
		m.heartbeatSoon() // the last heartbeat said that changes wait; until the next, peers count us out
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
			return // it comes round again
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

// take publishes what the ledger missing published, what was left over first, and
// says how much that was.
func (m *Mesh) take(now time.Duration, entries int, all bool) (taken int, err error) {
	b := &m.outbox
	if err := m.drain(); err != nil {
		return 0, err
	}
	groups := m.o.Counters.Take(entries, all)
	b.left, b.leftSince = messages(groups), now
	return countersIn(groups), m.drain()
}

// drain publishes what was taken.
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

// sendFirst sends the first of some messages of counters and returns those that are left
// then: without it, or with its halves in its place if the bus found it too large.
func (m *Mesh) sendFirst(all [][]wire.Group, span trace.Span) (left [][]wire.Group, sent bool, err error) {
	switch err := m.sendUsage("", wire.Chunk{}, all[0], span); {
	case errors.Is(err, ErrTooLarge):
		return m.halved(all), false, nil
	case err != nil:
		return all, false, err
	}
	return all[1:], true, nil
}

// halved is what is left to send once the bus has found the first message too large:
// that in two, or without it when it is a single total, which is counted.
func (m *Mesh) halved(left [][]wire.Group) [][]wire.Group {
	half := halves(left[0])
	if half == nil {
		m.metrics.notSent()
	}
	return append(half, left[1:]...)
}

// halves cuts a message in two; none when it is a single total.
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

// messages divides counters among messages that stay within the caps, and puts their
// rows in the order in which they are shortest.
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

// publish hands over what stands in the buffer under the next number. The number
// is spent only when the bus took the message, so a refusal here is no gap there.
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

// told counts what became of a message and logs when that changes. One that is too
// large says nothing of the next.
func (m *Mesh) noteSent(kind string, err error) {
	b := &m.outbox
	if errors.Is(err, ErrTooLarge) {
		if kind == kindHeartbeat || kind == kindRequest { // counters are sent in smaller messages
			m.metrics.notSent()
		}
		return
	}
	if err != nil {
		m.metrics.notSent()
		if !b.down {
			m.o.Logger.Warn("the bus takes no messages; peers do not hear this process", "error", err)
		}
	} else {
		m.metrics.sent(kind, len(b.buf))
		if b.down {
			m.o.Logger.Info("the bus takes messages again")
		}
	}
	b.down = err != nil
}
