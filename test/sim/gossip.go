package sim

import (
	"time"

	"github.com/regiond/regiond/region/members"
)

// gossipModel is a model of gossip: it informs processes, after a delay, that another is
// alive, has left or is dead. It has cuts of its own, and may be wrong.
type gossipModel struct {
	w    *World
	cuts [][]bool // by region, both ways
}

const (
	aliveAfter = 300 * time.Millisecond // until a newcomer is known, and until a leave is
	deadAfter  = 15 * time.Second       // until silence is death
	healAfter  = 4 * time.Second        // until a cut that heals is noticed
)

// joined informs all of a new process, and it of all.
func (a *gossipModel) joined(p *process) {
	for _, q := range a.w.living() {
		if q == p {
			continue
		}
		a.inform(q, p, members.Alive, a.spread(aliveAfter))
		a.inform(p, q, members.Alive, a.spread(aliveAfter))
	}
}

// ended informs all of the end of a process.
func (a *gossipModel) ended(p *process, left bool) {
	for _, q := range a.w.living() {
		if left {
			a.inform(q, p, members.Dead, a.spread(aliveAfter))
		} else {
			a.inform(q, p, members.Dead, a.spread(deadAfter))
		}
	}
}

// cut cuts or heals gossip between two regions.
func (a *gossipModel) cut(i, j int, yes bool) {
	a.cuts[i][j], a.cuts[j][i] = yes, yes
	state, after := members.Dead, deadAfter
	if !yes {
		state, after = members.Alive, healAfter
	}
	for _, p := range a.w.regions[i].processes {
		for _, q := range a.w.regions[j].processes {
			for _, pair := range [][2]*process{{p, q}, {q, p}} {
				a.w.At(a.w.now+a.spread(after), func() {
					if a.cuts[i][j] == yes && !pair[1].gone {
						a.know(pair[0], pair[1], state)
					}
				})
			}
		}
	}
}

// misreport has gossip believe for a while that a process is dead that is not.
func (a *gossipModel) misreport(p *process, lasts time.Duration) {
	for _, q := range a.w.living() {
		if q == p {
			continue
		}
		a.know(q, p, members.Dead)
		a.inform(q, p, members.Alive, lasts)
	}
}

func (a *gossipModel) spread(d time.Duration) time.Duration {
	return d/2 + time.Duration(a.w.dice.Int64N(int64(d)))
}

// inform has one process know about another after a while, unless gossip is cut.
func (a *gossipModel) inform(q, p *process, state members.Word, after time.Duration) {
	a.w.At(a.w.now+after, func() {
		if a.cuts[q.region.place][p.region.place] && state == members.Alive || p.gone && state == members.Alive {
			return
		}
		a.know(q, p, state)
	})
}

func (a *gossipModel) know(q, p *process, state members.Word) {
	if q.gone || q.frozen {
		return
	}
	q.members.Lock()
	old := q.members.All[p.self]
	for other, m := range q.members.All {
		switch {
		case other.Region != p.self.Region || other.Instance != p.self.Instance || m.Gossip.State == "":
		case other.Boot > p.self.Boot:
			q.members.Unlock()
			return
		case other.Boot < p.self.Boot:
			m.Gossip = members.Gossip{}
			q.members.Prune(m)
		}
	}
	same := old != nil && old.Gossip.State == state
	q.members.Entry(p.self).Gossip.State = state
	q.members.Unlock()
	if same {
		return
	}
	q.look = q.region.w.now
	q.settle()
}
