package sync

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// tripsKept is how many round trips the smallest is chosen from.
const tripsKept = 8

// Peer is what is known of another process. The zero value of a field that comes
// with beats means that none came yet.
type Peer struct {
	quota.Process
	ReceivedAt time.Duration // when its newest message arrived, by Options.Now
	ClockUS    int64         // its store clock at ReceivedAt
	Seq        uint64        // number of that message
	// AckedAt is when we sent the newest of our messages that it acknowledges; 0: it
	// has not acknowledged any.
	AckedAt time.Duration
	// Heartbeats counts its heartbeats since it appeared, was last silent for longer
	// than SilentAfter, or Resync was called.
	Heartbeats int
	// Members, Topology, Weights, Unsent, Full and Key are those of its newest heartbeat.
	Members  []string
	Topology uint64
	Weights  []quota.Weight
	Unsent   time.Duration // age of its oldest change that was not published
	Full     bool
	Key      uint64 // wire.Key.Fingerprint of its ids; 0: it does not say
	// Synced: a whole snapshot of its counters was merged since it appeared, was last
	// silent for longer than SilentAfter, or Resync was called. Another process may have
	// requested it.
	Synced bool
	RTT    time.Duration // the smallest of the last eight round trips; 0: none yet
}

// peer is a Peer and what the mesh needs beside.
type peer struct {
	Peer
	receivedUS int64 // our store clock at Heard
	beatSeq    uint64
	ackedSeq   uint64
	trips      []time.Duration
	own, echo  assembly
	echoed     bool          // it has handed back what it knows of our own totals
	progress   time.Duration // when the last chunk came
}

func (p *peer) distrust() {
	p.Heartbeats, p.Synced = 0, false
	p.own.reset()
}

// beat takes what a beat says. ours is when we sent the message that it
// acknowledges, known only when ok; receivedUS is our store clock. It reports whether a
// view may depend on the difference, and what was learnt about the two clocks.
func (r *roster) beat(b *wire.Heartbeat, ours sending, ok bool, receivedUS int64, now time.Duration) (changed bool, e Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[nameOf(b.From)]
	if p == nil || p.Process != b.From || b.Seq <= p.beatSeq {
		return false, e // a later beat was faster
	}
	unsent := time.Duration(b.UnsentMS) * time.Millisecond
	changed = p.Heartbeats == 0 || p.Topology != b.Topology || p.Key != b.Key || p.Full != b.Full || late(p.Unsent) != late(unsent) ||
		!slices.Equal(p.Members, b.Members) || !slices.Equal(p.Weights, b.Weights)
	p.beatSeq = b.Seq
	p.Heartbeats++
	p.Members, p.Topology, p.Weights, p.Unsent, p.Full, p.Key = b.Members, b.Topology, b.Weights, unsent, b.Full, b.Key
	if !ok || ours.seq <= p.ackedSeq {
		return changed, e
	}
	changed = changed || p.AckedAt == 0
	ack := ackOf(b, r.self)
	p.ackedSeq, p.AckedAt = ours.seq, ours.at
	p.trip(now - ours.at - time.Duration(b.TimeUS-ack.ReceivedUS)*time.Microsecond)
	return changed, Exchange{SentUS: ours.timeUS, ReceivedUS: ack.ReceivedUS, RepliedUS: b.TimeUS, HeardUS: receivedUS}
}

// lateUnsent is how old the oldest unsent change of a process may be until its totals
// are as good as silence.
const lateUnsent = time.Second

func late(unsent time.Duration) bool { return unsent > lateUnsent }

// trip notes a round trip. A negative one is a clock that was moved meanwhile.
func (p *peer) trip(d time.Duration) {
	if d < 0 {
		return
	}
	if len(p.trips) == tripsKept {
		p.trips = slices.Delete(p.trips, 0, 1)
	}
	p.trips = append(p.trips, d)
	p.RTT = slices.Min(p.trips)
}

// ackOf is what a beat says about us; the zero Ack when it does not mention us.
func ackOf(b *wire.Heartbeat, self quota.Process) wire.Ack {
	for _, a := range b.Acks {
		if a.Process == self {
			return a
		}
	}
	return wire.Ack{}
}

// chunk notes a part of a digest and reports whether it is whole by that.
func (r *roster) chunk(from quota.Process, c wire.Chunk, echo bool, now time.Duration) (whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[nameOf(from)]
	if p == nil || p.Process != from {
		return false
	}
	p.progress = now
	if echo {
		whole = p.echo.add(c)
		p.echoed = p.echoed || whole
		return whole
	}
	if !p.own.add(c) {
		return false
	}
	p.Synced = true
	return true
}
