package sync

import (
	"fmt"

	"github.com/regiond/regiond/sync/wire"
)

// maxResetsQueued bounds the resets that wait for the goroutine of Run.
const maxResetsQueued = 256

// SendReset has a message about a reset published for all regions, siblings too. It may be
// called from anywhere and never waits. What the bus does not take is dropped: whoever waits for
// an answer sends again.
func (m *Mesh) SendReset(r wire.Reset) {
	select {
	case m.resets <- r:
	default:
		m.metrics.errors.Add(1)
	}
}

// publishReset seals and publishes one message.
func (m *Mesh) publishReset(r wire.Reset) {
	if m.silenced() {
		return
	}
	r.From, r.Seq, r.Sealed = m.peers.Self, m.outbox.seq+1, m.secret.Load().SealTenant(r.ID, r.Tenant)
	m.outbox.buf = wire.Append(m.outbox.buf[:0], &r)
	_ = m.publish(kindReset, SubjectReset+m.peers.Self.Region, m.o.TimeUS(), nil) // it was counted
}

// publishResets gives a process that was not received until now the cuts of all tenants: it
// may have started since, or been cut off.
func (m *Mesh) publishResets() {
	if m.o.Resets == nil {
		return
	}
	for tenant, cuts := range m.o.Resets() {
		m.publishReset(wire.Reset{ID: 1, Tenant: tenant, Cuts: cuts})
	}
}

// onReset hands on a message about a reset. What is late, or comes again, asks nobody to delete
// anything: only the newest message of a process that is received does, and it names lives of
// processes. Cuts are facts, true for ever.
func (m *Mesh) onReset(region string, data []byte) error {
	r, err := wire.Decode[*wire.Reset](data)
	if err != nil {
		return err
	}
	if ignored, err := m.check(region, r.From, r.Seq, nil, m.o.Now()); ignored || err != nil {
		return err
	}
	if r.Tenant, err = m.secret.Load().UnsealTenant(r.ID, r.Sealed); err != nil {
		return err
	}
	if len(r.To) > 0 && !m.peers.newest(r.From, r.Seq, func(p *peer) *uint64 { return &p.resetSeq }) {
		return &refusal{reasonStale, fmt.Sprintf("a reset from %s, boot %d, number %d, which is not newer than the last", r.From.Instance, r.From.Boot, r.Seq)}
	}
	m.received(kindReset, region, len(data))
	if m.receivers.Reset != nil {
		m.receivers.Reset(r)
	}
	return nil
}
