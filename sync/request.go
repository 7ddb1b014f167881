package sync

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

// repeatEvery is how long a request goes unanswered, or the chunks of its answer pause,
// before it is repeated: a request or an answer may be lost twice within members.SilentAfter.
const repeatEvery = 500 * time.Millisecond

// request is what was last requested of a process, until all of it has arrived.
//
//	none ── something is missing ──▶ pending ── answered ──▶ none
//	                                  └─ ▲ repeated, with what is missing by then
type request struct {
	first    uint64 // number of the first request for ownState and missing; 0: none is pending
	at       time.Duration
	ownState bool
	missing  []string
}

// sendRequests requests of each process that is not silent what is missing of it. While the
// bus refuses messages nothing is due, so that requests go out with the first message that
// it accepts.
func (m *Mesh) sendRequests(now time.Duration) {
	missing := m.missing(now)
	patient := now-m.started <= members.SilentAfter // they may be about to appear
	due := m.peers.due(missing, patient, now, &m.requested, m.outbox.down.Lasts() || m.silenced())
	for i := range due {
		r := &due[i]
		r.From = m.peers.Self
		subject := SubjectSnapshot + r.To.Region
		span := m.start(context.Background(), trace.SpanKindProducer, "request", subject, nil)
		err := m.hand(kindRequest, subject, r, span)
		concluded(span, err, "bus")
		if err != nil {
			m.peers.with(r.To, func(p *peer) { p.request = request{} })
		}
	}
}

