package meshtest

import (
	"slices"
	"time"

	meshsync "github.com/regiond/regiond/sync"
)

// route holds what is under way from one bus to another, the next to arrive first.
// Messages that are due at the same moment stay in their order.
type route struct {
	to   *Bus
	flow []flight
}

type flight struct {
	due time.Time
	msg meshsync.Message
}

// send puts a message on its way. n.mu is held.
func (n *Network) send(from, to *Bus, m meshsync.Message) {
	l := n.links[[2]string{from.region, to.region}]
	copies := 1
	if l.Repeat > 0 && n.dice.Float64() < l.Repeat {
		copies = 2
	}
	for range copies {
		if l.Cut || l.Loss > 0 && n.dice.Float64() < l.Loss {
			continue
		}
		delay := l.Latency
		if l.Jitter > 0 {
			delay += time.Duration(n.dice.Int64N(int64(l.Jitter)))
		}
		n.dispatch(from, to, m, delay)
	}
}

func (n *Network) dispatch(from, to *Bus, m meshsync.Message, delay time.Duration) {
	r := from.routes[to]
	if r == nil {
		r = &route{to: to}
		from.routes[to] = r
	}
	if delay == 0 && len(r.flow) == 0 {
		to.deliver(m)
		return
	}
	due := time.Now().Add(delay)
	at := len(r.flow)
	for at > 0 && r.flow[at-1].due.After(due) {
		at--
	}
	r.flow = slices.Insert(r.flow, at, flight{due, m})
	time.AfterFunc(delay, func() { n.arrive(r) })
}

// arrive delivers all that is due.
func (n *Network) arrive(r *route) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for len(r.flow) > 0 && !r.flow[0].due.After(now) {
		r.to.deliver(r.flow[0].msg)
		r.flow = r.flow[1:]
	}
}
