package sync

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/sync/wire"
)

// tripsKept is how many round trips the smallest is chosen from.
const tripsKept = 8

// Peer is what is known of another process. The zero value of a field that comes
// with heartbeats means that none came yet.
type Peer struct {
	quota.Process
	ReceivedAt time.Duration // when its newest message arrived, by Options.Now
	ClockUS    int64         // its store clock at ReceivedAt
	Seq        uint64        // number of that message
	// AckedAt is when we sent the newest of our messages that it acknowledges; 0: it
	// has not acknowledged any.
	AckedAt time.Duration
	// Heartbeats counts its heartbeats since it appeared, was last silent for longer
	// than SilentAfter, or Resync was called.
	Heartbeats int
	// Members, Topology, Weights, Unsent, Full and Key are those of its newest heartbeat.
	Members  []string
	Topology uint64
	Weights  []quota.Weight
	Unsent   time.Duration // age of its oldest change that was not published
	Full     bool
	Key      uint64 // wire.Key.Fingerprint of its ids; 0: it does not say
	// Synced: a whole snapshot of its counters was merged since it appeared, was last
	// silent for longer than SilentAfter, or Resync was called. Another process may have
	// requested it.
	Synced bool
	RTT    time.Duration // the smallest of the last eight round trips; 0: none yet
}

// peer is a Peer and what the mesh needs beside.
type peer struct {
	Peer
	receivedUS    int64 // our store clock at Heard
	heartbeatSeq  uint64
	ackedSeq      uint64
	trips         []time.Duration
	own, ownState chunkTracker
	returned      bool          // it has handed back what it knows of our own counters
	progress      time.Duration // when the last chunk came
}

func (p *peer) resync() {
	p.Heartbeats, p.Synced = 0, false
	p.own.reset()
}

// chunk notes a part of a snapshot and reports whether it is whole by that.
func (r *peerTable) chunk(from quota.Process, c wire.Chunk, ownState bool, now time.Duration) (whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[nameOf(from)]
	if p == nil || p.Process != from {
		return false
	}
	p.progress = now
	if ownState {
		whole = p.ownState.add(c)
		p.returned = p.returned || whole
		return whole
	}
	if !p.own.add(c) {
		return false
	}
	p.Synced = true
	return true
}

const (
	// MaxProcesses is how many other processes are known at most: as many as a heartbeat
	// can acknowledge. One more would be heard and never know it.
	MaxProcesses = wire.MaxAcks
	// maxJump is how far a number may lie ahead of the newest one. Nobody sends that
	// many messages within ForgetAfter; taken for true, it would make all that follow
	// look old.
	maxJump = 1 << 20
	// maxGone bounds the memory for those who left.
	maxGone = 4 * MaxProcesses
)

// name is what two processes of one deployment must not share.
type name struct{ region, instance string }

func nameOf(p quota.Process) name { return name{p.Region, p.Instance} }

// peerTable knows every other process. The goroutine of Run writes to it; any may
// read, forget and distrust.
type peerTable struct {
	self quota.Process

	mu    sync.Mutex
	peers map[name]*peer
	// gone holds those who said that they leave, and until when: what is still under
	// way from them must not bring them back.
	gone map[quota.Process]time.Duration
	// duplicate is the newest heard of our own name with an older boot.
	duplicate   quota.Process
	duplicateAt time.Duration
}

func newPeerTable(self quota.Process) peerTable {
	return peerTable{self: self, peers: map[name]*peer{}, gone: map[quota.Process]time.Duration{}}
}

// The reasons for which a message that can be read is refused.
const (
	reasonUnknownRegion = "unknown_region" // its region is not of our topology
	reasonStale         = "stale"          // its author left, or a later life of it is heard
	reasonCrowded       = "crowded"        // its author would be one more than MaxProcesses
	reasonFold          = "fold"           // the totals are not taken, for no reason that has a name
)

// admit says why a message may not be used; empty: it may.
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
		// A later life that has fallen silent is another matter: the host's clock
		// may have been set back between the two.
		return reasonStale
	case from.Boot == p.Boot && seq > p.Seq && seq-p.Seq > maxJump:
		return string(wire.ReasonRange)
	}
	return ""
}

