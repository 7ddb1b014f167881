package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	meshsync "github.com/regiond/regiond/sync"
)

const (
	// OneWayAfter is how old the newest message of ours that a peer acknowledges may
	// be. At its worst the age is 500 ms (our message left just after the one before)
	// + one way + 500 ms (it came just after the peer's heartbeat) + one way back,
	// until the next heartbeat: 1 s + 300 ms of round trip. A heartbeat lost, ours or
	// theirs, makes that 1.8 s, so 200 ms remain for late timers. A cut from us to
	// them is known here within 2.05 s, and usually sooner, because the peer
	// advertises that it misses us.
	OneWayAfter = 2 * time.Second
	// NewcomerFor is how long a process that joins a healthy region is left out of the
	// evaluation of that region: its own JoiningFor, a heartbeat each way, and a
	// margin. It uses no more than its own region's share meanwhile.
	NewcomerFor = 3 * time.Second
)

// Process is what the bus and gossip know of another process. Siblings, the other
// processes of our own region, are among them. Times are on the clock of Input.Now; 0
// means never.
type Process struct {
	meshsync.Peer
	// Gossip explains, and can end the wait for a silent process; it never replaces the bus.
	// Of a sibling it is what the store says, which both share.
	Gossip gossip.State
	// Sees is the regions that a sibling receives from, by its entry in the store; nil while
	// it joins. SeesAt is when the entry changed; 0: it has none.
	Sees    []string
	SeesAt  time.Duration
	Leaving bool // it announced that it stops
	// OtherKey: its partition ids are made with another key than ours, so its usage
	// means nothing here.
	OtherKey bool

	unreadable bool // its topology differs, and its weights are missing or not of its hash
}

// silent reports whether no message of the process arrived for too long.
func (p *Process) silent(now time.Duration) bool {
	return p.ReceivedAt == 0 || now-p.ReceivedAt > meshsync.SilentAfter
}

// acknowledges reports whether the process has acknowledged a recent message of ours.
func (p *Process) acknowledges(now time.Duration) bool {
	return p.AckedAt != 0 && now-p.AckedAt <= OneWayAfter
}

// live reports whether the process has to be taken into account. Silence alone never
// ends that, because a process behind a cut goes on admitting. It ends when the
// process announced that it stops, or is silent and gossip has lost it too.
func (p *Process) live(now time.Duration) bool {
	switch {
	case p.Leaving:
		return false
	case p.Gossip == gossip.Dead:
		return !p.silent(now)
	}
	return p.ReceivedAt != 0 || p.Gossip == gossip.Alive
}

// state is the state of the process by itself, worst cause first.
func (p *Process) state(now time.Duration) State {
	switch {
	case p.silent(now):
		return StateSilent
	case p.OtherKey || p.unreadable || p.Full || p.Unsent > meshsync.BehindAfter || p.missing(now) > meshsync.SilentAfter:
		return StateBehind
	case !p.acknowledges(now) && (p.AckedAt != 0 || p.Heartbeats >= GoodHeartbeats):
		return StateOneWay
	case p.AckedAt == 0 || !p.Synced: // it has only just appeared, or was forgotten
		return StateJoining
	}
	return StateFresh
}

// missing is how long changes of the process have been missing here; 0: none are.
func (p *Process) missing(now time.Duration) time.Duration {
	if p.MissingSince == 0 {
		return 0
	}
	return now - p.MissingSince
}

// knowsAll reports whether all that the process has published or can forward is here.
func (p *Process) knowsAll() bool { return p.Synced && p.MissingSince == 0 && !p.ForwardsMissing }

// claims reports whether the process counts on more than its own region.
func (p *Process) claims() bool {
	return len(p.Members) > 1 || len(p.Members) == 1 && p.Members[0] != p.Region
}

