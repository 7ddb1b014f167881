package sync

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// tickEntries bounds what one tick publishes, about 0.5 MB; the rest stays in the
	// ledger until the next.
	tickEntries = wire.MaxEntries
	// urgentEntries bounds an urgent message, about 100 KB, so that the next is not
	// delayed.
	urgentEntries = 8192
	// lastRounds bounds what a leaving process publishes, in messages of tickEntries.
	lastRounds = 16
)

type outbox struct {
	seq    uint64 // of the newest message that the bus took
	number uint64 // of the newest changes
	sent   ring
	buf    []byte // of the message being written; Publish does not keep it
	// left is what was taken from the ledger and the bus refused. Nothing more is taken
	// until it is published, so it stays one tick's worth.
	left       [][]wire.Group
	leftSince  time.Duration
	leftAfter  uint64     // number before the first of them
	extra      uint64     // how many more messages than one left had at most
	span       trace.Span // of the first of left, while it is linked to checks; else nil
	lastUrgent time.Duration
	down       loglimit.Fault // the bus refused the newest message
}

// unsent is the age of the oldest unpublished change, here or in the ledger.
func (b *outbox) unsent(now time.Duration, c Counters) time.Duration {
	age := c.Unsent()
	if len(b.left) > 0 {
		age = max(age, now-b.leftSince)
	}
	return age
}

func (m *Mesh) publishChanges(now time.Duration) {
	if m.silenced() {
		return
	}
	late := m.outbox.unsent(now, m.o.Counters) > HeartbeatEvery
	if _, err := m.take(now, tickEntries, true); err == nil && late {
		m.heartbeatSoon() // peers exclude us because the last one had a large UnsentMS
	}
}

// urgent sends the changes that bring a limit near, at most every urgentEvery.
func (m *Mesh) urgent() {
	now := m.o.Now()
	if m.silenced() {
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
	groups := m.o.Counters.Take(entries, all, b.number+1)
	b.left, b.leftSince, b.leftAfter = m.messages(groups, 0), now, b.number
	return countersIn(groups), m.drain()
}

func (m *Mesh) drain() error {
	b := &m.outbox
	for len(b.left) > 0 {
		err := m.sendUsage(&wire.Usage{Number: b.number + 1, Groups: b.left[0]}, m.publication(b.left[0]))
		if errors.Is(err, ErrTooLarge) {
			// It was divided for another connection; one that stays whole is dropped, and peers miss its number.
			if parts := m.messages(b.left[0], 0); len(parts) > 1 {
				b.left = append(parts, b.left[1:]...)
				continue
			}
		} else if err != nil {
			return err
		}
		b.number++
		b.extra = max(b.extra, b.number-b.leftAfter-1)
		b.left = b.left[1:]
		b.endSpan(true)
	}
	return nil
}

func (m *Mesh) publishAll() {
	now := m.o.Now()
	if m.silenced() {
		return
	}
	for range lastRounds {
		if taken, err := m.take(now, tickEntries, true); err != nil || taken == 0 {
			return
		}
	}
}

// messages divides counters into messages within the caps and what the bus takes, each with
// so many bytes to spare.
func (m *Mesh) messages(groups []wire.Group, spare int) [][]wire.Group {
	return wire.Split(groups, max(1, m.room()-spare))
}

// room is how many bytes a message may have.
func (m *Mesh) room() int {
	if limit := m.o.Bus.Limit(); limit > 0 {
		return min(limit, wire.MaxMessage)
	}
	return wire.MaxMessage
}

// sendUsage sends one message of counters, with the context of span if that is not nil.
func (m *Mesh) sendUsage(u *wire.Usage, span trace.Span) error {
	u.TimeUS = m.o.TimeUS()
	if u.Origin != "" {
		if us, known := m.o.Counters.ClockUS(u.Origin, m.o.Now()); known {
			u.OriginTimeUS = us
		}
	}
	return m.send(u, "", span)
}

// send publishes a message under the next number, on the subject of its kind and our region,
// with what follows that. The number is used up only if the bus accepts the message, so that a
// refusal is no gap for peers.
func (m *Mesh) send(msg wire.Numbered, suffix string, span trace.Span) error {
	b := &m.outbox
	*msg.Author() = wire.Head{From: m.peers.Self, Seq: b.seq + 1}
	kind, prefix := kindOf(msg)
	if err := m.hand(kind, prefix+m.peers.Self.Region+suffix, msg, span); err != nil {
		return err
	}
	b.seq++
	b.sent.add(sending{seq: b.seq, at: max(m.o.Now(), 1), timeUS: m.o.TimeUS()})
	return nil
}

func (m *Mesh) hand(kind, subject string, msg wire.Message, span trace.Span) error {
	b, s := &m.outbox, m.secret.Load()
	s.Seal(msg)
	b.buf = s.Sign(subject, wire.Append(b.buf[:0], msg))
	err := ErrTooLarge // also for peers, whatever the bus takes
	if len(b.buf) <= wire.MaxMessage {
		err = m.o.Bus.Publish(subject, b.buf, header(span)...)
	}
	m.noteSent(kind, err)
	return err
}

// noteSent counts the outcome of a message and logs when it changes. A message that is too
// large does not mean that the bus is down.
func (m *Mesh) noteSent(kind string, err error) {
	b := &m.outbox
	if errors.Is(err, ErrTooLarge) {
		if kind != kindLoan { // which is sent in smaller messages
			m.metrics.errors.Add(1)
		}
		return
	}
	if err != nil {
		m.metrics.errors.Add(1)
		connecting := b.seq == 0 && m.o.Now()-m.started <= members.SilentAfter // peers do not miss it yet
		if !connecting && b.down.Begins() {
			m.o.Logger.Warn("the bus takes no messages; peers receive nothing from this process", "error", err)
		}
	} else {
		m.metrics.published.Add(1, "kind", kind)
		m.metrics.publishedBytes.Add(int64(len(b.buf)), "kind", kind)
		if b.down.Ends() {
			m.o.Logger.Info("the bus takes messages again")
		}
	}
}
