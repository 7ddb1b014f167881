package view

import "time"

// finding is what one look at the processes of a region tells.
type finding struct {
	state   State // StateFresh, or what is worst about any of its processes
	hearing bool  // every process is heard, up to date, and hears us
	current bool  // every process is heard, up to date and digested: its figures hold
	beats   int   // the fewest of any process
}

// find judges a region by its live processes; there is at least one.
func find(now time.Duration, live []*Process) finding {
	f := finding{state: StateFresh, hearing: true, current: true, beats: live[0].Beats}
	for _, p := range live {
		state := p.judge(now)
		f.state = max(f.state, state)
		f.beats = min(f.beats, p.Beats)
		f.hearing = f.hearing && state <= StateJoining && p.hears(now)
		f.current = f.current && state != StateSilent && state != StateBehind && p.Digested
	}
	return f
}

// absent judges a region without a live process by what is left of it: rest are its
// processes that are gone, before is the state that it had.
func absent(rest []*Process, before State) finding {
	f := finding{state: StateSilent}
	switch before {
	case StateNeverSeen, StateLeft, StateDead:
		f.state = before
	}
	for _, p := range rest {
		if p.Leaving {
			return finding{state: StateLeft}
		}
		if p.Gossip == GossipDead && before != StateLeft {
			f.state = StateDead
		}
	}
	return f
}
