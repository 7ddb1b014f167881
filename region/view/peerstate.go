package view

import (
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
)

// How an excluded region comes back.
const (
	// FirstWait is how long it must have been good: the time of members.GoodHeartbeats.
	FirstWait = members.GoodHeartbeats * meshsync.HeartbeatEvery
	// LongestWait bounds FirstWait, which doubles with exclusions that follow each
	// other.
	LongestWait = 30 * time.Second
	// StableAfter is how long after its return a region must have stayed for its next
	// exclusion to count as the first.
	StableAfter = time.Minute
)

// peerState is what is remembered of one peer region, and how it enters and leaves
// the candidate:
//
//	        fresh                            anything but fresh
//	new ─────────▶ in ─────────────────────────────────┐
//	 ▲             ▲                                   ▼
//	 │             │ good for wait, GoodHeartbeats    out
//	 │             └────────────────── waiting ◀─fresh─┤
//	 └────── left as planned, after StableAfter ───────┘
//
// wait is FirstWait after the first exclusion, and doubles up to LongestWait with
// each that follows within StableAfter of the return. Good means received, up to date
// and acknowledging us; the snapshot may come while the wait runs.
type peerState struct {
	state members.State
	since time.Duration // when state began
	in    bool          // counted on: part of the candidate
	// cause is why it is treated as unreachable. It outlives the state: a region that waits is
	// still out for the reason for which it was excluded.
	cause   quota.Reason
	causeAt time.Duration
	current bool // its usage is known, whether or not it is counted on

	good      bool // at the last evaluation
	goodSince time.Duration
	entered   time.Duration // when it was last let in
	wait      time.Duration // how long it must be good to be let in; 0: not at all
}

func (s *peerState) step(now time.Duration, h members.Health) {
	if h.Good && !s.good {
		s.goodSince = now
	}
	s.good, s.current = h.Good, h.Current
	switch {
	case h.State != members.StateFresh:
		s.exclude(now, h.State)
	case s.in:
	case s.remaining(now) == 0 && (s.wait == 0 || h.Heartbeats >= members.GoodHeartbeats):
		s.in, s.entered, s.cause = true, now, quota.ReasonNone
		s.become(now, members.StateFresh)
	default:
		s.become(now, members.StateWaiting)
	}
}

// remaining is how much of the wait is left if the region stays good.
func (s *peerState) remaining(now time.Duration) time.Duration {
	if s.in {
		return 0
	}
	if !s.good {
		return s.wait
	}
	return max(0, s.wait-(now-s.goodSince))
}

// exclude takes the region out, or keeps it out, for a state that is not fresh.
func (s *peerState) exclude(now time.Duration, state members.State) {
	was := s.in
	if was {
		s.leave(now, state == members.StateLeft)
	}
	if s.overrides(now, state, was) {
		s.cause, s.causeAt = quota.ReasonPeerSilent, now
		if state == members.StateOneWay {
			s.cause = quota.ReasonOneWay
		}
	}
	s.become(now, state)
}

// overrides reports whether state explains better than the present cause why the
// region is out; on its way back it passes through states that do not.
func (s *peerState) overrides(now time.Duration, state members.State, was bool) bool {
	switch {
	case s.cause == quota.ReasonProcessPaused && now-s.causeAt < JoiningFor:
		// After a pause of ours every peer looks silent until it had time for a heartbeat.
		return false
	case was:
		return true
	case state == members.StateJoining:
		return false
	case state == members.StateOneWay && s.cause == quota.ReasonPeerSilent && s.wait > 0:
		// A region that is received again needs a moment to acknowledge us.
		return s.state == members.StateOneWay && now-s.since > members.OneWayAfter
	}
	return true
}

// leave ends a time of being counted on and sets the wait for the next.
func (s *peerState) leave(now time.Duration, planned bool) {
	s.in = false
	stayed := now - s.entered
	switch {
	case stayed >= StableAfter && planned:
		s.wait = 0
	case stayed >= StableAfter:
		s.wait = FirstWait
	default:
		s.wait = min(max(2*s.wait, FirstWait), LongestWait)
	}
}

// reset excludes the region because this process was paused, and what it knows is as
// old as that.
func (s *peerState) reset(now time.Duration) {
	if s.in {
		s.leave(now, false)
	}
	s.good = false
	s.wait = max(s.wait, FirstWait)
	s.cause, s.causeAt = quota.ReasonProcessPaused, now
}

