package sync

import (
	"slices"
	"time"

	"github.com/regiond/regiond/sync/wire"
)

// A leap takes many beats in one step. While nothing but beats is said, and all of
// them are heard, each beat leaves behind what the one before did, but for numbers
// that are one larger and times that are BeatEvery later. So whoever takes the steps
// of every process that hears another may add up so many at once:
//
//	all Resting ─▶ Leap(n) on every mesh, Opened.Leap(n) on what is under way ─▶ n·BeatEvery later
//
// What differs from beat to beat, how long each was on its way, is that of the last
// beats before the leap; the beats that follow, RestingFor of them, put it right.

// RestingFor is how many beats in a row a process must have sent, and nothing else,
// to be at rest: more than there are round trips to choose from, and for longer than
// anybody is acknowledged after it was heard last.
const RestingFor = 20

// Resting reports whether this process has done nothing but beat for RestingFor beats,
// has nothing else to do, and hears everybody it knows.
func (m *Mesh) Resting() bool {
	if !m.Idle() || m.due.urgent != never || m.due.digest != never || m.due.catchUp != never || m.answers.asked || m.outbox.down {
		return false
	}
	return m.regular() && m.roster.resting(m.o.Now())
}

// regular reports whether the last messages were beats, one every BeatEvery.
func (m *Mesh) regular() bool {
	b := &m.outbox
	if b.seq < RestingFor || m.due.beat != m.lastBeat+BeatEvery {
		return false
	}
	for i := range uint64(RestingFor) {
		s, ok := b.sent.find(b.seq - i)
		if !ok || s.at != m.lastBeat-time.Duration(i)*BeatEvery {
			return false
		}
	}
	return true
}

// resting reports whether everybody is heard, and was for so many beats.
func (r *roster) resting(now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rivalHeard != 0 && now-r.rivalHeard <= 2*SilentAfter {
		return false
	}
	for _, p := range r.peers {
		if now-p.Heard > SilentAfter || p.beatSeq != p.Seq || p.Beats < RestingFor || p.ackedSeq == 0 {
			return false
		}
	}
	return true
}

// Leap does what so many beats would have, of this process and of all that it hears.
// Now and TimeUS have gone on by that many BeatEvery when the next step is taken.
func (m *Mesh) Leap(beats uint64) {
	b, by := &m.outbox, time.Duration(beats)*BeatEvery
	last, _ := b.sent.find(b.seq)
	for i := min(beats, ringSize); i > 0; i-- {
		later := time.Duration(beats-i+1) * BeatEvery
		b.sent.add(sending{seq: b.seq + beats - i + 1, at: last.at + later, timeUS: last.timeUS + later.Microseconds()})
	}
	b.seq += beats
	m.lastBeat += by
	m.due.beat += by
	m.roster.leap(beats)
}

func (r *roster) leap(beats uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := time.Duration(beats) * BeatEvery
	for _, p := range r.peers {
		p.Seq += beats
		p.beatSeq += beats
		p.ackedSeq += beats
		p.Beats += int(beats)
		p.Heard += by
		p.Acked += by
		p.ClockUS += by.Microseconds()
		p.receivedUS += by.Microseconds()
	}
}

// Beat reports whether the message is a beat that could be read.
func (o *Opened) Beat() bool { return o.beat != nil && o.err == nil }

// Leap is the beat of the same author so many beats later.
func (o *Opened) Leap(beats uint64) *Opened {
	later, b := *o, *o.beat
	by := (time.Duration(beats) * BeatEvery).Microseconds()
	b.Seq += beats
	b.TimeUS += by
	b.Acks = slices.Clone(b.Acks)
	for i := range b.Acks {
		a := &b.Acks[i]
		*a = wire.Ack{Process: a.Process, Seq: a.Seq + beats, ReceivedUS: a.ReceivedUS + by}
	}
	later.beat = &b
	return &later
}
