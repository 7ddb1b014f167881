package view

import (
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/region/members"
)

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

// evaluate evaluates a region by its live processes; there is at least one.
func evaluate(now time.Duration, live []*members.Member) members.Health {
	h := members.Judge(now, live[0])
	for _, p := range live[1:] {
		h = h.With(members.Judge(now, p))
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