// latest groups the processes by region, sorted, with one run of each instance: the
// newest, unless it does not send and an earlier one does. Such a run is a duplicate
// that keeps quiet, or has stopped, and the earlier one goes on admitting.
func latest(now time.Duration, processes []Process) map[string][]*Process {
	newest := make(map[[2]string]*Process, len(processes))
	for i := range processes {
		p := &processes[i]
		name := [2]string{p.Region, p.Instance}
		q := newest[name]
		if q == nil || p.silent(now) == q.silent(now) && p.Boot > q.Boot || !p.silent(now) && q.silent(now) {
			newest[name] = p
		}
	}
	known := make(map[string][]*Process)
	for _, p := range newest {
		known[p.Region] = append(known[p.Region], p)
	}
	for _, of := range known {
		slices.SortFunc(of, func(a, b *Process) int { return strings.Compare(a.Instance, b.Instance) })
	}
	return known
}

// alive is those of known that are live.
func alive(now time.Duration, known map[string][]*Process) map[string][]*Process {
	live := make(map[string][]*Process, len(known))
	for name, of := range known {
		for _, p := range of {
			if p.live(now) {
				live[name] = append(live[name], p)
			}
		}
	}
	return live
}

// health is the result of one evaluation of a region's processes.
type health struct {
	state      State // StateFresh, or the worst of any of its processes
	good       bool  // every process is received, up to date, and acknowledges us
	current    bool  // every process is received, up to date and has sent a snapshot: its usage is known
	heartbeats int   // the fewest of any process
}

// evaluate evaluates a region by its live processes; there is at least one.
func evaluate(now time.Duration, live []*Process) health {
	h := health{state: StateFresh, good: true, current: true, heartbeats: live[0].Heartbeats}
	for _, p := range live {
		state := p.state(now)
		h.state = max(h.state, state)
		h.heartbeats = min(h.heartbeats, p.Heartbeats)
		h.good = h.good && state <= StateJoining && p.acknowledges(now)
		h.current = h.current && state != StateSilent && state != StateBehind && p.Synced
	}
	return h
}

// evaluateAbsent evaluates a region without a live process by its former processes
// and the state that it had.
func evaluateAbsent(former []*Process, before State) health {
	h := health{state: StateSilent}
	switch before {
	case StateNeverSeen, StateLeft, StateDead:
		h.state = before
	}
	for _, p := range former {
		if p.Leaving {
			return health{state: StateLeft}
		}
		if p.Gossip == gossip.Dead && before != StateLeft {
			h.state = StateDead
		}
	}
	return h
}

// histories remember what each known process has been. A second process that starts
// in a region, or restarts, would otherwise take the whole region out of every view
// until its snapshot has arrived and its own view has grown. It is safe to leave it
// out for a while: it counts on no other region, so it claims its own region's share,
// in the same store that its siblings account for. That is not so of one that was reported
// dead and returns: while it does not count on us, its siblings use their region's share,
// and we may not count on that too. gossip.Remembered bounds how long the dead are known.
type histories map[quota.Process]history

type history struct {
	first      time.Duration // when it was first seen
	ready      bool          // it was fresh once
	advertised bool          // it advertised more than its own region once
}

// update records the live processes and forgets those that are not known any more.
func (hs histories) update(now time.Duration, known map[string][]*Process) {
	seen := make(map[quota.Process]bool, len(hs))
	for _, processes := range known {
		for _, p := range processes {
			seen[p.Process] = true
			if !p.live(now) {
				continue
			}
			h, ok := hs[p.Process]
			if !ok {
				h.first = now
			}
			h.ready = h.ready || p.state(now) == StateFresh
			h.advertised = h.advertised || p.claims()
			hs[p.Process] = h
		}
	}
	maps.DeleteFunc(hs, func(p quota.Process, _ history) bool { return !seen[p] })
}

// newcomer reports whether the process is so new that a healthy region is evaluated
// without it.
func (hs histories) newcomer(now time.Duration, p *Process) bool {
	h := hs[p.Process]
	return !h.ready && now-h.first < NewcomerFor
}

// inGrace reports whether the process is so new that it has no view to agree with.
// The first region that it counts on ends that.
func (hs histories) inGrace(now time.Duration, p *Process) bool {
	h := hs[p.Process]
	return !h.advertised && now-h.first < NewcomerFor
}

// without returns the processes that skip does not hold for, or all if it holds for
// all of them: a region needs at least one.
func without(live []*Process, skip func(*Process) bool) []*Process {
	if rest := slices.DeleteFunc(slices.Clone(live), skip); len(rest) > 0 {
		return rest
	}
	return live
}
