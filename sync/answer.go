package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/sync/wire"
)

const (
	// answerAfter is how long a request waits for others to join it: one digest is
	// for all who hear.
	answerAfter = 200 * time.Millisecond
	// chunkEntries and chunkEvery pace a digest: 400,000 totals a second, some 6 MB.
	// Changes go out in between, and whoever hears several authors at once still folds
	// them faster than they come.
	chunkEntries = 16_384
	chunkEvery   = 40 * time.Millisecond
	// chunkRetry is how long a chunk that the bus did not take waits.
	chunkRetry = 100 * time.Millisecond
	// restFor times as long as a digest took there is none. One that fits a single
	// message costs nothing and needs no rest; one of a million totals is repeated
	// every seven seconds at most, whoever asks how often.
	restFor = 2
)

// answers is what others want of our totals.
//
//	idle ── asked ──▶ due in answerAfter ──▶ relays, digest, echoes ──▶ idle
//	                                           └ asked meanwhile ──▶ due after a rest
type answers struct {
	asked   bool
	echoes  []string // regions that want back what we know of them
	relays  []string // regions that somebody who asks does not hear
	number  uint64   // of the newest digest
	current *digest
	queue   []string // regions whose totals follow the current ones
	// round is what relays and echoes were when the current walks began.
	round   struct{ echoes, relays []string }
	began   time.Duration
	restEnd time.Duration
	asking  []trace.Link // sampled requests of what comes next
	span    trace.Span   // of the answer under way; nil: none
}

// digest is one walk over the totals of a region. It looks one piece ahead, since
// the last chunk has to say that it is the last.
type digest struct {
	of     string // empty: our own
	chunk  wire.Chunk
	groups []wire.Group
	ahead  []wire.Group
	more   bool           // ahead is there
	cut    [][]wire.Group // what comes after ahead, before the walk goes on
	next   func() ([]wire.Group, bool)
	stop   func()
}

func newDigest(number uint64, of string, live iter.Seq[[]wire.Group]) *digest {
	d := &digest{of: of, chunk: wire.Chunk{Snapshot: number}}
	d.next, d.stop = iter.Pull(pieces(live))
	d.groups, _ = d.next() // none: an empty digest is one chunk without groups
	d.look()
	return d
}

func (d *digest) look() {
	if len(d.cut) > 0 {
		d.ahead, d.more, d.cut = d.cut[0], true, d.cut[1:]
	} else {
		d.ahead, d.more = d.next()
	}
	d.chunk.Count = d.chunk.Index + 1
	if d.more {
		d.chunk.Count++
	}
}

// advance goes to the next chunk and reports whether there is one.
func (d *digest) advance() bool {
	if !d.more {
		return false
	}
	d.groups = d.ahead
	d.chunk.Index++
	d.look()
	return true
}

// halve cuts the chunk in two, since the bus found it too large. A single total is left
// out: then the chunk is empty.
func (d *digest) halve() {
	cut := halves(d.groups)
	if cut == nil {
		d.groups = nil
		return
	}
	if d.more {
		d.cut = slices.Insert(d.cut, 0, d.ahead)
	}
	d.groups, d.cut = cut[0], slices.Concat(cut[1:], d.cut)
	d.look()
}

// pieces cuts what a walk yields into messages.
func pieces(live iter.Seq[[]wire.Group]) iter.Seq[[]wire.Group] {
	return func(yield func([]wire.Group) bool) {
		for groups := range live {
			for _, message := range messages(groups) {
				if !yield(message) {
					return
				}
			}
		}
	}
}

// requested takes a request for our totals. It returns the region that asks.
func (m *Mesh) requested(r *wire.SnapshotRequest, size int, span trace.Span) (string, error) {
	from := r.From.Region
	if !m.o.Known(from) {
		return "", &refusal{reasonStranger, fmt.Sprintf("region %.80q is not in the topology", from)}
	}
	if r.From == m.o.Self {
		return from, nil
	}
	m.metrics.heard(kindRequest, from, size)
	if r.OwnState && from != m.o.Self.Region && !slices.Contains(m.answers.echoes, from) {
		m.answers.echoes = append(m.answers.echoes, from)
	}
	for _, missing := range r.Missing {
		if missing != m.o.Self.Region && missing != from && m.o.Known(missing) && !slices.Contains(m.answers.relays, missing) {
			m.answers.relays = append(m.answers.relays, missing)
		}
	}
	m.answers.link(span)
	m.answerSoon()
	return from, nil
}