func (s *peerState) become(now time.Duration, state members.State) {
	if s.state != state {
		s.state, s.since = state, now
	}
}

// NewcomerFor is how long a process that joins a healthy region is left out of the
// evaluation of that region: its own JoiningFor, a heartbeat each way, and a
// margin. It uses no more than its own region's share meanwhile.
const NewcomerFor = 3 * time.Second

func claims(p *members.Member) bool {
	return len(p.Members) > 1 || len(p.Members) == 1 && p.Members[0] != p.Region
}

// latest groups the processes by region, sorted, with one run of each instance: the
// newest, unless it does not send and an earlier one does. Such a run is a duplicate
// that keeps quiet, or has stopped, and the earlier one goes on admitting.
func latest(now time.Duration, processes []members.Member) map[string][]*members.Member {
	newest := make(map[[2]string]*members.Member, len(processes))
	for i := range processes {
		p := &processes[i]
		name := [2]string{p.Region, p.Instance}
		q := newest[name]
		if q == nil || p.Silent(now) == q.Silent(now) && p.Boot > q.Boot || !p.Silent(now) && q.Silent(now) {
			newest[name] = p
		}
	}
	known := make(map[string][]*members.Member)
	for _, p := range newest {
		known[p.Region] = append(known[p.Region], p)
	}
	for _, of := range known {
		slices.SortFunc(of, func(a, b *members.Member) int { return strings.Compare(a.Instance, b.Instance) })
	}
	return known
}

func alive(now time.Duration, known map[string][]*members.Member) map[string][]*members.Member {
	live := make(map[string][]*members.Member, len(known))
	for name, of := range known {
		for _, p := range of {
			if members.Judge(now, p).Live {
				live[name] = append(live[name], p)
			}
		}
	}
	return live
}

// evaluate evaluates the region by its live processes, a healthy one without its newcomers. One that is to be counted
// on again must have sent all that it knows.
func (s *peerState) evaluate(now time.Duration, live, known []*members.Member) members.Health {
	if len(live) == 0 {
		return evaluateAbsent(now, known, s.state)
	}
	if s.in {
		live = without(live, func(p *members.Member) bool { return newcomer(now, p) })
	}
	h := members.Judge(now, live[0])
	for _, p := range live[1:] {
		h = h.With(members.Judge(now, p))
	}
	if !s.in && !h.Complete {
		h.State = max(h.State, members.StateJoining)
	}
	return h
}

// evaluateAbsent evaluates a region without a live process by its former processes
// and the state that it had.
func evaluateAbsent(now time.Duration, former []*members.Member, before members.State) members.Health {
	h := members.Health{State: members.StateSilent}
	if before == members.StateNeverSeen || before >= members.StateDead {
		h.State = before
	}
	for _, p := range former {
		if state := members.Judge(now, p).State; state >= members.StateDead {
			h.State = max(h.State, state)
		}
	}
	return h
}

// remember notes what each live process has been. A second process that starts
// in a region, or restarts, would otherwise take the whole region out of every view
// until its snapshot has arrived and its own view has grown. It is safe to leave it
// out for a while: it counts on no other region, so it claims its own region's share,
// in the same store that its siblings account for. That is not so of one that was reported
// dead and returns: while it does not count on us, its siblings use their region's share,
// and we may not count on that too. gossip.Remembered bounds how long the dead are known.
func remember(now time.Duration, live map[string][]*members.Member) {
	for _, of := range live {
		for _, p := range of {
			if p.View.First == 0 {
				p.View.First = max(now, 1)
			}
			p.View.Ready = p.View.Ready || members.Judge(now, p).State == members.StateFresh
			p.View.Advertised = p.View.Advertised || claims(p)
		}
	}
}

// newcomer reports whether the process is so new that a healthy region is evaluated
// without it.
func newcomer(now time.Duration, p *members.Member) bool {
	return !p.View.Ready && now-p.View.First < NewcomerFor
}

// inGrace reports whether the process is so new that it has no view to agree with.
// The first region that it counts on ends that.
func inGrace(now time.Duration, p *members.Member) bool {
	return !p.View.Advertised && now-p.View.First < NewcomerFor
}

// without returns the processes that skip does not hold for, or all if it holds for
// all of them: a region needs at least one.
func without(live []*members.Member, skip func(*members.Member) bool) []*members.Member {
	if rest := slices.DeleteFunc(slices.Clone(live), skip); len(rest) > 0 {
		return rest
	}
	return live
}
