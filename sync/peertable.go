package sync

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// tripsKept is how many round trips the smallest is chosen from.
const tripsKept = 8

// Peer is the state of another process. Fields of heartbeats are zero until the first.
type Peer struct {
	quota.Process
	ReceivedAt time.Duration // when its newest message arrived, by Options.Now
	ClockUS    int64         // its store clock at ReceivedAt
	Seq        uint64        // number of that message
	// AckedAt is when we sent the newest of our messages that it acknowledges; 0: it
	// has not acknowledged any.
	AckedAt time.Duration
	// Heartbeats counts its heartbeats since it appeared, or was last silent for longer
	// than SilentAfter.
	Heartbeats int
	// Members, Topology, Weights, Unsent, Full and Key are those of its newest heartbeat.
	Members  []string
	Topology uint64
	Weights  []quota.Weight
	Unsent   time.Duration // age of its oldest change that was not published
	Full     bool
	Key      uint64 // wire.Key.Fingerprint of its ids; 0: unknown
	// Synced: a snapshot of all of its counters, whoever requested it, was merged since it
	// appeared, or since another process of its region ended of which changes were missing.
	Synced bool
	// MissingSince is since when changes that it has published are missing here, because
	// they were lost or refused; 0: none are, or it is not Synced.
	MissingSince time.Duration
	// Newest is the number of the newest changes that it has published, as far as known, and
	// Complete the one up to which none are missing here.
	Newest, Complete uint64
	// ForwardsMissing: it has yet to send what it knows of a region from which nothing is
	// received, since it last counted on that region itself.
	ForwardsMissing bool
	RTT             time.Duration // the smallest of the last eight round trips; 0: none yet
}

// peer is a Peer with the mesh's own state.
type peer struct {
	Peer
	receivedUS   int64 // our store clock at ReceivedAt
	heartbeatSeq uint64
	loanSeq      uint64 // of its newest message about loans
	resetSeq     uint64 // of the newest that asks for a reset
	topSeq       uint64 // of its newest Top
	ackedSeq     uint64
	trips        []time.Duration
	changes      changes
	chunks       chunkTracker
	request      request
	returned     bool          // what it knows of our own counters was merged
	forwarded    []string      // the regions of which what it knows was merged
	progress     time.Duration // when its last chunk arrived
}

// noteMissing is called after each change of changes and Synced.
func (p *peer) noteMissing() {
	p.MissingSince, p.Newest, p.Complete = 0, p.changes.newest, p.changes.complete()
	if p.Synced && len(p.changes.gaps) > 0 {
		p.MissingSince = p.changes.gaps[0].since
	}
}

// follows reports whether no changes are missing before those with a number.
func (r *peerTable) follows(from quota.Process, number uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.find(from)
	return p != nil && number <= p.changes.complete()+1 || p == nil && number == 1
}

// arrived notes changes that were merged, and reports whether earlier ones are missing for
// the first time.
func (r *peerTable) arrived(from quota.Process, number uint64, now time.Duration) (gap bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.find(from)
	if p == nil {
		return false
	}
	gap = p.changes.arrived(number, now) && p.Synced
	p.noteMissing()
	return gap
}

const (
	// MaxProcesses bounds the other processes in the table: a heartbeat can acknowledge no
	// more.
	MaxProcesses = wire.MaxAcks
	// maxJump bounds how far a number may lie ahead of the newest one: more than a process
	// sends within ForgetAfter. A larger one would make all later messages look old.
	maxJump = 1 << 20
	// maxGone bounds the memory of processes that left.
	maxGone = 4 * MaxProcesses
)

// name is unique among the processes of a deployment.
type name struct{ region, instance string }

func nameOf(p quota.Process) name { return name{p.Region, p.Instance} }

// peerTable is the state of every other process. The goroutine of Run writes to it; any
// may read and forget.
type peerTable struct {
	self quota.Process

	mu    sync.Mutex
	peers map[name]*peer
	// gone holds the processes that left, each until the given time: their late messages
	// must not bring them back.
	gone map[quota.Process]time.Duration
	// duplicate is the last process seen with our own name and an older boot, at
	// duplicateAt; 0: none.
	duplicate    quota.Process
	duplicateAt  time.Duration
	duplicateSeq uint64
}

// present reports whether no message of a process has to prove that it is present: all but
// those of a duplicate, of which only newer ones show that.
func (r *peerTable) present(from quota.Process, seq uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.isDuplicate(from) || from == r.duplicate && seq > r.duplicateSeq
}

// The reasons for which a message that can be read is refused.
const (
	reasonUnknownRegion = "unknown_region" // its region is not in our topology
	reasonStale         = "stale"          // its author left or was restarted
	reasonCrowded       = "crowded"        // its author would be one more than MaxProcesses
	reasonFold          = "fold"           // the counters are refused for another reason
)

// find is the entry of exactly that process, or nil. mu is held.
func (r *peerTable) find(process quota.Process) *peer {
	if p := r.peers[nameOf(process)]; p != nil && p.Process == process {
		return p
	}
	return nil
}

