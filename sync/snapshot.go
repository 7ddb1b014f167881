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
	// snapshotAfter is how long a request waits for others: all receive the same snapshot.
	snapshotAfter = 200 * time.Millisecond
	// chunkEntries and chunkEvery pace a snapshot: 400,000 counters a second, some 6 MB.
	// Changes are published in between, and a receiver of several snapshots at once still
	// merges them faster than they arrive.
	chunkEntries = 16_384
	chunkEvery   = 40 * time.Millisecond
	// chunkRetry is the delay after the bus refused a chunk.
	chunkRetry = 100 * time.Millisecond
	// restFor times the duration of a snapshot passes before the next: one of a million
	// counters is repeated every seven seconds at most, one of a single message at once.
	restFor = 2
)

// snapshots are what peers request and we publish.
//
//	idle ── request ──▶ due in snapshotAfter ──▶ forwards, snapshot, ownStates ──▶ idle
//	                                           └ another request ──▶ due after a rest
type snapshots struct {
	requested bool
	ownStates []string // regions that requested what we know of their own counters
	forwards  []string // regions that a requester does not receive from
	number    uint64   // of the newest snapshot
	current   *snapshot
	queue     []string // regions whose counters follow the current ones
	// round is what forwards and ownStates were when the current walks began.
	round   struct{ ownStates, forwards []string }
	began   time.Duration
	restEnd time.Duration
	links   []trace.Link // to the sampled requests for the next round
	span    trace.Span   // of the current round; nil: none
}

// snapshot is one walk over the counters of a region. It reads one chunk ahead, because the
// last is marked as such.
type snapshot struct {
	of     string // empty: our own
	chunk  wire.Chunk
	groups []wire.Group
	ahead  []wire.Group
	more   bool           // ahead is valid
	cut    [][]wire.Group // chunks between ahead and the rest of the walk
	next   func() ([]wire.Group, bool)
	stop   func()
}

func newSnapshot(number uint64, of string, live iter.Seq[[]wire.Group]) *snapshot {
	d := &snapshot{of: of, chunk: wire.Chunk{Snapshot: number}}
	d.next, d.stop = iter.Pull(pieces(live))
	d.groups, _ = d.next() // none: an empty snapshot is one chunk without groups
	d.readAhead()
	return d
}

func (d *snapshot) readAhead() {
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
func (d *snapshot) advance() bool {
	if !d.more {
		return false
	}
	d.groups = d.ahead
	d.chunk.Index++
	d.readAhead()
	return true
}

// halve cuts the chunk in two, since the bus found it too large. A single counter is dropped:
// the chunk is empty then.
func (d *snapshot) halve() {
	cut := halves(d.groups)
	if cut == nil {
		d.groups = nil
		return
	}
	if d.more {
		d.cut = slices.Insert(d.cut, 0, d.ahead)
	}
	d.groups, d.cut = cut[0], slices.Concat(cut[1:], d.cut)
	d.readAhead()
}

// pieces divides a walk into messages.
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

// onRequest applies a request for our counters. It returns the region that sent it.
func (m *Mesh) onRequest(r *wire.SnapshotRequest, size int, span trace.Span) (string, error) {
	from := r.From.Region
	if !m.o.Known(from) {
		return "", &refusal{reasonUnknownRegion, fmt.Sprintf("region %.80q is not in the topology", from)}
	}
	if r.From == m.o.Self {
		return from, nil
	}
	m.received(kindRequest, from, size)
	if r.OwnState && from != m.o.Self.Region && !slices.Contains(m.snapshots.ownStates, from) {
		m.snapshots.ownStates = append(m.snapshots.ownStates, from)
	}
	for _, missing := range r.Missing {
		if missing != m.o.Self.Region && missing != from && m.o.Known(missing) && !slices.Contains(m.snapshots.forwards, missing) {
			m.snapshots.forwards = append(m.snapshots.forwards, missing)
		}
	}
	if span != nil && span.SpanContext().IsSampled() && len(m.snapshots.links) < maxLinks {
		m.snapshots.links = append(m.snapshots.links, trace.Link{SpanContext: span.SpanContext()})
	}
	m.snapshotSoon()
	return from, nil
}

// snapshotSoon schedules a snapshot of all our counters.
func (m *Mesh) snapshotSoon() {
	a := &m.snapshots
	if a.requested {
		return
	}
	a.requested = true
	if a.current == nil {
		now := m.o.Now()
		m.due.snapshot = max(now+snapshotAfter, a.restEnd)
	}
}

// restartSnapshots restarts the current round, with everything that was requested: what the
// bus accepted may be lost. Without the forwarded counters a requester would take our own
// for everything, and not request again.
func (m *Mesh) restartSnapshots() {
	a := &m.snapshots
	if a.current != nil {
		a.ownStates, a.forwards = union(a.ownStates, a.round.ownStates), union(a.forwards, a.round.forwards)
	}
	a.abandon()
	a.requested = false
	m.snapshotSoon()
}

// union appends what only b has to a.
func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

func (a *snapshots) abandon() {
	if a.current != nil {
		a.current.stop()
	}
	a.current, a.queue = nil, nil
	a.end()
}

// end ends the span of the current round.
func (a *snapshots) end() {
	if a.span != nil {
		a.span.End()
	}
	a.span = nil
}

// sendNextChunk publishes the next chunk of the current round, or begins one.
func (m *Mesh) sendNextChunk() {
	a := &m.snapshots
	now := m.o.Now()
	if a.current == nil {
		m.beginSnapshots(now)
	}
	d := a.current
	if m.peers.silenced(now) || m.sendChunk(d, a.span) != nil {
		m.due.snapshot = now + chunkRetry
		return
	}
	if d.advance() || m.nextSnapshot() {
		m.due.snapshot = now + chunkEvery
		return
	}
	a.end()
	a.restEnd = now + restFor*(now-a.began)
	if a.requested {
		m.due.snapshot = max(now+snapshotAfter, a.restEnd)
	}
}

// sendChunk publishes the chunk, or as much of it as fits a message.
func (m *Mesh) sendChunk(d *snapshot, span trace.Span) error {
	for {
		err := m.sendUsage(d.of, d.chunk, d.groups, span)
		if !errors.Is(err, ErrTooLarge) || len(d.groups) == 0 {
			return err
		}
		if countersIn(d.groups) == 1 {
			count(m.metrics.errors, 1)
		}
		d.halve()
	}
}

// beginSnapshots begins a round: first the forwarded counters, because a requester counts
// on us as soon as it has our own, then our own, then the own states of others.
func (m *Mesh) beginSnapshots(now time.Duration) {
	a := &m.snapshots
	if m.o.RecoverCounters != nil && m.peers.siblingSilent(now) {
		m.o.RecoverCounters()
	}
	a.requested, a.began = false, now
	a.queue = slices.Concat(a.forwards, []string{""}, a.ownStates)
	a.span = m.start(context.Background(), trace.SpanKindProducer, "answer", SubjectUsage+m.o.Self.Region, a.links)
	a.round.forwards, a.round.ownStates = a.forwards, a.ownStates
	a.forwards, a.ownStates, a.links = nil, nil, nil
	m.nextSnapshot()
}

// nextSnapshot begins the next walk of the round, if there is one.
func (m *Mesh) nextSnapshot() bool {
	a := &m.snapshots
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
		count(m.metrics.begun, 1)
	}
	a.current = newSnapshot(a.number, of, m.o.Counters.Live(author, chunkEntries))
	return true
}
