package sync

import (
	"cmp"
	"slices"
	"time"

	"github.com/regiond/regiond/sync/wire"
)

// ackFor is how long after its last message a process is still acknowledged: long
// enough that one which was silent for a moment learns how far it was heard.
const ackFor = 5 * time.Second

// beatSoon sends a beat now, or as soon as the last one is beatGap ago.
func (m *Mesh) beatSoon() {
	wait := beatGap - (m.o.Now() - m.lastBeat)
	if m.lastBeat == 0 || wait <= 0 {
		m.beat(false)
		return
	}
	m.due.beat = m.o.Now() + wait
}

// beat says that we are here, what we hear and what we believe. One that the bus
// does not take is not repeated: the next tick tries again.
func (m *Mesh) beat(leaving bool) {
	now := m.o.Now()
	m.lastBeat = max(now, 1)
	m.due.beat = now + HeartbeatEvery
	if m.roster.silenced(now) {
		return
	}
	view := m.o.View()
	b := wire.Heartbeat{
		From: m.o.Self, Seq: m.outbox.seq + 1, TimeUS: m.o.TimeUS(),
		Acks:    m.roster.acks(now),
		Members: view.Members, Topology: view.Topology, Weights: view.Weights,
		UnsentMS: m.outbox.unsent(now, m.o.Counters).Milliseconds(),
		Leaving:  leaving,
		Full:     m.o.Counters.Full(),
		Key:      m.o.Key.Fingerprint(),
	}
	m.outbox.buf = wire.AppendHeartbeat(m.outbox.buf[:0], &b)
	_ = m.publish(kindBeat, SubjectHeartbeat+m.o.Self.Region, b.TimeUS, nil) // counted and logged there
}

// acks is what we acknowledge: the processes heard lately, the latest first when
// there are more than a beat may carry.
func (r *roster) acks(now time.Duration) []wire.Ack {
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
// come with the peer's beats, so within HeartbeatEvery and a round trip; at 300 messages
// a second, urgent ones and a digest together, the ring reaches back 3.4 s.
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
