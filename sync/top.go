package sync

import (
	"fmt"

	"github.com/regiond/regiond/sync/wire"
)

// SendTop has a payload published for all other processes, sealed, in place of one that still
// waits; it is no longer the caller's. It may be called from anywhere. What the bus does not take
// is dropped: the next takes its place anyway.
func (m *Mesh) SendTop(payload []byte) { m.top.Store(&payload) }

func (m *Mesh) publishTop() {
	payload := m.top.Swap(nil)
	if payload == nil || m.silenced() {
		return
	}
	t := wire.Top{From: m.peers.Self, Seq: m.outbox.seq + 1}
	t.Sealed = m.secret.Load().SealTop(t.Seq, *payload)
	m.outbox.buf = wire.Append(m.outbox.buf[:0], &t)
	_ = m.publish(kindTop, SubjectTop+m.peers.Self.Region, m.o.TimeUS(), nil) // it was counted
}

// onTop hands on the newest payload of a process.
func (m *Mesh) onTop(region string, data []byte) error {
	t, err := wire.Decode[*wire.Top](data)
	if err != nil {
		return err
	}
	if ignored, err := m.check(region, t.From, t.Seq, nil, m.o.Now()); ignored || err != nil {
		return err
	}
	payload, err := m.secret.Load().UnsealTop(t.Seq, t.Sealed)
	if err != nil {
		return err
	}
	if !m.peers.newest(t.From, t.Seq, func(p *peer) *uint64 { return &p.topSeq }) {
		return &refusal{reasonStale, fmt.Sprintf("counts from %s, boot %d, number %d, which are not newer than the last", t.From.Instance, t.From.Boot, t.Seq)}
	}
	if m.receivers.Top != nil {
		if err := m.receivers.Top(t.From, payload); err != nil {
			return &refusal{string(wire.ReasonRange), err.Error()}
		}
	}
	m.received(kindTop, region, len(data))
	return nil
}
