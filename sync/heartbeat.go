package sync

import (
	"cmp"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

// ackFor is how long after its last message a process is still acknowledged: longer than
// a short silence, so that the process learns which of its messages arrived.
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

// sendHeartbeat publishes a heartbeat: acknowledgements, our view, what is unpublished. One
// that the bus refuses is not repeated; the next is due in HeartbeatEvery.
func (m *Mesh) sendHeartbeat(leaving bool) {
	now := m.o.Now()
	m.lastHeartbeat = max(now, 1)
	m.due.heartbeat = now + HeartbeatEvery
	if m.silenced() {
		return
	}
	view := m.o.View()
	b := wire.Heartbeat{
		TimeUS: m.o.TimeUS(), Acks: m.peers.acks(now),
		Members: view.Members, Topology: view.Topology, Weights: view.Weights,
		UnsentMS: m.outbox.unsent(now, m.o.Counters).Milliseconds(),
		Leaving:  leaving,
		Full:     m.o.Counters.Full(),
		Key:      m.o.Key.Fingerprint(),
		Number:   m.outbox.number,
	}
	_ = m.send(&b, "", nil) // counted and logged there
}

// acks acknowledges the processes received from within ackFor, the latest first: a
// heartbeat carries at most wire.MaxAcks.
func (r *peerTable) acks(now time.Duration) []wire.Ack {
	r.Lock()
	defer r.Unlock()
	var recent []*peer
	for _, p := range r.all() {
		if now-p.ReceivedAt <= ackFor {
			recent = append(recent, p)
		}
	}
	slices.SortFunc(recent, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(b.ReceivedAt, a.ReceivedAt), members.Compare(a.Process, b.Process))
	})
	recent = recent[:min(len(recent), wire.MaxAcks)]
	acks := make([]wire.Ack, len(recent))
	for i, p := range recent {
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

// noteHeartbeat applies a heartbeat. ours is our message that it acknowledges, valid only
// when ok; receivedUS is our store clock. It reports whether anything that a view depends
// on has changed, and the exchange of times with the peer.
func (r *peerTable) noteHeartbeat(b *wire.Heartbeat, ours sending, ok bool, receivedUS int64, now time.Duration) (changed bool, e Exchange) {
	r.Lock()
	defer r.Unlock()
	p := r.find(b.From)
	if p == nil || b.Seq <= p.newest[kindHeartbeat] {
		return false, e // a later heartbeat overtook it
	}
	unsent := time.Duration(b.UnsentMS) * time.Millisecond
	changed = p.Heartbeats == 0 || p.Topology != b.Topology || p.Key != b.Key || p.Full != b.Full || late(p.Unsent) != late(unsent) ||
		!slices.Equal(p.Members, b.Members) || !slices.Equal(p.Weights, b.Weights)
	p.changes.named(b.Number, now)
	p.noteMissing()
	p.newest[kindHeartbeat] = b.Seq
	p.Heartbeats++
	p.Members, p.Topology, p.Weights, p.Unsent, p.Full, p.Key = b.Members, b.Topology, b.Weights, unsent, b.Full, b.Key
	if !ok || ours.seq <= p.ackedSeq {
		return changed, e
	}
	changed = changed || p.AckedAt == 0
	ack := ackOf(b, r.Self)
	p.ackedSeq, p.AckedAt = ours.seq, ours.at
	p.trip(now - ours.at - time.Duration(b.TimeUS-ack.ReceivedUS)*time.Microsecond)
	return changed, Exchange{SentUS: ours.timeUS, ReceivedUS: ack.ReceivedUS, RepliedUS: b.TimeUS, ReturnedUS: receivedUS}
}

func late(unsent time.Duration) bool { return unsent > members.BehindAfter }

// trip notes a round trip. A negative one is ignored: a clock was set meanwhile.
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

// ackOf is the heartbeat's acknowledgement of our messages; zero when it has none.
func ackOf(b *wire.Heartbeat, self quota.Process) wire.Ack {
	for _, a := range b.Acks {
		if a.Process == self {
			return a
		}
	}
	return wire.Ack{}
}
