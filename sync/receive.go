package sync

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// Receive takes one message: as a whole, or not at all. It is a step, see Begin.
func (m *Mesh) Receive(msg Message) {
	prefix, region := split(msg.Subject)
	if prefix != SubjectSnapshot && !m.o.Known(region) {
		m.refuse("", reasonUnknownRegion, fmt.Errorf("region %.80q is not in the topology", region))
		return
	}
	span := m.consumption(msg)
	err := m.secret.Load().Verify(msg.Subject, msg.Data)
	if err == nil {
		region, err = m.dispatch(prefix, region, msg, span)
	}
	reason := ""
	if err != nil {
		reason = reasonOf(err)
		m.refuse(region, reason, err)
	}
	concluded(span, err, reason)
}

// split returns which kind of subject this is, and the region of its author, or of whom a
// request is for.
func split(subject string) (prefix, region string) {
	if rest, ok := strings.CutPrefix(subject, SubjectLoan); ok {
		region, _, _ = strings.Cut(rest, ".")
		return SubjectLoan, region
	}
	at := strings.LastIndexByte(subject, '.') + 1
	return subject[:at], subject[at:]
}

// dispatch reads a message and applies it. It returns the region that sent it, if that is known.
func (m *Mesh) dispatch(prefix, region string, msg Message, span trace.Span) (string, error) {
	size := len(msg.Data)
	switch prefix {
	case SubjectUsage:
		u, err := wire.Decode[*wire.Usage](msg.Data)
		if err != nil {
			return region, err
		}
		return region, m.onUsage(region, u, size, span)
	case SubjectHeartbeat:
		b, err := wire.Decode[*wire.Heartbeat](msg.Data)
		if err != nil {
			return region, err
		}
		return region, m.onHeartbeat(region, b, size)
	case SubjectSnapshot:
		if region != m.peers.Self.Region {
			return region, &refusal{string(wire.ReasonAuthor), fmt.Sprintf("a request to region %.80q", region)}
		}
		r, err := wire.Decode[*wire.SnapshotRequest](msg.Data)
		if err != nil {
			return "", err
		}
		return m.onRequest(r, size, span)
	case SubjectLoan:
		return region, m.onLoans(region, msg)
	case SubjectReset:
		return region, m.onReset(region, msg.Data)
	case SubjectTop:
		return region, m.onTop(region, msg.Data)
	}
	return region, &refusal{string(wire.ReasonMalformed), fmt.Sprintf("subject %.80q is none of ours", msg.Subject)}
}

// onUsage merges counters.
func (m *Mesh) onUsage(region string, u *wire.Usage, size int, span trace.Span) error {
	now, receivedUS := m.o.Now(), m.o.TimeUS()
	if ignored, err := m.check(region, u.From, u.Seq, nil, now); ignored || err != nil {
		return err
	}
	if err := m.fold(region, u, receivedUS, now); err != nil {
		return err
	}
	kind := kindUsage
	if u.Chunk.Snapshot != 0 {
		kind = kindSnapshot
	}
	m.received(kind, region, size)
	a := m.peers.note(u.From, u.Seq, u.TimeUS, receivedUS, now)
	a.gap = u.Number > 0 && m.peers.arrived(u.From, u.Number, now)
	if span != nil {
		span.SetAttributes(attribute.String(attrPeer, u.From.Region), attribute.Int64(attrSeq, int64(u.Seq)),
			attribute.Int(attrCounters, countersIn(u.Groups)), attribute.Bool("regiond.gap", a.gap))
	}
	m.arrived(u.From, a)
	if u.Chunk.Snapshot != 0 && m.peers.chunk(u.From, &u.Chunk, now) {
		m.metrics.merged.Add(1, "region", region)
		m.peers.Signal()
	}
	return nil
}

// fold merges the counters of a message. Those of a region are numbered by its store's
// clock: that of the message, or what its author knows of it.
func (m *Mesh) fold(region string, u *wire.Usage, receivedUS int64, now time.Duration) error {
	clockUS := m.peers.clock(u.From, u.Seq, u.TimeUS, now)
	switch {
	case u.Origin == "" && u.Chunk.Snapshot == 0 && m.peers.follows(u.From, u.Number):
		return m.o.Counters.Fold(region, clockUS, now, u.Groups)
	case u.Origin == "":
		return m.o.Counters.FoldWhole(region, clockUS, now, u.Groups)
	case u.Origin == region || u.OriginTimeUS == 0 && len(u.Groups) > 0:
		return &refusal{string(wire.ReasonRange), "origin is the author's own region, or has no clock"}
	}
	for i := range u.Groups {
		u.Groups[i].Growth = nil // only its own region is believed how a counter grew
	}
	switch {
	case len(u.Groups) == 0:
		return nil
	case u.Origin == m.peers.Self.Region:
		return m.o.Counters.FoldReturned(receivedUS, now, u.Groups) // numbered by our own clock
	case m.peers.receivesFrom(u.Origin, now):
		return nil // from itself
	}
	return m.o.Counters.FoldWhole(u.Origin, u.OriginTimeUS+clockUS-u.TimeUS, now, u.Groups)
}

