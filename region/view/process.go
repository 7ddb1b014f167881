package view

import (
	"time"

	"github.com/regiond/regiond/quota"
)

// GossipState is what gossip says of a process. It explains, and it can end the
// wait for a process that the bus has lost; it never makes one count as heard.
type GossipState uint8

const (
	// GossipUnknown: gossip has never heard of it, or is not there.
	GossipUnknown GossipState = iota
	// GossipAlive: it answers gossip's probes, which says nothing about the bus.
	GossipAlive
	// GossipDead: it does not answer, or has left; the bus says which.
	GossipDead
)

// String returns the word used in answers and logs.
func (g GossipState) String() string {
	return word([]string{"unknown", "alive", "dead"}, uint8(g))
}

// Process is what is known of one process that is not this one; siblings, the
// other processes of our own region, are among them. Times are on the monotonic
// clock of Input.Now, and 0 means never.
type Process struct {
	Region, Instance string
	Boot             int64          // tells the lives of one instance apart; the highest is the present one
	Heard            time.Duration  // when its newest message came
	Acked            time.Duration  // when we sent the newest message of ours that it acknowledges
	Beats            int            // how many came in a row without a silence between them
	Members          []string       // M as its newest beat advertises it; nil before the first
	Topology         uint64         // Hash of its regions and weights; 0 before the first beat
	Weights          []quota.Weight // these, when its newest beat spells them out
	Unsent           time.Duration  // age of its oldest unsent change
	Digested         bool           // all of its totals have been folded since it was last missed
	Leaving          bool           // it said that it stops
	Full             bool           // it had to turn totals away for want of room
	OtherKey         bool           // it names partitions by another key than ours: none of its totals means anything here
	Gossip           GossipState
}

// Input is all that Observe looks at. It is only read, and not kept.
type Input struct {
	Now       time.Duration // monotonic, at least that of the call before
	Processes []Process
}

// silent reports whether nothing came from the process for too long.
func (p *Process) silent(now time.Duration) bool {
	return p.Heard == 0 || now-p.Heard > SilentAfter
}

// hears reports whether the process has lately acknowledged a message of ours.
func (p *Process) hears(now time.Duration) bool {
	return p.Acked != 0 && now-p.Acked <= UnheardAfter
}

// live reports whether the process has to be reckoned with. Silence alone never
// ends that: a process behind a cut goes on admitting. It ends when the process said
// that it stops, or when it is silent and gossip agrees that it is gone.
func (p *Process) live(now time.Duration) bool {
	switch {
	case p.Leaving:
		return false
	case p.Gossip == GossipDead:
		return !p.silent(now)
	}
	return p.Heard != 0 || p.Gossip == GossipAlive
}

// judge says how the process stands, worst cause first.
func (p *Process) judge(now time.Duration) State {
	switch {
	case p.silent(now):
		return StateSilent
	case p.OtherKey || p.Full || p.Unsent > BehindAfter:
		return StateBehind
	case !p.hears(now) && (p.Acked != 0 || p.Beats >= GoodBeats):
		return StateOneWay
	case p.Acked == 0 || !p.Digested: // it has only just been heard, or was forgotten
		return StateJoining
	}
	return StateFresh
}
