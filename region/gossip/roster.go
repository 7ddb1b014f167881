package gossip

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// roster is our own copy of who is there: the library's may only be read under a
// lock that is held while it calls us. Its methods that begin with Notify are
// called under that lock. They copy, signal, and call nothing of the library.
type roster struct {
	self    string // our name
	regions func(string) bool
	metrics *metrics
	changed chan struct{} // for whoever asked for Changed
	wake    chan struct{} // for Run

	mu      sync.Mutex
	members map[string]Member
	news    []Member // changes that Run has not logged yet, bounded
}

// maxNews bounds what waits to be logged; what does not fit is only seen.
const maxNews = 256

func newRoster(self string, regions func(string) bool, m *metrics) *roster {
	return &roster{
		self: self, regions: regions, metrics: m, members: map[string]Member{},
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
}

// NotifyAlive refuses strangers, each time they are mentioned. A dead or
// suspect stranger needs no refusal: the library only hears of it if it knows it.
func (r *roster) NotifyAlive(n *memberlist.Node) error {
	m, err := memberOf(n)
	if err != nil {
		r.metrics.refusedFor("metadata")
		return err
	}
	if n.Name != r.self && !r.regions(m.Region) {
		r.metrics.refusedFor("region")
		return fmt.Errorf("the topology here has no region %q", m.Region)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.members[n.Name]; !known && len(r.members) >= maxMembers {
		r.metrics.refusedFor("full")
		return errors.New("too many members")
	}
	return nil
}

// NotifyJoin hears of a node that is new, or alive again.
func (r *roster) NotifyJoin(n *memberlist.Node) { r.heard(n) }

// NotifyUpdate hears of new metadata.
func (r *roster) NotifyUpdate(n *memberlist.Node) { r.heard(n) }

// NotifyLeave hears of a node that died or left. The library knows which, and
// does not say: the State in the node that it hands out is not kept up to date.
// Who leaves as planned tells us itself.
func (r *roster) NotifyLeave(n *memberlist.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.members[n.Name]
	if !known || m.State != Alive {
		return
	}
	m.State = Dead
	if m.Self {
		m.State = Left // nobody buries himself
	}
	r.put(m)
}

func (r *roster) heard(n *memberlist.Node) {
	m, err := memberOf(n)
	if err != nil {
		return // NotifyAlive refused it
	}
	m.Self = n.Name == r.self
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, known := r.members[n.Name]; known && old.State == Left && old.Boot == m.Boot {
		return // old news that a goodbye has overtaken
	}
	r.put(m)
}

// put replaces what is known of a member and signals it; r.mu is held.
func (r *roster) put(m Member) {
	old, known := r.members[m.Name()]
	m.Since = time.Now()
	if known && old.State == m.State && old.Boot == m.Boot {
		m.Since = old.Since
	}
	if m == old {
		return
	}
	r.members[m.Name()] = m
	if (!known || old.State != m.State || old.Boot != m.Boot) && len(r.news) < maxNews {
		r.news = append(r.news, m)
	}
	signal(r.changed)
	signal(r.wake)
}

// all returns everybody, by region and instance.
func (r *roster) all() []Member {
	r.mu.Lock()
	ms := slices.Collect(maps.Values(r.members))
	r.mu.Unlock()
	slices.SortFunc(ms, func(a, b Member) int { return strings.Compare(a.Name(), b.Name()) })
	return ms
}

// takeNews returns the changes since the last call.
func (r *roster) takeNews() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.news
	r.news = nil
	return news
}

// forget drops those who have been gone for long enough.
func (r *roster) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, m := range r.members {
		if m.State != Alive && !m.Self && now.Sub(m.Since) > Remembered {
			delete(r.members, name)
			signal(r.changed)
		}
	}
}

// signal wakes whoever reads c, if he is not to wake anyway.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