// onHeartbeat applies a heartbeat.
func (m *Mesh) onHeartbeat(region string, b *wire.Heartbeat, size int) error {
	now, receivedUS := m.o.Now(), m.o.TimeUS()
	if ignored, err := m.check(region, b.From, b.Seq, b, now); ignored || err != nil {
		return err
	}
	m.received(kindHeartbeat, region, size)
	if b.Leaving {
		m.peers.leave(b.From, b.Number, now)
		m.peers.Signal()
		return nil
	}
	m.arrived(b.From, m.peers.note(b.From, b.Seq, b.TimeUS, receivedUS, now))
	ours, ok := m.outbox.sent.find(ackOf(b, m.peers.Self).Seq)
	changed, e := m.peers.noteHeartbeat(b, ours, ok, receivedUS, now)
	if changed {
		m.peers.Signal()
	}
	if e.SentUS != 0 && m.o.OnExchange != nil {
		m.o.OnExchange(b.From, e)
	}
	return nil
}

// check refuses a message with a wrong author. It ignores our own, which a bus may return, and
// those of a duplicate that has not proven that it is present: they may be records of our own
// former life, sent again by somebody who has no key. b is the heartbeat that the message is,
// or nil.
func (m *Mesh) check(region string, from quota.Process, seq uint64, b *wire.Heartbeat, now time.Duration) (ignored bool, err error) {
	if err := wire.CheckAuthor(region, from.Region); err != nil {
		return false, err
	}
	if from == m.peers.Self {
		return true, nil
	}
	if reason := m.peers.admit(from, seq, now); reason != "" {
		return false, &refusal{reason, fmt.Sprintf("from %s, boot %d, number %d", from.Instance, from.Boot, seq)}
	}
	if m.peers.present(from, seq) || b != nil && m.proves(b, now) {
		return false, nil
	}
	return true, nil
}

// proves reports whether a heartbeat was written lately: it acknowledges a message that we
// sent lately.
func (m *Mesh) proves(b *wire.Heartbeat, now time.Duration) bool {
	ours, ok := m.outbox.sent.find(ackOf(b, m.peers.Self).Seq)
	return ok && now-ours.at <= ackFor
}

// arrived acts on a change in the author's state.
func (m *Mesh) arrived(from quota.Process, a arrival) {
	if duplicate, ok := m.Duplicate(); ok && duplicate == from {
		if a.newcomer {
			m.o.Logger.Error("another process uses our region and instance name and was here first; give each process an --instance of its own",
				"region", from.Region, "instance", from.Instance, "boot", from.Boot)
			m.peers.Signal()
		}
		return
	}
	if a.newcomer {
		m.metrics.gaps.Add(0, "region", from.Region)
		m.metrics.merged.Add(0, "region", from.Region)
		m.o.Logger.Info("a new process appeared", "region", from.Region, "instance", from.Instance, "boot", from.Boot)
		m.heartbeatSoon() // it must not wait for the regular one
	}
	if a.newcomer || a.back {
		m.peers.Signal()
		m.sendRequests(m.o.Now())
		m.publishResets()
	}
	if a.gap {
		m.metrics.gaps.Add(1, "region", from.Region)
	}
}

// received counts a message that was used.
func (m *Mesh) received(kind, region string, size int) {
	m.metrics.received.Add(1, "kind", kind, "region", region)
	m.metrics.receivedBytes.Add(int64(size), "kind", kind, "region", region)
}

// refuse counts a refused message, and logs one of each region now and then.
func (m *Mesh) refuse(region, reason string, err error) {
	m.metrics.refusals.Add(1, "reason", reason)
	m.refusals.Warn(m.o.Logger, time.Time{}.Add(m.o.Now()), region, "message refused",
		"region", region, "reason", reason, "error", err)
}

// refusal is a message that the mesh refuses; wire and the ledger have their own.
type refusal struct{ reason, text string }

func (r *refusal) Error() string { return r.text }

// Reason is the label of the metric.
func (r *refusal) Reason() string { return r.reason }

func reasonOf(err error) string {
	var unreadable *wire.Error
	if errors.As(err, &unreadable) {
		return string(unreadable.Reason)
	}
	var named interface{ Reason() string }
	if errors.As(err, &named) {
		return named.Reason()
	}
	return reasonFold
}
