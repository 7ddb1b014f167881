package view

import "time"

// newcomers remembers how well each process is known. A second process that starts
// in a region, or comes back from a restart, would otherwise take the whole region
// out of every view until its digest has been heard, and its own view has grown. It
// is safe to leave it out for a while: it counts on nobody, so it claims its own
// region's part, in the same store that its siblings speak for.
type newcomers map[processKey]acquaintance

type processKey struct {
	region, instance string
	boot             int64
}

// acquaintance is what is remembered of a process.
type acquaintance struct {
	first time.Duration // when it was first seen
	met   bool          // it was fresh once
	spoke bool          // it advertised more than its own region once
}

func (p *Process) key() processKey { return processKey{p.Region, p.Instance, p.Boot} }

// observe notes the live processes and forgets those that are not.
func (n newcomers) observe(now time.Duration, live map[string][]*Process) {
	seen := make(map[processKey]bool, len(n))
	for _, processes := range live {
		for _, p := range processes {
			k := p.key()
			a, ok := n[k]
			if !ok {
				a.first = now
			}
			a.met = a.met || p.judge(now) == StateFresh
			a.spoke = a.spoke || p.claims()
			n[k], seen[k] = a, true
		}
	}
	for k := range n {
		if !seen[k] {
			delete(n, k)
		}
	}
}

// claims reports whether the process counts on more than its own region.
func (p *Process) claims() bool {
	return len(p.Members) > 1 || len(p.Members) == 1 && p.Members[0] != p.Region
}

// unmet reports whether the process is so new that its region is judged without it.
func (n newcomers) unmet(now time.Duration, p *Process) bool {
	a := n[p.key()]
	return !a.met && now-a.first < NewcomerFor
}

// mute reports whether the process is so new that it has no view to agree with. It
// stops being so with the first region that it counts on.
func (n newcomers) mute(now time.Duration, p *Process) bool {
	a := n[p.key()]
	return !a.spoke && now-a.first < NewcomerFor
}

// without returns the processes that left does not hold for, or all when it holds
// for all of them: somebody must speak for a region.
func without(live []*Process, left func(*Process) bool) []*Process {
	var rest []*Process
	for _, p := range live {
		if !left(p) {
			rest = append(rest, p)
		}
	}
	if len(rest) == 0 {
		return live
	}
	return rest
}
