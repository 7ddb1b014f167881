package sync

import (
	"errors"
	"slices"
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
	if prefix != SubjectSnapshot && !m.known(region) {
		m.refuse("", unknownRegion(region))
		return
	}
	span := m.consumption(msg)
	region, err := m.apply(prefix, region, msg, span)
	if err != nil {
		m.refuse(region, err)
	}
	concluded(span, err, reasonOf(err))
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

// apply reads a message and applies it. It returns the region that sent it, if that is known.
func (m *Mesh) apply(prefix, region string, msg Message, span trace.Span) (string, error) {
	if err := m.secret.Load().Verify(msg.Subject, msg.Data); err != nil {
		return region, err
	}
	if prefix == SubjectSnapshot && region != m.peers.Self.Region {
		return region, wire.Refuse(wire.ReasonAuthor, "a request to region %.80q", region)
	}
	read, err := wire.Decode[wire.Message](msg.Data)
	if err != nil {
		return region, err
	}
	if kind, expected := kindOf(read); prefix != expected {
		return region, wire.Refuse(wire.ReasonMalformed, "a message of kind %s under subject %.80q", kind, msg.Subject)
	}
	if r, ok := read.(*wire.SnapshotRequest); ok {
		return m.onRequest(r, len(msg.Data), span)
	}
	return region, m.onNumbered(region, read.(wire.Numbered), msg, span)
}

// onNumbered applies any message but a request, and counts it if it was used.
func (m *Mesh) onNumbered(region string, n wire.Numbered, msg Message, span trace.Span) (err error) {
	now := m.o.Now()
	if ignored, err := m.check(region, n, now); ignored || err != nil {
		return err
	}
	if err := m.secret.Load().Unseal(n); err != nil {
		return err
	}
	switch n := n.(type) {
	case *wire.Usage:
		err = m.onUsage(region, n, now, span)
	case *wire.Heartbeat:
		m.onHeartbeat(n, now)
	case *wire.Loans:
		err = m.onLoans(n, strings.TrimPrefix(msg.Subject, SubjectLoan+region+"."))
	case *wire.Reset:
		err = m.onReset(n)
	case *wire.Top:
		if err = m.peers.checkNewest(n); err == nil {
			err = handOn(m.receivers.Top, n.From, n.Payload)
		}
	case *wire.Overrides: // may be repeated or late: of two versions the larger holds
		err = handOn(m.receivers.Overrides, n.From, n.Payload)
	}
	if err == nil {
		kind, _ := kindOf(n)
		m.received(kind, region, len(msg.Data))
	}
	return err
}

func (m *Mesh) onUsage(region string, u *wire.Usage, now time.Duration, span trace.Span) error {
	receivedUS := m.o.TimeUS()
	if err := m.fold(region, u, receivedUS, now); err != nil {
		return err
	}
	a := m.peers.note(u.From, u.Seq, u.Number, u.TimeUS, receivedUS, now)
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
	clockUS, follows := m.peers.standing(u, now)
	switch {
	case u.Origin == "":
		return m.o.Counters.Fold(region, clockUS, now, u.Groups, u.Chunk.Snapshot != 0 || !follows)
	case u.Origin == region || u.OriginTimeUS == 0 && len(u.Groups) > 0:
		return wire.Refuse(wire.ReasonRange, "origin is the author's own region, or has no clock")
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
	return m.o.Counters.Fold(u.Origin, u.OriginTimeUS+clockUS-u.TimeUS, now, u.Groups, true)
}

func (m *Mesh) onHeartbeat(b *wire.Heartbeat, now time.Duration) {
	if b.Leaving {
		m.peers.leave(b.From, b.Number, now)
		m.peers.Signal()
		return
	}
	receivedUS := m.o.TimeUS()
	m.arrived(b.From, m.peers.note(b.From, b.Seq, 0, b.TimeUS, receivedUS, now))
	ours, ok := m.outbox.sent.find(ackOf(b, m.peers.Self).Seq)
	changed, e := m.peers.noteHeartbeat(b, ours, ok, receivedUS, now)
	if changed {
		m.peers.Signal()
	}
	if e.SentUS != 0 && m.o.OnExchange != nil {
		m.o.OnExchange(b.From, e)
	}
}

// onLoans hands on what another region sends about loans. What is late, or comes again,
// changes nothing: a later message has newer wants, and the rest is sent again.
func (m *Mesh) onLoans(l *wire.Loans, to string) error {
	directed := to != EveryRegion
	switch {
	case directed && to != m.peers.Self.Region:
		return wire.Refuse(wire.ReasonAuthor, "a loan for region %.80q", to)
	case directed && len(l.Wants) > 0, !directed && len(l.Grants)+len(l.Returns) > 0:
		return wire.Refuse(wire.ReasonAuthor, "wants are for all regions, grants and returns for one")
	}
	for i := range l.Wants {
		if w := &l.Wants[i]; w.Partition != nil && m.o.Key.LoansID(w.Partition) != w.PartitionID {
			return wire.Refuse(wire.ReasonRange, "a want names another partition than its id")
		}
	}
	err := m.peers.checkNewest(l)
	if err == nil && m.receivers.Loans != nil {
		m.receivers.Loans(l)
	}
	return err
}

// onReset hands on a message about a reset. What is late, or comes again, asks nobody to delete
// anything: only the newest message of a process that is received does, and it names lives of
// processes. Cuts are facts, true for ever.
func (m *Mesh) onReset(r *wire.Reset) (err error) {
	if len(r.To) > 0 {
		err = m.peers.checkNewest(r)
	}
	if err == nil && m.receivers.Reset != nil {
		m.receivers.Reset(r)
	}
	return err
}

// handOn gives a payload to its receiver, if there is one, whose error refuses it.
func handOn(to func(quota.Process, []byte) error, from quota.Process, payload []byte) error {
	if to == nil {
		return nil
	}
	if err := to(from, payload); err != nil {
		return wire.Refuse(wire.ReasonRange, "%w", err)
	}
	return nil
}

// check refuses a message with a wrong author. It ignores our own, which a bus may return, and
// those of a duplicate that has not proven that it is present: they may be records of our own
// former life, sent again by somebody who has no key.
func (m *Mesh) check(region string, n wire.Numbered, now time.Duration) (ignored bool, err error) {
	from, seq := n.Author().From, n.Author().Seq
	if from.Region != region {
		return false, wire.Refuse(wire.ReasonAuthor, "the subject is of region %.80q, from.region is %.80q", region, from.Region)
	}
	if from == m.peers.Self {
		return true, nil
	}
	present, reason := m.peers.admit(from, seq, now)
	if reason != "" {
		return false, wire.Refuse(reason, "from %s, boot %d, number %d", from.Instance, from.Boot, seq)
	}
	b, ok := n.(*wire.Heartbeat)
	return !present && (!ok || !m.proves(b, now)), nil
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

func (m *Mesh) received(kind, region string, size int) {
	m.metrics.received.Add(1, "kind", kind, "region", region)
	m.metrics.receivedBytes.Add(int64(size), "kind", kind, "region", region)
}

// refuse counts a refused message, and logs one of each region now and then.
func (m *Mesh) refuse(region string, err error) {
	m.metrics.refusals.Add(1, "reason", reasonOf(err))
	m.refusals.Warn(m.o.Logger, time.Time{}.Add(m.o.Now()), region, "message refused",
		"region", region, "reason", reasonOf(err), "error", err)
}

func (m *Mesh) known(region string) bool { return slices.Contains(m.o.Regions(), region) }

func unknownRegion(region string) error {
	return wire.Refuse(wire.ReasonUnknownRegion, "region %.80q is not in the topology", region)
}

// reasonOf is why a message was refused; "" without an error.
func reasonOf(err error) string {
	if refused, ok := errors.AsType[*wire.Error](err); ok {
		return string(refused.Reason)
	}
	return ""
}
