package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// Peer is one region as this process sees it: a row of GET /v1/regions.
type Peer struct {
	Region    string
	State     State
	Reason    quota.Reason  // why it is not counted on; ReasonNone when it is
	Text      string        // the same in words, "" when it is counted on
	Since     time.Duration // how long it has been in this state
	Heard     time.Duration // age of what was last heard, of the process unheard longest; Never
	Acked     time.Duration // age of what it acknowledges, of the process furthest behind; Never
	Remaining time.Duration // until it is counted on again, if it stays good
	Candidate bool          // we would count on it
	InUse     bool          // we do: its group is agreed
	Current   bool          // its estimates hold
	Processes []PeerProcess
}

// PeerProcess is one process of a region, of our own region a sibling.
type PeerProcess struct {
	Instance string
	Boot     int64
	State    State // by itself; StateDead or StateLeft when it no longer counts
	Heard    time.Duration
	Acked    time.Duration
	Unsent   time.Duration
	Digested bool
	Gossip   GossipState
	Members  []string // M as it advertises it
	Newcomer bool     // so new that a region in good standing is judged without it
}

// Never is the age of what did not happen.
const Never = time.Duration(-1)

// age is how long ago at was, Never for 0.
func age(now, at time.Duration) time.Duration {
	if at == 0 {
		return Never
	}
	return max(0, now-at)
}

// older is the larger age, Never being the largest.
func older(a, b time.Duration) time.Duration {
	if a == Never || b == Never {
		return Never
	}
	return max(a, b)
}

// peer describes a region and those of its processes that are known.
func (v *Viewer) peer(now time.Duration, s *standing, known []*Process) Peer {
	p := Peer{
		Region: s.region, State: s.state, Reason: s.cause, Since: now - s.since,
		Remaining: s.remaining(now), Candidate: s.in, Current: s.current,
		Heard: Never, Acked: Never, Processes: v.processes(now, known),
	}
	first := true
	for _, k := range known {
		if !k.live(now) {
			continue
		}
		heard, acked := age(now, k.Heard), age(now, k.Acked)
		if !first {
			heard, acked = older(heard, p.Heard), older(acked, p.Acked)
		}
		p.Heard, p.Acked, first = heard, acked, false
	}
	if !s.in {
		p.Text = s.text(now, known)
	}
	return p
}

func (v *Viewer) processes(now time.Duration, known []*Process) []PeerProcess {
	rows := make([]PeerProcess, 0, len(known))
	for _, k := range known {
		row := PeerProcess{
			Instance: k.Instance, Boot: k.Boot, State: k.judge(now),
			Heard: age(now, k.Heard), Acked: age(now, k.Acked), Unsent: k.Unsent,
			Digested: k.Digested, Gossip: k.Gossip, Members: slices.Clone(k.Members),
			Newcomer: v.newcomers.unmet(now, k),
		}
		switch {
		case k.live(now):
		case k.Leaving:
			row.State = StateLeft
		case k.Gossip == GossipDead:
			row.State = StateDead
		}
		rows = append(rows, row)
	}
	return rows
}

// text says why the region is not counted on, and names the process that it is
// about.
func (s *standing) text(now time.Duration, known []*Process) string {
	switch s.state {
	case StateNeverSeen:
		return "no process of it has been seen yet"
	case StateLeft:
		return "all of its processes said that they stop"
	case StateDead:
		return "its processes are silent, and gossip says that they are dead"
	case StateWaiting:
		return fmt.Sprintf("it is well again and will be counted on in %v", round(s.remaining(now)))
	}
	var said []string
	for _, p := range known {
		if p.live(now) && p.judge(now) == s.state {
			said = append(said, p.text(now))
		}
	}
	if len(said) == 0 {
		return "none of its processes is known any more"
	}
	return strings.Join(said, "; ")
}

// text says what is wrong with the process.
func (p *Process) text(now time.Duration) string {
	name := "process " + p.Instance
	switch p.judge(now) {
	case StateSilent:
		if p.Heard == 0 {
			return fmt.Sprintf("%s was never heard on the bus (gossip: %v)", name, p.Gossip)
		}
		return fmt.Sprintf("%s has been silent for %v (gossip: %v)", name, round(now-p.Heard), p.Gossip)
	case StateBehind:
		if p.OtherKey {
			return name + " uses another gossip key, so its partitions cannot be told apart from ours: " +
				"give all processes the same key_file, or without one the same cluster"
		}
		if p.Full {
			return name + " has no room left and turns totals away"
		}
		return fmt.Sprintf("%s has totals that it could not send for %v", name, round(p.Unsent))
	case StateOneWay:
		if p.Acked == 0 {
			return name + " is heard, and never acknowledged anything of ours"
		}
		return fmt.Sprintf("%s is heard, and acknowledges nothing newer than %v", name, round(now-p.Acked))
	case StateJoining:
		if p.Acked == 0 {
			return name + " has only just been heard"
		}
		return name + " has not sent all of its totals yet"
	}
	return name + " is well"
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