// link notes who asks, for the span of the answer.
func (a *answers) link(span trace.Span) {
	if span != nil && span.SpanContext().IsSampled() && len(a.asking) < maxLinks {
		a.asking = append(a.asking, trace.Link{SpanContext: span.SpanContext()})
	}
}

// answerSoon has all our totals published.
func (m *Mesh) answerSoon() {
	a := &m.answers
	if a.asked {
		return
	}
	a.asked = true
	if a.current == nil {
		now := m.o.Now()
		m.due.digest = max(now+answerAfter, a.restEnd)
	}
}

// restart begins the digest under way anew, with all that was to go with it: what the
// bus took may be lost. Relays above all: whoever asked for them would take our own
// totals alone for the whole answer, and not ask again.
func (m *Mesh) restart() {
	a := &m.answers
	if a.current != nil {
		a.echoes, a.relays = union(a.echoes, a.round.echoes), union(a.relays, a.round.relays)
	}
	a.abandon()
	a.asked = false
	m.answerSoon()
}

// union appends to a what b has more.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

func (a *answers) abandon() {
	if a.current != nil {
		a.current.stop()
	}
	a.current, a.queue = nil, nil
	a.end()
}

// end ends the span of the answer under way.
func (a *answers) end() {
	if a.span != nil {
		a.span.End()
	}
	a.span = nil
}

// answer sends the next chunk.
func (m *Mesh) answer() {
	a := &m.answers
	now := m.o.Now()
	if a.current == nil {
		m.beginDigest(now)
	}
	d := a.current
	if m.roster.silenced(now) || m.sendChunk(d, a.span) != nil {
		m.due.digest = now + chunkRetry
		return
	}
	if d.advance() || m.nextDigest() {
		m.due.digest = now + chunkEvery
		return
	}
	a.end()
	a.restEnd = now + restFor*(now-a.began)
	if a.asked {
		m.due.digest = max(now+answerAfter, a.restEnd)
	}
}

// sendChunk sends the chunk, or as much of it as fits a message.
func (m *Mesh) sendChunk(d *digest, span trace.Span) error {
	for {
		err := m.sendUsage(d.of, d.chunk, d.groups, span)
		if !errors.Is(err, ErrTooLarge) || len(d.groups) == 0 {
			return err
		}
		if totals(d.groups) == 1 {
			m.metrics.notSent()
		}
		d.halve()
	}
}

// beginDigest takes up what was asked for: first what we know of those who are
// missed, so that whoever counts on us after our own digest has it, then our own
// totals, then the echoes.
func (m *Mesh) beginDigest(now time.Duration) {
	a := &m.answers
	if m.o.RecoverCounters != nil && m.roster.siblingSilent(now) {
		m.o.RecoverCounters()
	}
	a.asked, a.began = false, now
	a.queue = slices.Concat(a.relays, []string{""}, a.echoes)
	a.span = m.start(context.Background(), trace.SpanKindProducer, "answer", SubjectUsage+m.o.Self.Region, a.asking)
	a.round.relays, a.round.echoes = a.relays, a.echoes
	a.relays, a.echoes, a.asking = nil, nil, nil
	m.nextDigest()
}

// nextDigest begins the next walk, if there is one.
func (m *Mesh) nextDigest() bool {
	a := &m.answers
	if a.current != nil {
		a.current.stop()
		a.current = nil
	}
	if len(a.queue) == 0 {
		return false
	}
	of := a.queue[0]
	a.queue = a.queue[1:]
	a.number++
	author := of
	if of == "" {
		author = m.o.Self.Region
		m.metrics.answered()
	}
	a.current = newDigest(a.number, of, m.o.Counters.Live(author, chunkEntries))
	return true
}
