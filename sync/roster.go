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

const (
	// MaxProcesses is how many other processes are known at most: as many as a beat
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

// roster knows every other process. The goroutine of Run writes to it; any may
// read, forget and distrust.
type roster struct {
	self quota.Process

	mu    sync.Mutex
	peers map[name]*peer
	// gone holds those who said that they leave, and until when: what is still under
	// way from them must not bring them back.
	gone map[quota.Process]time.Duration
	// rival is the newest heard of our own name with an older boot.
	rival      quota.Process
	rivalHeard time.Duration
}

func newRoster(self quota.Process) roster {
	return roster{self: self, peers: map[name]*peer{}, gone: map[quota.Process]time.Duration{}}
}

// The reasons for which a message that can be read is refused.
const (
	reasonStranger = "stranger" // its region is not of our topology
	reasonStale    = "stale"    // its author left, or a later life of it is heard
	reasonCrowded  = "crowded"  // its author would be one more than MaxProcesses
	reasonFold     = "fold"     // the totals are not taken, for no reason that has a name
)

// admit says why a message may not be used; empty: it may.
func (r *roster) admit(from quota.Process, seq uint64, now time.Duration) (reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, left := r.gone[from]; left {
		return reasonStale
	}
	p := r.peers[nameOf(from)]
	switch {
	case r.isRival(from):
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

func (r *roster) isRival(from quota.Process) bool {
	return nameOf(from) == nameOf(r.self) && from.Boot < r.self.Boot
}

// clock is the store clock of a message's author now: what its newest message
// says, plus the time since.
func (r *roster) clock(from quota.Process, seq uint64, timeUS int64, now time.Duration) int64 {
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
func (r *roster) hear(from quota.Process, seq uint64, timeUS, receivedUS int64, now time.Duration) arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isRival(from) {
		fresh := r.rivalHeard == 0 || now-r.rivalHeard > SilentAfter
		r.rival, r.rivalHeard = from, max(now, 1)
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
		p.distrust()
	}
	if seq > p.Seq {
		p.Seq, p.ClockUS, p.ReceivedAt, p.receivedUS = seq, timeUS, now, receivedUS
	}
	return a
}

// leave drops a process for good.
func (r *roster) leave(p quota.Process, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isRival(p) {
		r.rivalHeard = 0
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
func (r *roster) left(p quota.Process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, gone := r.gone[p]
	return gone
}

// forget drops a process that has been silent.
func (r *roster) forget(p quota.Process, now time.Duration) bool {
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
func (r *roster) forgetSilent(now time.Duration, known func(string) bool) (gone int) {
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

func (r *roster) distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.peers {
		p.distrust()
	}
}

// conflict is the rival, while it is heard.
func (r *roster) conflict(now time.Duration) (quota.Process, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rivalHeard == 0 || now-r.rivalHeard > SilentAfter {
		return quota.Process{}, false
	}
	return r.rival, true
}

// silenced reports whether we keep quiet for a rival's sake.
func (r *roster) silenced(now time.Duration) bool {
	_, yes := r.conflict(now)
	return yes
}

func (r *roster) list() []Peer {
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
func (r *roster) regions() []string {
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
