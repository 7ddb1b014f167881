package sync

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/sync/wire"
)

// tripsKept is how many round trips the smallest is chosen from.
const tripsKept = 8

// peer is a process with the mesh's own state of it, which is its Bus.Own.
type peer struct {
	*members.Member
	receivedUS int64             // our store clock at ReceivedAt
	newest     map[string]uint64 // numbers of its newest messages, by the kinds of which older ones are refused
	ackedSeq   uint64
	trips      []time.Duration
	changes    changes
	chunks     chunkTracker
	request    request
	returned   bool          // what it knows of our own counters was merged
	forwarded  []string      // the regions of which what it knows was merged
	progress   time.Duration // when its last chunk arrived
}

// noteMissing is called after each change of changes and Synced.
func (p *peer) noteMissing() {
	p.MissingSince, p.Newest, p.Complete = 0, p.changes.newest, p.changes.complete()
	if p.Synced && len(p.changes.gaps) > 0 {
		p.MissingSince = p.changes.gaps[0].since
	}
}

// standing is the author's store clock now, by its newest message and the time since then, and
// whether no changes are missing before those of u.
func (r *peerTable) standing(u *wire.Usage, now time.Duration) (clockUS int64, follows bool) {
	r.Lock()
	defer r.Unlock()
	p := r.find(u.From)
	if p == nil {
		return u.TimeUS, u.Number == 1
	}
	clockUS = u.TimeUS
	if u.Seq <= p.Seq {
		clockUS = p.ClockUS + (now - p.ReceivedAt).Microseconds()
	}
	return clockUS, u.Number <= p.changes.complete()+1
}

// checkNewest notes a message, and refuses it unless it is the newest of its kind of a process
// that is received.
func (r *peerTable) checkNewest(n wire.Numbered) error {
	r.Lock()
	defer r.Unlock()
	kind, _ := kindOf(n)
	from, seq := n.Author().From, n.Author().Seq
	p := r.find(from)
	if p == nil || seq <= p.newest[kind] {
		return wire.Refuse(wire.ReasonStale, "%s from %s, boot %d, number %d, which is not newer than the last", kind, from.Instance, from.Boot, seq)
	}
	p.newest[kind] = seq
	return nil
}

const (
	// MaxProcesses bounds the other processes in the table: a heartbeat can acknowledge no
	// more.
	MaxProcesses = wire.MaxAcks
	// maxJump bounds how far a number may lie ahead of the newest one: more than a process
	// sends within ForgetAfter. A larger one would make all later messages look old.
	maxJump = 1 << 20
	// maxEntries bounds the table: of a process that leaves no entry stays beyond it.
	maxEntries = 8 * MaxProcesses
)

// peerTable is the mesh's side of the table of processes. The goroutine of Run writes to it; any
// may read.
type peerTable struct {
	*members.Table
	// duplicate is the last process seen with our own name and an older boot, at
	// duplicateAt; 0: none.
	duplicate    quota.Process
	duplicateAt  time.Duration
	duplicateSeq uint64
}

// all is every process that was received. The lock is held.
func (r *peerTable) all() (all []*peer) {
	for _, m := range r.All {
		if p, ok := m.Own.(*peer); ok {
			all = append(all, p)
		}
	}
	return all
}

// find is the entry of exactly that process, or nil. The lock is held.
func (r *peerTable) find(process quota.Process) *peer {
	if m := r.All[process]; m != nil {
		p, _ := m.Own.(*peer)
		return p
	}
	return nil
}

// with calls f with the entry of a process, under the lock, if it was received.
func (r *peerTable) with(process quota.Process, f func(p *peer)) {
	r.Lock()
	defer r.Unlock()
	if p := r.find(process); p != nil {
		f(p)
	}
}

// run is the entry of that process or, if it was not received, of another run of its instance;
// nil: there is none. The lock is held.
func (r *peerTable) run(of quota.Process) *peer {
	if p := r.find(of); p != nil {
		return p
	}
	all := r.all()
	if i := slices.IndexFunc(all, func(p *peer) bool { return sameName(p.Process, of) }); i >= 0 {
		return all[i]
	}
	return nil
}

func sameName(a, b quota.Process) bool { return a.Region == b.Region && a.Instance == b.Instance }

