package sync

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
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
	// restFor times the duration of a snapshot passes before the next of all counters: one
	// of a million is repeated every seven seconds at most, one of a single message at once.
	restFor = 2
	// answerBytes is the most that an answer takes in a message, without its names: numbers of
	// 8 and 10 bytes, 7 tags and lengths of up to 2.
	answerBytes = 32
)

// snapshots are what peers request and we publish.
//
//	idle ── request ──▶ due in snapshotAfter ──▶ one snapshot for all requests ──▶ idle
type snapshots struct {
	pending map[quota.Process]*wire.SnapshotRequest // the newest of each process
	links   []trace.Link                            // to the sampled ones
	number  uint64                                  // of the newest snapshot
	current *snapshot
	began   time.Duration
	restEnd time.Duration
	span    trace.Span // of the current snapshot; nil: none
}

// piece is what one message of a snapshot carries.
type piece struct {
	origin string // empty: our own
	groups []wire.Group
}

// snapshot is one walk over counters. It reads one piece ahead, because the last is marked
// as such.
type snapshot struct {
	chunk   wire.Chunk
	answers []wire.Answer
	piece
	ahead piece
	more  bool // ahead is valid
	next  func() (piece, bool)
	stop  func()
}

// advance goes to the next chunk and reports whether there is one. The last has the answers.
func (d *snapshot) advance() bool {
	if !d.more {
		return false
	}
	d.piece = d.ahead
	d.ahead, d.more = d.next()
	if d.chunk.Index, d.chunk.Count = d.chunk.Count-1, d.chunk.Count+1; !d.more {
		d.chunk.Count, d.chunk.Answers = d.chunk.Index+1, d.answers
	}
	return true
}

// onRequest applies a request for our counters. It returns the region that sent it.
func (m *Mesh) onRequest(r *wire.SnapshotRequest, size int, span trace.Span) (string, error) {
	from, a := r.From.Region, &m.snapshots
	switch {
	case !m.known(from):
		return "", unknownRegion(from)
	case r.From == m.peers.Self || r.To != m.peers.Self:
		return from, nil
	case len(a.pending) >= wire.MaxAcks && a.pending[r.From] == nil:
		return from, wire.Refuse(wire.ReasonCrowded, "too many requests wait for an answer")
	}
	m.received(kindRequest, from, size)
	if before := a.pending[r.From]; before == nil || before.Request < r.Request {
		a.pending[r.From] = r
	}
	if span != nil && span.SpanContext().IsSampled() && len(a.links) < maxLinks {
		a.links = append(a.links, trace.Link{SpanContext: span.SpanContext()})
	}
	m.snapshotSoon(m.o.Now())
	return from, nil
}

func (m *Mesh) snapshotSoon(now time.Duration) {
	a := &m.snapshots
	if a.current != nil || len(a.pending) == 0 {
		return
	}
	due := a.restEnd
	for _, r := range a.pending {
		if r.Since > 0 {
			due = 0
		}
	}
	if due = max(due, now+snapshotAfter); m.due.snapshot == never || m.due.snapshot > due {
		m.due.snapshot = due
	}
}

func (a *snapshots) abandon() {
	if a.current != nil {
		a.current.stop()
		a.current = nil
	}
	if a.span != nil {
		a.span.End()
		a.span = nil
	}
}

func (m *Mesh) sendNextChunk() {
	a := &m.snapshots
	now := m.o.Now()
	if a.current == nil && !m.beginSnapshot(now) {
		m.snapshotSoon(now)
		return
	}
	d, sent := a.current, false
	if !m.silenced() {
		err := m.sendUsage(&wire.Usage{Origin: d.origin, Chunk: d.chunk, Groups: d.groups}, a.span)
		sent = err == nil || errors.Is(err, ErrTooLarge) // that is dropped: the snapshot is not whole
	}
	if !sent {
		m.due.snapshot = now + chunkRetry
		return
	}
	if d.advance() {
		m.due.snapshot = now + chunkEvery
		return
	}
	if a.abandon(); d.chunk.Since == 0 {
		a.restEnd = now + restFor*(now-a.began)
	}
	m.snapshotSoon(now)
}

// beginSnapshot begins a snapshot that answers all requests, or, while we rest, those that
// need little. It reports whether there is one.
func (m *Mesh) beginSnapshot(now time.Duration) bool {
	a := &m.snapshots
	d := &snapshot{chunk: wire.Chunk{Since: m.outbox.number, UpTo: m.outbox.number}}
	var forwards, ownStates []string
	spare, most := 0, m.room()/2 // for the answers, which the last message has too
	for _, from := range slices.SortedFunc(maps.Keys(a.pending), members.Compare) {
		r := a.pending[from]
		if r.Since == 0 && now < a.restEnd {
			continue
		}
		size := answerBytes + len(from.Region) + len(from.Instance)
		if spare > 0 && spare+size > most {
			break // the next snapshot answers the rest
		}
		spare += size
		delete(a.pending, from)
		d.answers = append(d.answers, wire.Answer{Process: from, Request: r.Request})
		d.chunk.Since = min(d.chunk.Since, r.Since)
		forwards = append(forwards, r.Missing...)
		if r.OwnState {
			ownStates = append(ownStates, from.Region)
		}
	}
	if len(d.answers) == 0 {
		return false
	}
	if d.chunk.Since == 0 {
		m.metrics.begun.Add(1)
		forwards = append(forwards, m.former()...)
	}
	a.number++
	d.chunk.Snapshot, a.began, a.current = a.number, now, d
	a.span = m.start(context.Background(), trace.SpanKindProducer, "answer", SubjectUsage+m.peers.Self.Region, a.links)
	a.links = nil
	origins := append(forwards, ownStates...)
	slices.Sort(origins)
	d.next, d.stop = iter.Pull(m.pieces(slices.Compact(origins), d.chunk.Since, spare))
	d.ahead, _ = d.next() // none: an empty snapshot is one chunk without groups
	d.more, d.chunk.Count = true, 1
	return d.advance()
}

// former lists the regions that are not in the topology any more: a process that starts
// cannot name them.
func (m *Mesh) former() []string {
	return slices.DeleteFunc(m.o.Counters.Names(), func(name string) bool { return name == m.peers.Self.Region || m.known(name) })
}

// pieces walks over what is known of other regions' counters, and over our own that changed
// after a number, each piece the content of one message with so many bytes to spare.
func (m *Mesh) pieces(origins []string, since uint64, spare int) iter.Seq[piece] {
	since -= min(since, m.outbox.extra) // those of one Take have its first number in the ledger
	return func(yield func(piece) bool) {
		walk := func(origin, author string, since uint64) bool {
			for groups := range m.o.Counters.Live(author, since, chunkEntries) {
				for _, message := range m.messages(groups, spare) {
					if !yield(piece{origin, message}) {
						return false
					}
				}
			}
			return true
		}
		for _, origin := range origins {
			if origin != m.peers.Self.Region && !walk(origin, origin, 0) {
				return
			}
		}
		walk("", m.peers.Self.Region, since)
	}
}
