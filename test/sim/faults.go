package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// Faults are verbs of the world: each is one thing that goes wrong, or right again.
// They may be called between events, and from a function given to At.

// fault writes a fault into the trace.
func (w *World) fault(p *process, format string, args ...any) {
	w.trace.note(w.now, p, fmt.Sprintf(format, args...))
	if w.judge != nil {
		w.judge.faulted()
	}
}

// Cut cuts or heals the bus from one region to another, one way.
func (w *World) Cut(from, to int, yes bool) {
	w.fault(nil, "bus %s → %s: cut %t", w.regions[from].name, w.regions[to].name, yes)
	w.links[from][to].cut = yes
}

// CutGossip cuts or heals gossip between two regions.
func (w *World) CutGossip(i, j int, yes bool) {
	w.fault(nil, "gossip %s, %s: cut %t", w.regions[i].name, w.regions[j].name, yes)
	w.gossip.cut(i, j, yes)
}

// Weather sets how messages fare from one region to another: how many of them are
// lost, come twice or come late, from 0 to 1.
func (w *World) Weather(from, to int, loss, twice, late float64) {
	w.fault(nil, "bus %s → %s: loss %.2f, twice %.2f, late %.2f", w.regions[from].name, w.regions[to].name, loss, twice, late)
	l := &w.links[from][to]
	l.loss, l.twice, l.late = loss, twice, late
}

// weather sets the Weather between all regions.
func (w *World) weather(loss, twice, late float64) {
	for a := range w.regions {
		for b := range w.regions {
			if a != b {
				w.Weather(a, b, loss, twice, late)
			}
		}
	}
}

// Disconnect takes the bus away from a region's processes, or gives it back: then they
// know that they may have missed something.
func (w *World) Disconnect(place int, yes bool) {
	s := w.regions[place]
	w.fault(nil, "%s: disconnected from the bus %t", s.name, yes)
	for _, p := range slices.Clone(s.processes) {
		p.bus.down = yes
		if !yes && !p.frozen {
			p.mesh.Reconnected()
			p.settle()
		}
	}
}

// Deafen cuts or heals the bus between one process and another region, both ways: a
// sibling may still be connected.
func (w *World) Deafen(p *process, to int, yes bool) {
	w.fault(p, "bus to and from %s: cut %t", w.regions[to].name, yes)
	p.bus.deaf[w.regions[to]] = yes
}

// StoreAway takes a region's store away, or gives it back.
func (w *World) StoreAway(place int, yes bool) {
	s := w.regions[place]
	w.fault(nil, "%s: store away %t", s.name, yes)
	s.store.away = yes
	w.hit(s)
}

// Flush empties a region's store.
func (w *World) Flush(place int) {
	s := w.regions[place]
	w.fault(nil, "%s: the store lost everything", s.name)
	s.store.forget()
	w.endHolds(s)
	s.harmed = w.now
	w.hit(s)
	if w.judge != nil {
		w.judge.forgot(s)
	}
}

// Reset deletes what a region has logged of a tenant: it may be used again.
func (w *World) Reset(place int, tenant string) {
	s := w.regions[place]
	w.fault(nil, "%s: %s is reset", s.name, tenant)
	s.store.reset(tenant)
	w.bound.reset(s, tenant)
}

// Rewind has a region's store lose its latest writes; the world must be Lossy.
func (w *World) Rewind(place int, while time.Duration) {
	s := w.regions[place]
	units := s.store.rewind(while)
	w.endHolds(s)
	w.fault(nil, "%s: the store lost the writes of %v, %d units", s.name, while, units)
	w.hit(s)
	if units > 0 {
		w.reached(suffixLost)
	}
}

// Step moves a region's store clock. Its processes notice within a second.
func (w *World) Step(place int, by time.Duration) {
	s := w.regions[place]
	w.fault(nil, "%s: the store's clock steps by %v", s.name, by)
	s.stepped += by
	if by > unseen {
		s.harmed = w.now
		w.endHolds(s)
	}
	w.hit(s)
	w.At(w.now+time.Duration(w.dice.Int64N(int64(time.Second))), func() {
		switch {
		case s.seen > s.stepped:
			w.reached(steppedBack)
		case s.seen < s.stepped:
			w.reached(steppedAhead)
		}
		s.seen = s.stepped
	})
}

// endHolds notes that what a region's store holds may have ended.
func (w *World) endHolds(s *simRegion) {
	if w.bound != nil {
		w.bound.ended(s, "")
	}
}

func (w *World) hit(s *simRegion) {
	if w.judge != nil {
		w.judge.disturbed(s.place)
	}
}

// freeze stops a process for a while, as SIGSTOP does.
func (w *World) freeze(p *process, lasts time.Duration) {
	w.fault(p, "frozen for %v", lasts)
	p.bearWitness()
	p.frozen = true
	w.At(w.now+lasts, func() {
		if p.gone {
			return
		}
		w.fault(p, "thawed")
		p.known.thawed = w.now
		p.frozen = false
		inbox := p.inbox
		p.inbox = nil
		lookFirst := w.dice.IntN(2) == 0
		if lookFirst { // either may come first: the view manager's goroutine, or the mesh's
			p.settle()
		}
		for _, m := range inbox {
			p.receive(m)
		}
		p.settle()
	})
}