// admit returns the reason to refuse a message, or "".
func (r *peerTable) admit(from quota.Process, seq uint64, now time.Duration) (reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, left := r.gone[from]; left {
		return reasonStale
	}
	p := r.peers[nameOf(from)]
	switch {
	case r.isDuplicate(from):
	case p == nil && len(r.peers) >= MaxProcesses:
		return reasonCrowded
	case p == nil:
	case from.Boot < p.Boot && now-p.ReceivedAt <= SilentAfter:
		// If the later boot has fallen silent, this one may be a restart after the
		// host's clock was set back.
		return reasonStale
	case from.Boot == p.Boot && seq > p.Seq && seq-p.Seq > maxJump:
		return string(wire.ReasonRange)
	}
	return ""
}

func (r *peerTable) isDuplicate(from quota.Process) bool {
	return nameOf(from) == nameOf(r.self) && from.Boot < r.self.Boot
}

// clock is the author's store clock now, by its newest message and the time since then.
func (r *peerTable) clock(from quota.Process, seq uint64, timeUS int64, now time.Duration) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.find(from)
	if p == nil || seq > p.Seq {
		return timeUS
	}
	return p.ClockUS + (now - p.ReceivedAt).Microseconds()
}

// arrival is the change in the author's state that a message causes.
type arrival struct {
	newcomer bool // it was not known
	back     bool // it had been silent
	gap      bool // changes before this one are missing
}

// note records that a message was accepted.
func (r *peerTable) note(from quota.Process, seq uint64, timeUS, receivedUS int64, now time.Duration) arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDuplicate(from) {
		fresh := r.duplicateAt == 0 || now-r.duplicateAt > SilentAfter
		r.duplicate, r.duplicateAt, r.duplicateSeq = from, max(now, 1), seq
		return arrival{newcomer: fresh}
	}
	var a arrival
	p := r.find(from)
	if p == nil {
		if before := r.peers[nameOf(from)]; before != nil {
			r.drop(before)
		}
		p = &peer{Peer: Peer{Process: from}}
		r.peers[nameOf(from)] = p
		a.newcomer = true
	} else if seq > p.Seq {
		a.back = now-p.ReceivedAt > SilentAfter
	}
	if a.back {
		p.Heartbeats, p.forwarded, p.request = 0, nil, request{}
	}
	if seq > p.Seq {
		p.Seq, p.ClockUS, p.ReceivedAt, p.receivedUS = seq, timeUS, now, receivedUS
	}
	return a
}

// drop removes a process. What is missing of its changes is known to its siblings, if to
// anybody, so all counters are requested of these. mu is held.
func (r *peerTable) drop(p *peer) {
	delete(r.peers, nameOf(p.Process))
	if p.changes.newest == 0 || p.Synced && len(p.changes.gaps) == 0 {
		return
	}
	for n, sibling := range r.peers {
		if n.region == p.Region {
			sibling.Synced = false
			sibling.chunks.abandon()
			sibling.noteMissing()
		}
	}
}

// leave removes a process that leaves, whose newest changes have that number.
func (r *peerTable) leave(p quota.Process, number uint64, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDuplicate(p) {
		r.duplicateAt = 0
		return
	}
	if known := r.find(p); known != nil {
		known.changes.named(number, now)
		r.drop(known)
	}
	if len(r.gone) < maxGone {
		r.gone[p] = now + ForgetAfter
	}
}

// left reports whether a process has left.
func (r *peerTable) left(p quota.Process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, gone := r.gone[p]
	return gone
}

// forget removes a process that is silent.
func (r *peerTable) forget(p quota.Process, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.find(p)
	if known == nil || now-known.ReceivedAt <= SilentAfter {
		return false
	}
	r.drop(known)
	return true
}

// forgetSilent removes processes that were silent for ForgetAfter, and those of unknown
// regions.
func (r *peerTable) forgetSilent(now time.Duration, known func(string) bool) (gone int) {
	unknown := map[string]bool{}
	for _, p := range r.list() {
		unknown[p.Region] = !known(p.Region) // called without the lock
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, p := range r.peers {
		if now-p.ReceivedAt > ForgetAfter || unknown[n.region] {
			r.drop(p)
			gone++
		}
	}
	maps.DeleteFunc(r.gone, func(_ quota.Process, until time.Duration) bool { return now > until })
	return gone
}

// currentDuplicate is the duplicate, unless it is silent.
func (r *peerTable) currentDuplicate(now time.Duration) (quota.Process, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.duplicateAt == 0 || now-r.duplicateAt > SilentAfter {
		return quota.Process{}, false
	}
	return r.duplicate, true
}

// silenced reports whether a duplicate keeps us from publishing.
func (r *peerTable) silenced(now time.Duration) bool {
	_, yes := r.currentDuplicate(now)
	return yes
}

func (r *peerTable) list() []Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	peers := make([]Peer, 0, len(r.peers))
	for _, p := range r.peers {
		peers = append(peers, p.Peer)
	}
	slices.SortFunc(peers, func(a, b Peer) int { return compareProcess(a.Process, b.Process) })
	return peers
}

func compareProcess(a, b quota.Process) int {
	return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.Instance, b.Instance),
		cmp.Compare(a.Boot, b.Boot))
}