func (m *Mesh) missing(now time.Duration) []string {
	names := slices.DeleteFunc(slices.Clone(m.o.Regions()), func(region string) bool {
		return region == m.peers.Self.Region || m.peers.receivesFrom(region, now)
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// due returns the requests to send now, in a fixed order, and numbers them on from last. A
// region that is missing is requested from every process, since each may have received
// from it for longer than we have, and a region that switches groups must learn what its
// former group used; but only once the process no longer counts on that region itself.
// While patient holds they are not requested yet, while mute holds nothing is.
func (r *peerTable) due(missing []string, patient bool, now time.Duration, last *uint64, mute bool) (due []wire.SnapshotRequest) {
	r.Lock()
	defer r.Unlock()
	all := r.all()
	slices.SortFunc(all, func(a, b *peer) int { return members.Compare(a.Process, b.Process) })
	for _, p := range all {
		var want request
		p.forwarded = slices.DeleteFunc(p.forwarded, func(k string) bool { return !slices.Contains(missing, k) || slices.Contains(p.Members, k) })
		p.ForwardsMissing = false
		for _, k := range missing {
			if k == p.Region || slices.Contains(p.forwarded, k) {
				continue
			}
			p.ForwardsMissing = true
			if !patient && !slices.Contains(p.Members, k) {
				want.missing = append(want.missing, k)
			}
		}
		want.ownState = !p.returned && p.Region != r.Self.Region
		complete := p.Synced && len(p.changes.gaps) == 0
		switch {
		case p.Silent(now), complete && !want.ownState && want.missing == nil:
			p.request = request{}
			continue
		case mute || p.request.first != 0 && now-max(p.request.at, p.progress) < repeatEvery:
			continue
		}
		*last++
		if want.first = p.request.first; want.first == 0 || want.ownState != p.request.ownState || !slices.Equal(want.missing, p.request.missing) {
			want.first = *last
		}
		want.at = now
		p.request = want
		q := wire.SnapshotRequest{To: p.Process, Request: *last, OwnState: want.ownState, Missing: want.missing}
		if p.Synced {
			q.Since = p.changes.complete()
		}
		due = append(due, q)
	}
	return due
}

// chunk notes a chunk of a snapshot that was merged, and reports whether that completes the
// snapshot.
func (r *peerTable) chunk(from quota.Process, c *wire.Chunk, now time.Duration) (whole bool) {
	r.with(from, func(p *peer) {
		p.progress = now
		if whole = p.chunks.add(c); !whole {
			return
		}
		if c.Since <= p.changes.complete() {
			p.changes.filled(c.UpTo)
			p.Synced = p.Synced || c.Since == 0
		}
		p.noteMissing()
		for _, a := range p.chunks.answers {
			if a.Process == r.Self && p.request.first != 0 && a.Request >= p.request.first {
				p.returned = p.returned || p.request.ownState
				p.forwarded = append(p.forwarded, p.request.missing...)
				p.request = request{}
			}
		}
	})
	return whole
}

// receivesFrom reports whether the region has a process in the table, and none is silent.
func (r *peerTable) receivesFrom(region string, now time.Duration) bool {
	r.Lock()
	defer r.Unlock()
	known := false
	for _, p := range r.all() {
		if p.Region == region && p.Silent(now) {
			return false
		}
		known = known || p.Region == region
	}
	return known
}

// maxGaps bounds the gaps of one author; the last two become one beyond it.
const maxGaps = 64

// changes follows the numbers of one author's changes: which it is known to have
// published, and which of them have not arrived.
type changes struct {
	newest uint64
	gaps   []gap // ascending, without overlap, up to newest
}

// gap is a run of numbers that are missing since a time.
type gap struct {
	from, to uint64
	since    time.Duration
}

// named notes that the author published changes up to a number.
func (c *changes) named(number uint64, now time.Duration) {
	if number <= c.newest {
		return
	}
	c.gaps = append(c.gaps, gap{c.newest + 1, number, max(now, 1)})
	c.newest = number
	if n := len(c.gaps); n > maxGaps {
		c.gaps[n-2].to = number
		c.gaps = c.gaps[:n-1]
	}
}

// arrived notes changes that were merged, and reports whether earlier ones are missing for
// the first time.
func (c *changes) arrived(number uint64, now time.Duration) (opened bool) {
	opened = number > c.newest+1
	c.named(number, now)
	i := slices.IndexFunc(c.gaps, func(g gap) bool { return number <= g.to })
	if i < 0 || number < c.gaps[i].from {
		return opened
	}
	g, rest := c.gaps[i], make([]gap, 0, 2)
	if g.from < number {
		rest = append(rest, gap{g.from, number - 1, g.since})
	}
	if number < g.to {
		rest = append(rest, gap{number + 1, g.to, g.since})
	}
	c.gaps = slices.Replace(c.gaps, i, i+1, rest...)
	return opened
}

// filled notes that all changes up to a number were merged.
func (c *changes) filled(number uint64) {
	c.newest = max(c.newest, number)
	c.gaps = slices.DeleteFunc(c.gaps, func(g gap) bool { return g.to <= number })
	if len(c.gaps) > 0 {
		c.gaps[0].from = max(c.gaps[0].from, number+1)
	}
}

func (c *changes) complete() uint64 {
	if len(c.gaps) > 0 {
		return c.gaps[0].from - 1
	}
	return c.newest
}

// chunkTracker follows the chunks of one author's newest snapshot until it is whole. Only the
// last chunk, whose index is one below its count, has the true count and the answers: in the
// others the count only means that another follows.
type chunkTracker struct {
	snapshot uint64
	seen     map[uint32]bool // by index
	count    uint32          // of all chunks; 0 until the last arrived
	answers  []wire.Answer
	whole    bool
}

// add notes a chunk and reports whether that completes the snapshot. Chunks of an older
// snapshot, and repeated ones, change nothing. wire bounds the index.
func (a *chunkTracker) add(c *wire.Chunk) bool {
	if c.Snapshot > a.snapshot {
		*a = chunkTracker{snapshot: c.Snapshot, seen: map[uint32]bool{}}
	}
	if c.Snapshot < a.snapshot || a.whole || a.seen[c.Index] {
		return false
	}
	a.seen[c.Index] = true
	if c.Index+1 == c.Count {
		a.count, a.answers = c.Count, c.Answers
	}
	a.whole = len(a.seen) == int(a.count)
	return a.whole
}

// abandon ignores the rest of the same snapshot, and it again.
func (a *chunkTracker) abandon() { a.whole = true }
