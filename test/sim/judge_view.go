package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
)

const (
	// disagreeFor is how long two processes may count on overlapping groups. A heartbeat shows
	// that a group has changed. If none comes, none acknowledges us either: what was sent up
	// to the change was acknowledged at best, so the region is one-way 2 s after it, at the next
	// look, 50 ms later. Silence is noticed before that, after 1.3 s.
	disagreeFor = 2050 * time.Millisecond
	// silentFor is how long a region that is counted on may be silent: 1.3 s and a look. It is not the product's own constant.
	silentFor = 1400 * time.Millisecond
	// keptAfter is how much longer than it counts the judge remembers what was received.
	keptAfter = 2 * time.Minute
	// modesIn is the time in which is counted how often a mode changes: waits double with
	// each return.
	modesIn = time.Minute
)

// looked judges what a process sees, after it has looked.
func (j *judge) looked(p *process) {
	v := p.ceilings.View()
	mode, reason := v.Mode(quota.FailShare)
	k := &p.known
	if v.Members != k.members {
		k.members, k.alone = v.Members, j.w.now
	}
	if mode != k.mode {
		k.mode = mode
		k.modes = append(k.modes, j.w.now)
		j.modes[mode] = true
		j.w.trace.note(j.w.now, p, fmt.Sprintf("mode %v %v, M %v", mode, reason, v.Heartbeat.Members))
		j.often(p)
		j.calmMode(p, mode)
	}
	j.receives(p, v)
	j.disjoint(p, v)
	j.noteStates(p, v, reason)
	if j.looks++; j.looks%64 == 0 {
		j.compare(p)
	}
}

// often holds a process to LV-3.
func (j *judge) often(p *process) {
	k := &p.known
	for len(k.modes) > 0 && k.modes[0] < j.w.now-modesIn {
		k.modes = k.modes[1:]
	}
	if most := 4 + 12*(len(j.w.regions)-1); len(k.modes) > most {
		j.violated("LV-3 flapping", p, "%d changes of mode within %v, at most %d are expected", len(k.modes), modesIn, most)
	}
}

// calmMode: nothing is wrong for long, so nothing changes but towards global.
func (j *judge) calmMode(p *process, mode quota.Mode) {
	if mode != quota.ModeGlobal && j.w.now-j.calm > 2*time.Minute && j.w.well() {
		j.violated("LV-3 mode without cause", p, "mode %v, and nothing has been wrong for %v", mode, j.w.now-j.calm)
	}
}

// receives: a region that is counted on is received from, whatever gossip reports.
func (j *judge) receives(p *process, v *view.View) {
	for i, s := range j.w.regions {
		if s == p.region || !v.Members.Has(i) {
			continue
		}
		newest := time.Duration(-1)
		for q, at := range p.known.lastFrom {
			if q.region == s {
				newest = max(newest, at)
			}
		}
		if j.w.now-newest > silentFor {
			j.violated("LV-3 mode is not by health", p, "%s is counted on and was not received from for %v", s.name, j.w.now-newest)
		}
	}
}

// disjoint holds two processes to what groups are: the same, or without a region in common.
func (j *judge) disjoint(p *process, v *view.View) {
	if p.frozen {
		return
	}
	for _, q := range j.w.living() {
		if q.region == p.region {
			continue
		}
		pair := [2]int{min(p.number, q.number), max(p.number, q.number)}
		w := q.ceilings.View()
		m, n := v.Members, w.Members
		if q.frozen || m == n || m[0]&n[0]|m[1]&n[1] == 0 || j.dead(p, q) || j.dead(q, p) {
			delete(j.overlaps, pair)
			continue
		}
		o, ok := j.overlaps[pair]
		if forming := forms(v, w) || forms(w, v); !ok || o.forming && !forming {
			o = overlap{since: j.w.now, forming: forming && !ok}
			j.overlaps[pair] = o
		}
		if j.w.now-o.since > j.mayDisagree(p, q) {
			j.violated("G-3 groups overlap", p, "it counts on %b, %s/%s on %b, for %v", m[0], q.self.Region, q.self.Instance, n[0], j.w.now-o.since)
			delete(j.overlaps, pair)
		}
	}
}

// overlap is of the groups of two processes.
type overlap struct {
	since time.Duration
	// forming: both advertise one group, and only one of them counts on it yet. The other misses a heartbeat. It may take
	// disagreeFor until it notices that and advertises another group, and the first may take disagreeFor to learn of it: since
	// then begins again, once.
	forming bool
}

// forms reports whether a process that counts on nobody yet advertises the group that another counts on.
func forms(v, w *view.View) bool {
	return v.Members.Len() == 1 && w.Members.Len() > 1 && slices.Equal(v.Heartbeat.Members, w.Heartbeat.Members)
}

// dead reports whether a process must take another for dead, whether or not it is: the bus
// brings nothing of it, and gossip says so.
func (j *judge) dead(p, q *process) bool {
	at, ok := p.known.lastFrom[q]
	return (!ok || j.w.now-at > silentFor) && slices.ContainsFunc(p.members.Others(), func(m members.Member) bool {
		return m.Process == q.self && m.Gossip.State == members.Dead
	})
}

// mayDisagree is how long two processes may count on overlapping groups. A newcomer that
// counts on nobody is waited for a little longer: it claims its region's own part.
func (j *judge) mayDisagree(p, q *process) time.Duration {
	if newcomer(p) || newcomer(q) {
		return view.NewcomerFor + disagreeFor
	}
	return disagreeFor
}

func newcomer(p *process) bool {
	return p.now() < view.NewcomerFor+disagreeFor && p.ceilings.View().Members.Len() == 1
}
