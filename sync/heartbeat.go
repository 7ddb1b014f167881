package sync

import (
	"cmp"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// ackFor is how long after its last message a process is still acknowledged: long
// enough that one which was silent for a moment learns how far it was heard.
const ackFor = 5 * time.Second

// heartbeatSoon sends a heartbeat now, or as soon as the last one is heartbeatGap ago.
func (m *Mesh) heartbeatSoon() {
	wait := heartbeatGap - (m.o.Now() - m.lastHeartbeat)
	if m.lastHeartbeat == 0 || wait <= 0 {
		m.sendHeartbeat(false)
		return
	}
	m.due.heartbeat = m.o.Now() + wait
}

// heartbeat says that we are here, what we hear and what we believe. One that the bus
// does not take is not repeated: the next tick tries again.
func (m *Mesh) sendHeartbeat(leaving bool) {
	now := m.o.Now()
	m.lastHeartbeat = max(now, 1)
	m.due.heartbeat = now + HeartbeatEvery
	if m.peers.silenced(now) {
		return
	}
	view := m.o.View()
	b := wire.Heartbeat{
		From: m.o.Self, Seq: m.outbox.seq + 1, TimeUS: m.o.TimeUS(),
		Acks:    m.peers.acks(now),
		Members: view.Members, Topology: view.Topology, Weights: view.Weights,
		UnsentMS: m.outbox.unsent(now, m.o.Counters).Milliseconds(),
		Leaving:  leaving,
		Full:     m.o.Counters.Full(),
		Key:      m.o.Key.Fingerprint(),
	}
	m.outbox.buf = wire.AppendHeartbeat(m.outbox.buf[:0], &b)
	_ = m.publish(kindHeartbeat, SubjectHeartbeat+m.o.Self.Region, b.TimeUS, nil) // counted and logged there
}

// acks is what we acknowledge: the processes heard lately, the latest first when
// there are more than a heartbeat may carry.
func (r *peerTable) acks(now time.Duration) []wire.Ack {
	r.mu.Lock()
	defer r.mu.Unlock()
	var heard []*peer
	for _, p := range r.peers {
		if now-p.ReceivedAt <= ackFor {
			heard = append(heard, p)
		}
	}
	slices.SortFunc(heard, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(b.ReceivedAt, a.ReceivedAt), compareProcess(a.Process, b.Process))
	})
	heard = heard[:min(len(heard), wire.MaxAcks)]
	acks := make([]wire.Ack, len(heard))
	for i, p := range heard {
		acks[i] = wire.Ack{Process: p.Process, Seq: p.Seq, ReceivedUS: p.receivedUS}
	}
	return acks
}

// ringSize is how many of our messages are remembered for acknowledgements. They
// come with the peer's heartbeats, so within HeartbeatEvery and a round trip; at 300 messages
// a second, urgent ones and a snapshot together, the ring reaches back 3.4 s.
const ringSize = 1024

// ring remembers when our latest messages were sent. Numbers have no holes, so
// each has its place.
type ring [ringSize]sending

type sending struct {
	seq    uint64
	at     time.Duration
	timeUS int64
}

func (r *ring) add(s sending) { r[s.seq%ringSize] = s }

func (r *ring) find(seq uint64) (sending, bool) {
	s := r[seq%ringSize]
	return s, s.seq == seq && seq != 0
}

// heartbeat takes what a heartbeat says. ours is when we sent the message that it
// acknowledges, known only when ok; receivedUS is our store clock. It reports whether a
// view may depend on the difference, and what was learnt about the two clocks.
func (r *peerTable) noteHeartbeat(b *wire.Heartbeat, ours sending, ok bool, receivedUS int64, now time.Duration) (changed bool, e Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[nameOf(b.From)]
	if p == nil || p.Process != b.From || b.Seq <= p.heartbeatSeq {
		return false, e // a later heartbeat was faster
	}
	unsent := time.Duration(b.UnsentMS) * time.Millisecond
	changed = p.Heartbeats == 0 || p.Topology != b.Topology || p.Key != b.Key || p.Full != b.Full || late(p.Unsent) != late(unsent) ||
		!slices.Equal(p.Members, b.Members) || !slices.Equal(p.Weights, b.Weights)
	p.heartbeatSeq = b.Seq
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

// lateUnsent is how old the oldest unsent change of a process may be until its counters
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

// ackOf is what a heartbeat says about us; the zero Ack when it does not mention us.
func ackOf(b *wire.Heartbeat, self quota.Process) wire.Ack {
	for _, a := range b.Acks {
		if a.Process == self {
			return a
		}
	}
	return wire.Ack{}
}
