package sync

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// requestEvery is the least time between two requests to one region, and how long the
// chunks of a snapshot may pause before it is requested again.
const requestEvery = time.Second

// requests are the pending requests by region.
type requests map[string]*requestState

type requestState struct {
	at     time.Duration // of the newest request; 0: none yet
	wanted bool          // messages may have been missed since
}

// requestFrom requests a snapshot of a region as soon as requestEvery allows, because
// messages were missed.
func (m *Mesh) requestFrom(region string) {
	m.requests.of(region).wanted = true
	m.sendRequests(m.o.Now())
}

// requestAll requests one of every known region.
func (m *Mesh) requestAll() {
	for _, region := range m.peers.regions() {
		m.requests.of(region).wanted = true
	}
	m.sendRequests(m.o.Now())
}

func (rs requests) of(region string) *requestState {
	a := rs[region]
	if a == nil {
		a = &requestState{}
		rs[region] = a
	}
	return a
}

// sendRequests sends the requests that are due: for missed messages, and until every
// process's snapshot is whole. While the bus refuses messages none is due, so that they go
// out with the first message that it accepts.
func (m *Mesh) sendRequests(now time.Duration) {
	if m.outbox.down || m.peers.silenced(now) {
		return
	}
	missing := m.peers.missing(now)
	for region := range m.requests {
		if _, known := missing[region]; !known {
			delete(m.requests, region)
		}
	}
	for _, region := range slices.Sorted(maps.Keys(missing)) { // the same requests in the same order
		a, w := m.requests.of(region), missing[region]
		if !a.wanted && !w.snapshotMissing && !w.ownStateMissing {
			continue
		}
		since := a.at
		if !a.wanted {
			since = max(since, w.progress)
		}
		if since == 0 || now-since >= requestEvery {
			m.sendRequest(region, w.ownStateMissing, a, now)
		}
	}
}

func (m *Mesh) sendRequest(region string, ownState bool, a *requestState, now time.Duration) {
	m.outbox.buf = wire.AppendSnapshotRequest(m.outbox.buf[:0], &wire.SnapshotRequest{From: m.o.Self, OwnState: ownState, Missing: m.missing(region, now)})
	span := m.start(context.Background(), trace.SpanKindProducer, "request", SubjectSnapshot+region, nil)
	err := m.o.Bus.Publish(SubjectSnapshot+region, m.outbox.buf, header(span)...)
	concluded(span, err, "bus")
	m.noteSent(kindRequest, err)
	if err != nil {
		a.wanted = true
		return
	}
	a.at, a.wanted = max(now, 1), false
}

// missing lists the regions from which nothing is received, except the recipient of the
// request. That one may have received from them for longer: a region that switches groups
// must learn what its former group used. Before SilentAfter has passed nothing is missing.
func (m *Mesh) missing(asked string, now time.Duration) []string {
	if m.o.Regions == nil || !m.settled {
		return nil
	}
	var names []string
	for _, region := range m.o.Regions() {
		if region != asked && region != m.o.Self.Region && !m.peers.receivesFrom(region, now) {
			names = append(names, region)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// settle notes that SilentAfter has passed: from now on silent regions are missing.
func (m *Mesh) settle(now time.Duration) {
	if m.settled || now-m.started <= SilentAfter {
		return
	}
	m.settled = true
	if len(m.missing("", now)) > 0 {
		m.requestAll()
	}
}

// onChunk notes a chunk of a snapshot that was merged.
func (m *Mesh) onChunk(from quota.Process, c wire.Chunk, ownState bool, now time.Duration) {
	if !m.peers.chunk(from, c, ownState, now) {
		return
	}
	count(m.metrics.merged, 1, "region", from.Region)
	signal(m.changed)
}

// want is what is missing from a region's processes that are not silent.
type want struct {
	snapshotMissing bool          // of one of them
	ownStateMissing bool          // our own counters as one of them remembers them
	progress        time.Duration // when the newest chunk arrived
}

// missing returns that of every region with a process in the table. Own state is requested
// from each process, because its siblings may have started later and remember less.
func (r *peerTable) missing(now time.Duration) map[string]want {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := make(map[string]want, len(r.peers))
	for n, p := range r.peers {
		w := missing[n.region]
		silent := now-p.ReceivedAt > SilentAfter
		w.snapshotMissing = w.snapshotMissing || !silent && !p.Synced
		w.ownStateMissing = w.ownStateMissing || !silent && !p.returned && n.region != r.self.Region
		w.progress = max(w.progress, p.progress)
		missing[n.region] = w
	}
	return missing
}

// receivesFrom reports whether the region has a process in the table, and none is silent.
func (r *peerTable) receivesFrom(region string, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := false
	for n, p := range r.peers {
		if n.region != region {
			continue
		}
		if now-p.ReceivedAt > SilentAfter {
			return false
		}
		known = true
	}
	return known
}

// siblingSilent reports whether a process of our own region is silent.
func (r *peerTable) siblingSilent(now time.Duration) bool {
	return slices.ContainsFunc(r.list(), func(p Peer) bool {
		return p.Region == r.self.Region && now-p.ReceivedAt > SilentAfter
	})
}

// chunkTracker follows the chunks of one author's newest snapshot until it is whole. Only the
// last chunk, whose index is one below its count, has the true count: in the others the
// count only means that another follows.
type chunkTracker struct {
	snapshot uint64
	seen     []uint64 // a bit for each chunk
	received uint32   // how many bits are set
	count    uint32   // of all chunks; 0 until the last arrived
	whole    bool
}

// add notes a chunk and reports whether that completes the snapshot. Chunks of an older
// snapshot, and repeated ones, change nothing. wire bounds the index.
func (a *chunkTracker) add(c wire.Chunk) bool {
	if c.Snapshot < a.snapshot {
		return false
	}
	if c.Snapshot > a.snapshot {
		a.reset()
		a.snapshot = c.Snapshot
	}
	word, bit := int(c.Index/64), uint64(1)<<(c.Index%64)
	for len(a.seen) <= word {
		a.seen = append(a.seen, 0)
	}
	if a.whole || a.seen[word]&bit != 0 {
		return false
	}
	a.seen[word] |= bit
	a.received++
	if c.Index+1 == c.Count {
		a.count = c.Count
	}
	a.whole = a.received == a.count
	return a.whole
}

// reset forgets all chunks. The rest of the same snapshot does not complete it, unless it has
// a single chunk.
func (a *chunkTracker) reset() {
	a.seen, a.received, a.count, a.whole = a.seen[:0], 0, 0, false
}