// kill ends a process as SIGKILL does, or as SIGTERM does: then it leaves.
func (w *World) kill(p *process, gracefully bool) {
	w.fault(p, "ended, leaving gracefully: %t", gracefully)
	p.bearWitness()
	if gracefully && !p.frozen {
		if p.lending != nil {
			p.lending.leave()
		}
		p.mesh.Leave()
	} else {
		gracefully = false
		if p.ceilings.Ledger().Unsent() > 0 {
			w.reached(crashedUnpublished)
		}
		w.hit(p.region) // its unpublished local admissions are gone
	}
	p.gone = true
	p.region.processes = slices.DeleteFunc(slices.Clone(p.region.processes), func(q *process) bool { return q == p })
	w.gossip.ended(p, gracefully)
	if w.judge != nil {
		for pair := range w.judge.overlaps {
			if pair[0] == p.number || pair[1] == p.number {
				delete(w.judge.overlaps, pair)
			}
		}
	}
}

// begin starts a process in a region.
func (w *World) begin(place int, instance string) *process {
	w.fault(nil, "%s: %s starts", w.regions[place].name, instance)
	p := w.regions[place].start(instance)
	p.bus.down = w.regions[place].disconnected()
	return p
}

// disconnected reports whether the region's other processes are.
func (s *simRegion) disconnected() bool { return len(s.processes) > 1 && s.processes[0].bus.down }

// bearWitness has a process that ends or freezes take a turn, if no other can see what happened to the store.
func (p *process) bearWitness() {
	s := p.region
	sees := func(o *process) bool { return !o.frozen && o.lending.since < s.harmed }
	if p.lending == nil || !sees(p) || slices.ContainsFunc(s.processes, func(o *process) bool { return o != p && sees(o) }) {
		return
	}
	away := s.store.away
	s.store.away = false
	p.lending.takeTurn()
	s.store.away = away
}

// whole reports whether a region's store can be asked, and a process that runs sees whatever happens to it.
func (s *simRegion) whole() bool {
	return !s.store.away && slices.ContainsFunc(s.processes, func(p *process) bool { return !p.frozen && p.lending.since < s.w.now })
}

// reload gives a region another topology, unless it has a newer one: no operator rolls
// out two at once and leaves them mixed. It is false where a process cannot take it now.
func (w *World) reload(place, version int, top *region.Topology) bool {
	s := w.regions[place]
	if version < s.version {
		return true
	}
	if w.bound != nil && (s.store.away || slices.ContainsFunc(s.processes, func(p *process) bool { return p.frozen })) {
		return false
	}
	s.version = version
	w.fault(nil, "%s: reloads", s.name)
	w.reloaded = true
	s.former = append(s.former, former{s.topology, w.now})
	s.topology = top
	for _, p := range slices.Clone(s.processes) {
		if p.lending != nil {
			if err := p.lending.state.Adopt(context.Background(), top); err != nil {
				panic("sim: " + err.Error()) // the world's own mistake
			}
		}
		if err := p.limiter.Configure(p.enforced()); err != nil {
			panic("sim: " + err.Error()) // the world's own mistake
		}
		p.ceilings.Configure(top)
		p.look = w.now
		p.settle()
	}
	return true
}

// poison has a process receive messages that must change nothing.
func (w *World) poison(p *process) {
	author := w.regions[(p.region.place+1)%len(w.regions)]
	from := quota.Process{Region: author.name, Instance: "stranger", Boot: 1}
	now := author.nowUS()
	group := func(bucket int64) []wire.Group {
		return []wire.Group{{Limit: "p0.all", WindowUS: 60_000_000, Bucket: bucket, IDs: []uint64{7}, Generations: []int64{now}, Units: []int64{5}}}
	}
	usage := func(u wire.Usage) []byte { return wire.Append(nil, &u) }
	bad := []meshsync.Message{
		{Subject: meshsync.SubjectUsage + author.name, Data: usage(wire.Usage{Head: wire.Head{From: from, Seq: 1}, Number: 1, TimeUS: now, Groups: group(now / 60_000_000)})},
		{Subject: meshsync.SubjectUsage + p.region.name + "x", Data: usage(wire.Usage{Head: wire.Head{From: from, Seq: 1}, Number: 1, TimeUS: now})},
		{Subject: meshsync.SubjectUsage + p.region.name, Data: usage(wire.Usage{Head: wire.Head{From: from, Seq: 1}, Number: 1, TimeUS: now, Groups: group(now / 60_000_000)})},
		{Subject: meshsync.SubjectUsage + author.name, Data: usage(wire.Usage{Head: wire.Head{From: from, Seq: 1}, Number: 1, TimeUS: now, Groups: group(-1)})},
	}
	names := []string{"BUS-6 rejection", "BUS-9 author", "BUS-9 author", "BUS-8 range"}
	for i, m := range bad {
		if m.Data = p.secret.Sign(m.Subject, m.Data); i == 0 {
			m.Data[len(m.Data)-1]++
		}
		before := fmt.Sprint(meshtest.Cells(p.ceilings.Ledger()), len(p.members.Others()))
		p.mesh.Receive(m)
		if after := fmt.Sprint(meshtest.Cells(p.ceilings.Ledger()), len(p.members.Others())); after != before {
			w.judge.violated(names[i], p, "a message that must change nothing has: %s became %s", before, after)
		}
	}
	p.settle()
	w.reached(poisoned)
}
