package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/region/gossip"
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
	p.members = []gossip.Member{member(p, gossip.Alive)}
	p.members[0].Self = true
	for _, q := range a.w.living() {
		if q == p {
			continue
		}
		a.inform(q, p, gossip.Alive, a.spread(aliveAfter))
		a.inform(p, q, gossip.Alive, a.spread(aliveAfter))
	}
}

// ended informs all of the end of a process.
func (a *gossipModel) ended(p *process, left bool) {
	for _, q := range a.w.living() {
		if left {
			a.inform(q, p, gossip.Dead, a.spread(aliveAfter))
		} else {
			a.inform(q, p, gossip.Dead, a.spread(deadAfter))
		}
	}
}

// cut cuts or heals gossip between two regions.
func (a *gossipModel) cut(i, j int, yes bool) {
	a.cuts[i][j], a.cuts[j][i] = yes, yes
	state, after := gossip.Dead, deadAfter
	if !yes {
		state, after = gossip.Alive, healAfter
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
		a.know(q, p, gossip.Dead)
		a.inform(q, p, gossip.Alive, lasts)
	}
}

func (a *gossipModel) spread(d time.Duration) time.Duration {
	return d/2 + time.Duration(a.w.dice.Int64N(int64(d)))
}

// inform has one process know about another after a while, unless gossip is cut.
func (a *gossipModel) inform(q, p *process, state gossip.State, after time.Duration) {
	a.w.At(a.w.now+after, func() {
		if a.cuts[q.region.place][p.region.place] && state == gossip.Alive || p.gone && state == gossip.Alive {
			return
		}
		a.know(q, p, state)
	})
}

func (a *gossipModel) know(q, p *process, state gossip.State) {
	if q.gone || q.frozen {
		return
	}
	i := slices.IndexFunc(q.members, func(m gossip.Member) bool {
		return m.Region == p.self.Region && m.Instance == p.self.Instance
	})
	if i < 0 {
		q.members = append(slices.Clone(q.members), member(p, state))
		slices.SortFunc(q.members, func(x, y gossip.Member) int { return strings.Compare(x.Name(), y.Name()) })
	} else {
		old := q.members[i]
		if old.Boot > p.self.Boot || old.Boot == p.self.Boot && old.State == state {
			return
		}
		q.members = slices.Clone(q.members)
		self := q.members[i].Self
		q.members[i] = member(p, state)
		q.members[i].Self = self
	}
	q.look = q.region.w.now
	q.settle()
}

func member(p *process, state gossip.State) gossip.Member {
	return gossip.Member{Process: p.self, State: state}
}