// admit returns the reason to refuse a message, or "", and whether its author is present. Of a
// duplicate only newer messages show that, of any other process all do.
func (r *peerTable) admit(from quota.Process, seq uint64, now time.Duration) (present bool, reason wire.Reason) {
	r.Lock()
	defer r.Unlock()
	if m := r.All[from]; m != nil && m.LeftUntil != 0 {
		return false, wire.ReasonStale
	}
	if r.isDuplicate(from) {
		return from == r.duplicate && seq > r.duplicateSeq, ""
	}
	p := r.run(from)
	switch {
	case p == nil && len(r.all()) >= MaxProcesses:
		reason = wire.ReasonCrowded
	case p == nil:
	case from.Boot < p.Boot && !p.Silent(now):
		// If the later boot has fallen silent, this one may be a restart after the
		// host's clock was set back.
		reason = wire.ReasonStale
	case from.Boot == p.Boot && seq > p.Seq && seq-p.Seq > maxJump:
		reason = wire.ReasonRange
	}
	return true, reason
}

func (r *peerTable) isDuplicate(from quota.Process) bool {
	return sameName(from, r.Self) && from.Boot < r.Self.Boot
}

// arrival is the change in the author's state that a message causes.
type arrival struct {
	newcomer bool // it was not known
	back     bool // it had been silent
	gap      bool // changes before this one are missing, for the first time
}

// note records that a message was accepted, and the number of the changes in it; 0: it has none.
func (r *peerTable) note(from quota.Process, seq, number uint64, timeUS, receivedUS int64, now time.Duration) arrival {
	r.Lock()
	defer r.Unlock()
	if r.isDuplicate(from) {
		fresh := r.duplicateAt == 0 || now-r.duplicateAt > members.SilentAfter
		r.duplicate, r.duplicateAt, r.duplicateSeq = from, max(now, 1), seq
		return arrival{newcomer: fresh}
	}
	var a arrival
	p := r.find(from)
	if p == nil {
		if before := r.run(from); before != nil {
			r.drop(before)
		}
		p = &peer{Member: r.Entry(from), newest: map[string]uint64{}}
		p.Own = p
		a.newcomer = true
	} else if seq > p.Seq {
		a.back = p.Silent(now)
	}
	if a.back {
		p.Heartbeats, p.forwarded, p.request = 0, nil, request{}
	}
	if seq > p.Seq {
		p.Seq, p.ClockUS, p.ReceivedAt, p.receivedUS = seq, timeUS, max(now, 1), receivedUS
	}
	if number > 0 {
		a.gap = p.changes.arrived(number, now) && p.Synced
		p.noteMissing()
	}
	return a
}

// drop removes a process. What is missing of its changes is known to its siblings, if to
// anybody, so all counters are requested of these. The lock is held.
func (r *peerTable) drop(p *peer) {
	whole := p.Synced && len(p.changes.gaps) == 0
	p.Bus = members.Bus{}
	r.Prune(p.Member)
	if p.changes.newest == 0 || whole {
		return
	}
	for _, sibling := range r.all() {
		if sibling.Region == p.Region {
			sibling.Synced = false
			sibling.chunks.abandon()
			sibling.noteMissing()
		}
	}
}

// leave removes a process that leaves, whose newest changes have that number.
func (r *peerTable) leave(p quota.Process, number uint64, now time.Duration) {
	r.Lock()
	defer r.Unlock()
	if r.isDuplicate(p) {
		r.duplicateAt = 0
		return
	}
	if known := r.find(p); known != nil {
		known.changes.named(number, now)
		r.drop(known)
	}
	if len(r.All) < maxEntries {
		r.Entry(p).LeftUntil = now + ForgetAfter
	}
}

// forget removes processes that are dead, that were silent for ForgetAfter or are of other
// regions, and the entries of those that left that long ago.
func (r *peerTable) forget(now time.Duration, regions []string) {
	r.Lock()
	defer r.Unlock()
	for _, m := range r.All {
		p, ok := m.Own.(*peer)
		switch {
		case ok && (members.Judge(now, m).State == members.StateDead || now-m.ReceivedAt > ForgetAfter || !slices.Contains(regions, m.Region)):
			r.drop(p)
			r.Signal()
		case m.LeftUntil != 0 && now > m.LeftUntil:
			m.LeftUntil = 0
			r.Prune(m)
		}
	}
}