func (r *peerTable) isDuplicate(from quota.Process) bool {
	return nameOf(from) == nameOf(r.self) && from.Boot < r.self.Boot
}

// clock is the store clock of a message's author now: what its newest message
// says, plus the time since.
func (r *peerTable) clock(from quota.Process, seq uint64, timeUS int64, now time.Duration) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[nameOf(from)]
	if p == nil || p.Process != from || seq > p.Seq {
		return timeUS
	}
	return p.ClockUS + (now - p.ReceivedAt).Microseconds()
}

// arrival is what a message's number and time say about its author.
type arrival struct {
	newcomer bool // it was not known
	back     bool // it had been silent
	gap      bool // messages before this one are missing
}

// hear notes that a message was taken.
func (r *peerTable) note(from quota.Process, seq uint64, timeUS, receivedUS int64, now time.Duration) arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDuplicate(from) {
		fresh := r.duplicateAt == 0 || now-r.duplicateAt > SilentAfter
		r.duplicate, r.duplicateAt = from, max(now, 1)
		return arrival{newcomer: fresh}
	}
	var a arrival
	p := r.peers[nameOf(from)]
	if p == nil || p.Process != from {
		p = &peer{Peer: Peer{Process: from}}
		r.peers[nameOf(from)] = p
		a.newcomer = true
	} else if seq > p.Seq {
		a.back = now-p.ReceivedAt > SilentAfter
		a.gap = seq > p.Seq+1
	}
	if a.back {
		p.resync()
	}
	if seq > p.Seq {
		p.Seq, p.ClockUS, p.ReceivedAt, p.receivedUS = seq, timeUS, now, receivedUS
	}
	return a
}

// leave drops a process for good.
func (r *peerTable) leave(p quota.Process, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isDuplicate(p) {
		r.duplicateAt = 0
		return
	}
	if known := r.peers[nameOf(p)]; known != nil && known.Process == p {
		delete(r.peers, nameOf(p))
	}
	if len(r.gone) < maxGone {
		r.gone[p] = now + ForgetAfter
	}
}

// left reports whether a process said that it leaves.
func (r *peerTable) left(p quota.Process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, gone := r.gone[p]
	return gone
}

// forget drops a process that has been silent.
func (r *peerTable) forget(p quota.Process, now time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.peers[nameOf(p)]
	if known == nil || known.Process != p || now-known.ReceivedAt <= SilentAfter {
		return false
	}
	delete(r.peers, nameOf(p))
	return true
}

// forgetSilent drops those of whom nobody waits for a word any more, and those
// whose region is not known.
func (r *peerTable) forgetSilent(now time.Duration, known func(string) bool) (gone int) {
	strangers := map[string]bool{}
	for _, region := range r.regions() {
		strangers[region] = !known(region) // asked under no lock
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, p := range r.peers {
		if now-p.ReceivedAt > ForgetAfter || strangers[n.region] {
			delete(r.peers, n)
			gone++
		}
	}
	for p, until := range r.gone {
		if now > until {
			delete(r.gone, p)
		}
	}
	return gone
}

func (r *peerTable) resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.peers {
		p.resync()
	}
}

// conflict is the duplicate, while it is heard.
func (r *peerTable) duplicateHeard(now time.Duration) (quota.Process, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.duplicateAt == 0 || now-r.duplicateAt > SilentAfter {
		return quota.Process{}, false
	}
	return r.duplicate, true
}

// silenced reports whether we keep quiet for a duplicate's sake.
func (r *peerTable) silenced(now time.Duration) bool {
	_, yes := r.duplicateHeard(now)
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

// regions are those that the known processes are of, in ascending order.
func (r *peerTable) regions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for n := range r.peers {
		if !slices.Contains(names, n.region) {
			names = append(names, n.region)
		}
	}
	slices.Sort(names)
	return names
}

func compareProcess(a, b quota.Process) int {
	return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.Instance, b.Instance),
		cmp.Compare(a.Boot, b.Boot))
}
