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
// chunks of a snapshot may pause before it is asked for again.
const requestEvery = time.Second

// requests are the snapshots that this process still needs, by region.
type requests map[string]*requestState

type requestState struct {
	at     time.Duration // of the newest request; 0: none yet
	wanted bool          // messages may have been missed since
}

// requestFrom requests a snapshot of a region as soon as requestEvery allows. missed means that
// messages were missed; else the reason shows in what is known of its processes.
func (m *Mesh) requestFrom(region string, missed bool) {
	a := m.requests.of(region)
	a.wanted = a.wanted || missed
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

// sendRequests sends the requests that are due. Whatever gets lost, the request or a
// chunk, it is asked for again until all is there. While the bus refuses messages
// none is due: a bus may deliver before it takes anything, and what is asked for
// then has to go out with the first message that is taken.
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

// missing lists the regions from which nothing is received, without the one that is
// asked. That one may have received from them for longer: a region that switches groups
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

// onChunk notes a chunk of a snapshot that was folded.
func (m *Mesh) onChunk(from quota.Process, c wire.Chunk, ownState bool, now time.Duration) {
	if !m.peers.chunk(from, c, ownState, now) {
		return
	}
	m.metrics.snapshotMerged(from.Region)
	m.signal()
}

// want is what is still missing of a region's processes.
type want struct {
	snapshotMissing bool          // a snapshot of one that is heard is missing
	ownStateMissing bool          // one that is heard has not returned our own counters
	progress        time.Duration // when a chunk of it came last
}

// missing is that of every region of which a process is known. Silent processes are not
// asked until they are heard again. Own state is requested of each process, because its
// siblings may have started after what it remembers of us.
func (r *peerTable) missing(now time.Duration) map[string]want {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := make(map[string]want, len(r.peers))
	for n, p := range r.peers {
		w := missing[n.region]
		heard := now-p.ReceivedAt <= SilentAfter
		w.snapshotMissing = w.snapshotMissing || heard && !p.Synced
		w.ownStateMissing = w.ownStateMissing || heard && !p.returned && n.region != r.self.Region
		w.progress = max(w.progress, p.progress)
		missing[n.region] = w
	}
	return missing
}

// receivesFrom reports whether every process of a region that is known was heard lately,
// and there is one.
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

// siblingSilent reports whether a known process of our own region is silent.
func (r *peerTable) siblingSilent(now time.Duration) bool {
	return slices.ContainsFunc(r.list(), func(p Peer) bool {
		return p.Region == r.self.Region && now-p.ReceivedAt > SilentAfter
	})
}

// chunkTracker follows the chunks of one author's newest snapshot until it is whole. The
// last chunk is the one whose index is one below its count, and only that one need
// know how many there are: an author that walks its counters piece by piece only
// marks in each of the others that another follows.
type chunkTracker struct {
	digest uint64
	seen   []uint64 // a bit for each chunk
	heard  uint32   // how many bits are set
	total  uint32   // how many there are; 0 until the last was heard
	whole  bool
}

// add notes a chunk and reports whether the snapshot is whole by that. Chunks of an
// older snapshot, and repeated ones, change nothing. wire bounds the index.
func (a *chunkTracker) add(c wire.Chunk) bool {
	if c.Snapshot < a.digest {
		return false
	}
	if c.Snapshot > a.digest {
		a.reset()
		a.digest = c.Snapshot
	}
	word, bit := int(c.Index/64), uint64(1)<<(c.Index%64)
	for len(a.seen) <= word {
		a.seen = append(a.seen, 0)
	}
	if a.whole || a.seen[word]&bit != 0 {
		return false
	}
	a.seen[word] |= bit
	a.heard++
	if c.Index+1 == c.Count {
		a.total = c.Count
	}
	a.whole = a.total > 0 && a.heard == a.total
	return a.whole
}

// reset forgets what was heard. What is still to come of the same snapshot does not
// make it whole, except for one of a single chunk.
func (a *chunkTracker) reset() {
	a.seen, a.heard, a.total, a.whole = a.seen[:0], 0, 0, false
}
