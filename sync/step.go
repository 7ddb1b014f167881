package sync

import "time"

// The steps of a mesh: what Run does, without its goroutine and its timer. Whoever
// takes them itself, one at a time and instead of Run, calls Begin first, Receive for
// each message, Reconnected when the bus is back, Missed when messages were dropped, and
// Advance when Due has come or when something else has been called or the totals were
// changed.
//
//	Begin ─▶ ┌ Receive, Reconnected, Missed ┐ ─▶ Leave
//	         └ Advance, at Due              ┘

// never comes after every due time.
const never = time.Duration(1<<63 - 1)

// dues is when the work that waits for its time is to be done, by Options.Now.
type dues struct {
	tick, beat, urgent, digest, catchUp time.Duration
}

// Begin is the first step.
func (m *Mesh) Begin() {
	m.started = m.o.Now()
	m.lastTick = m.started
	m.due = dues{tick: m.started + TickEvery, beat: m.started, urgent: never, digest: never, catchUp: never}
}

// Due is when Advance has to be called next, by Options.Now; it may be past.
func (m *Mesh) Due() time.Duration {
	return min(m.due.tick, m.due.beat, m.due.urgent, m.due.digest, m.due.catchUp)
}

// Advance does what is due, and what Beat, Resync and the totals have asked for.
func (m *Mesh) Advance() {
	if taken(m.o.Counters.Urgent()) {
		m.urgent()
	}
	if taken(m.beatNow) {
		m.beatSoon()
	}
	if taken(m.again) {
		m.askAll()
	}
	now := m.o.Now()
	if m.due.tick <= now {
		m.due.tick += TickEvery
		if m.due.tick <= now { // ticks that were missed are not made up for
			m.due.tick = now + TickEvery
		}
		m.tick()
	}
	if m.due.beat <= now {
		m.beat(false)
	}
	if m.due.urgent <= now {
		m.due.urgent = never
		m.urgent()
	}
	if m.due.digest <= now {
		m.due.digest = never
		m.answer()
	}
	if m.due.catchUp <= now {
		m.catchUp(now)
	}
}

// Leave is the last step: what has not been published is, and peers are told.
func (m *Mesh) Leave() {
	m.publishAll()
	m.outbox.abandonSpan()
	m.beat(true)
	m.answers.abandon()
}

// Reconnected has both sides catch up on what the bus may have lost.
func (m *Mesh) Reconnected() {
	m.restart()
	m.catchUpSoon()
}

// Missed has this process catch up on messages that were dropped on their way to Receive.
// The digest under way goes on: what we publish arrives.
func (m *Mesh) Missed() { m.catchUpSoon() }

// catchUpSoon catches up now, or as soon as the last time is catchUpEvery ago.
func (m *Mesh) catchUpSoon() {
	now := m.o.Now()
	if next := m.caughtUp + catchUpEvery; m.caughtUp > 0 && now < next {
		m.due.catchUp = next
		return
	}
	m.catchUp(now)
}

// catchUp says what there is to say, and asks everybody for a digest.
func (m *Mesh) catchUp(now time.Duration) {
	m.caughtUp, m.due.catchUp = max(now, 1), never
	m.publishChanges(now)
	m.beatSoon()
	m.askAll()
}

// taken takes what a channel holds, if it holds something.
func taken(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
