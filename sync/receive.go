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

// Opened is a message that was read, or the reason why it could not be. It may be
// shared by all who hear it: nobody changes it.
type Opened struct {
	prefix, region string
	size           int
	err            error
	Usage          *wire.Usage // one of these three, by the subject, unless err
	beat           *wire.Beat
	request        *wire.DigestRequest
}

// Open reads a message.
func Open(msg Message) *Opened {
	o := &Opened{size: len(msg.Data)}
	o.prefix, o.region = divide(msg.Subject)
	switch o.prefix {
	case SubjectUsage:
		o.Usage, o.err = wire.DecodeUsage(msg.Data)
	case SubjectBeat:
		o.beat, o.err = wire.DecodeBeat(msg.Data)
	case SubjectDigest:
		o.request, o.err = wire.DecodeDigestRequest(msg.Data)
	default:
		o.err = &refusal{string(wire.ReasonMalformed), fmt.Sprintf("subject %.80q is none of ours", msg.Subject)}
	}
	return o
}

// divide cuts a subject before its last word.
func divide(subject string) (prefix, region string) {
	at := strings.LastIndexByte(subject, '.') + 1
	return subject[:at], subject[at:]
}

// Receive takes one message: as a whole, or not at all. It is a step, see Begin.
func (m *Mesh) Receive(msg Message) {
	if prefix, region := divide(msg.Subject); !m.stranger(prefix, region) { // whose messages are not worth reading
		m.hear(Open(msg), m.consumption(msg))
	}
}

// Hear is Receive for a message that was read already; it makes no span.
func (m *Mesh) Hear(o *Opened) {
	if !m.stranger(o.prefix, o.region) {
		m.hear(o, nil)
	}
}

// hear takes a message; span, if any, ends with it.
func (m *Mesh) hear(o *Opened, span trace.Span) {
	region, err := o.region, o.err
	switch {
	case o.prefix == SubjectDigest && o.region != m.o.Self.Region:
		err = &refusal{string(wire.ReasonAuthor), fmt.Sprintf("a request to region %.80q", o.region)}
	case err != nil:
		if o.prefix == SubjectDigest {
			region = ""
		}
	case o.Usage != nil:
		err = m.usage(region, o.Usage, o.size, span)
	case o.beat != nil:
		err = m.heartbeat(region, o.beat, o.size)
	default:
		region, err = m.requested(o.request, o.size, span)
	}
	reason := ""
	if err != nil {
		reason = reasonOf(err)
		m.refuse(region, reason, err)
	}
	concluded(span, err, reason)
}

// stranger refuses what comes from a region that is not of our topology.
func (m *Mesh) stranger(prefix, region string) bool {
	if prefix == SubjectDigest || m.o.Known(region) {
		return false
	}
	m.refuse("", reasonStranger, fmt.Errorf("region %.80q is not in the topology", region))
	return true
}

// usage folds totals.
func (m *Mesh) usage(region string, u *wire.Usage, size int, span trace.Span) error {
	now, heardUS := m.o.Now(), m.o.TimeUS()
	if ours, err := m.check(region, u.From, u.Seq, now); ours || err != nil {
		return err
	}
	echo := u.Of == m.o.Self.Region
	if u.Of == region {
		return &refusal{string(wire.ReasonRange), "of names the author's own region"}
	}
	if author, clockUS := m.accountable(u, region, heardUS, now); author != "" {
		if err := m.o.Totals.Fold(author, clockUS, now, u.Groups); err != nil {
			return err
		}
	}
	kind := kindUsage
	if u.Chunk.Digest != 0 {
		kind = kindDigest
	}
	m.metrics.heard(kind, region, size)
	a := m.roster.hear(u.From, u.Seq, u.TimeUS, heardUS, now)
	if span != nil {
		span.SetAttributes(attribute.String(attrPeer, u.From.Region), attribute.Int64(attrSeq, int64(u.Seq)),
			attribute.Int(attrTotals, totals(u.Groups)), attribute.Bool("regiond.gap", a.gap))
	}
	m.arrived(u.From, a)
	if u.Chunk.Digest != 0 && (u.Of == "" || echo) {
		m.digested(u.From, u.Chunk, echo, now)
	}
	return nil
}

// accountable says whose totals a message carries and what its store clock is now;
// "" for totals that are nothing to us.
func (m *Mesh) accountable(u *wire.Usage, region string, heardUS int64, now time.Duration) (author string, clockUS int64) {
	clockUS = m.roster.clock(u.From, u.Seq, u.TimeUS, now)
	switch {
	case u.Of == "":
		return region, clockUS
	case u.Of == m.o.Self.Region:
		// Our own totals are numbered by our own clock, whoever kept them for us.
		return u.Of, heardUS
	case m.o.Known(u.Of) && !m.roster.hears(u.Of, now):
		return u.Of, m.clockOf(u, clockUS, now)
	default: // whom we hear speaks for itself
		return "", 0
	}
}

// clockOf is the store clock now of the region whose totals are relayed, given the
// author's: what the author says, for what it holds is numbered by that; else what we
// know; else its own clock, which may be far off.
func (m *Mesh) clockOf(u *wire.Usage, clockUS int64, now time.Duration) int64 {
	if u.OfTimeUS != 0 {
		return u.OfTimeUS + clockUS - u.TimeUS
	}
	if us, known := m.o.Totals.ClockUS(u.Of, now); known {
		return us
	}
	return clockUS
}

// heartbeat takes a beat.
func (m *Mesh) heartbeat(region string, b *wire.Beat, size int) error {
	now, heardUS := m.o.Now(), m.o.TimeUS()
	if ours, err := m.check(region, b.From, b.Seq, now); ours || err != nil {
		return err
	}
	m.metrics.heard(kindBeat, region, size)
	if b.Leaving {
		m.roster.leave(b.From, now)
		m.signal()
		return nil
	}
	m.arrived(b.From, m.roster.hear(b.From, b.Seq, b.TimeUS, heardUS, now))
	ours, ok := m.outbox.sent.find(ackOf(b, m.o.Self).Seq)
	changed, e := m.roster.beat(b, ours, ok, heardUS, now)
	if changed {
		m.signal()
	}
	if e.SentUS != 0 && m.o.Exchange != nil {
		m.o.Exchange(b.From, e)
	}
	return nil
}

// check refuses what is not from whom it says, and tells our own messages, which a
// bus may bring back.
func (m *Mesh) check(region string, from quota.Process, seq uint64, now time.Duration) (ours bool, err error) {
	if err := wire.CheckAuthor(region, from); err != nil {
		return false, err
	}
	if from == m.o.Self {
		return true, nil
	}
	if reason := m.roster.admit(from, seq, now); reason != "" {
		return false, &refusal{reason, fmt.Sprintf("from %s, boot %d, number %d", from.Instance, from.Boot, seq)}
	}
	return false, nil
}

// arrived acts on what a message says about its author.
func (m *Mesh) arrived(from quota.Process, a arrival) {
	if rival, ok := m.Conflict(); ok && rival == from {
		if a.newcomer {
			m.o.Logger.Error("another process uses our region and instance name and was here first; give each process an --instance of its own",
				"region", from.Region, "instance", from.Instance, "boot", from.Boot)
			m.signal()
		}
		return
	}
	if a.newcomer {
		m.metrics.meet(from.Region)
		m.o.Logger.Info("a process is heard for the first time", "region", from.Region, "instance", from.Instance, "boot", from.Boot)
		m.beatSoon() // so that it hears us before the next regular beat
	}
	if a.newcomer || a.back {
		m.signal()
		m.ask(from.Region, false)
	}
	if a.gap {
		m.metrics.gap(from.Region)
		m.ask(from.Region, true)
	}
}

// refusals is when a refused message of a region was last logged.
type refusals map[string]time.Duration

// refuse counts a message that changed nothing, and logs one a second and region.
func (m *Mesh) refuse(region, reason string, err error) {
	m.metrics.refused(reason)
	now := m.o.Now()
	if last, ok := m.refusals[region]; ok && now-last < time.Second {
		return
	}
	m.refusals[region] = now
	m.o.Logger.Warn("message refused", "region", region, "reason", reason, "error", err)
}

// refusal is a message that the mesh refuses; wire and the ledger have their own.
type refusal struct{ reason, text string }

func (r *refusal) Error() string { return r.text }

// Reason is one word for a metric.
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
