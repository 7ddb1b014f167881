package sim

import (
	"slices"
	"sort"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
)

// perfect is a process's ceilings with perfect estimates: each unit that its region was informed of counts
// until a window after the time at which a message usually brings it, also in a process that has
// started since, and after a cut. This is the reference for how an estimate fades: what it lacks is
// in transit. It is for limits without a bound.
type perfect struct {
	*view.Ceilings
	p *process
}

// perfectLog is what a world with perfect estimates remembers of usage counters.
type perfectLog struct {
	sent     map[cellKey]growth  // by their regions
	received []map[cellKey]int64 // by each region: the units of each
}

func newPerfectLog(regions int) *perfectLog {
	l := &perfectLog{sent: map[cellKey]growth{}, received: make([]map[cellKey]int64, regions)}
	for i := range l.received {
		l.received[i] = map[cellKey]int64{}
	}
	return l
}

// counters calls f for each counter in a message of usage.
func (w *World) counters(m *message, f func(k cellKey, units int64)) {
	if m.usage == nil {
		return
	}
	of := m.from.region.place
	if m.usage.Origin != "" {
		of = w.place(m.usage.Origin)
	}
	for i := range m.usage.Groups {
		g := &m.usage.Groups[i]
		for n, id := range g.IDs {
			f(cellKey{of, id, g.Bucket, g.Generations[n]}, g.Units[n])
		}
	}
}

func (l *perfectLog) publish(w *World, m *message) {
	w.counters(m, func(k cellKey, units int64) { l.sent[k] = l.sent[k].add(w.now, units) })
}

func (l *perfectLog) receive(p *process, m *message) {
	at := l.received[p.region.place]
	p.region.w.counters(m, func(k cellKey, units int64) { at[k] = max(at[k], units) })
}

// place is a region's place in the topology; -1 for none.
func (w *World) place(region string) int {
	return slices.IndexFunc(w.regions, func(s *simRegion) bool { return s.name == region })
}

// estimate is what a region used of a partition in the window before a time.
func (f perfect) estimate(region string, id uint64, l *quota.Limit, at time.Duration) (units int64) {
	w, self := f.p.region.w, f.p.region.place
	place := w.place(region)
	faded := at - l.Window - w.links[place][self].delay
	for k, received := range w.perfect.received[self] {
		if k.region == place && k.id == id {
			units += max(0, received-w.perfect.sent[k].by(faded))
		}
	}
	return units
}

// units is the ceiling at a time by the terms of an answer, as view.Ceiling computes it in fail mode share.
func (f perfect) units(t *quota.CeilingTerms, id uint64, l *quota.Limit, at time.Duration) int64 {
	units := t.Part - t.Lost
	for i := range t.Peers {
		peer := &t.Peers[i]
		if used := f.estimate(peer.Region, id, l, at); peer.Counted {
			units += peer.Part - used
		} else {
			units -= max(0, used-peer.Part)
		}
	}
	return max(0, units)
}

// Ceiling implements limiter.Global.
func (f perfect) Ceiling(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, _ bool, _ int64) quota.Ceiling {
	c := f.Ceilings.Ceiling(p, l, key, true, 0)
	c.Units = f.units(c.Terms, f.p.region.w.key.CounterID(key), l, f.p.region.w.now)
	c.Local = c.Units
	return c
}

// Grows implements limiter.Global.
func (f perfect) Grows(p *quota.Policy, l *quota.Limit, key *quota.CounterKey, units int64) time.Duration {
	c, id, now := f.Ceilings.Ceiling(p, l, key, true, 0), f.p.region.w.key.CounterID(key), f.p.region.w.now
	return time.Millisecond * time.Duration(sort.Search(int(l.Window.Milliseconds()), func(ms int) bool {
		return f.units(c.Terms, id, l, now+time.Duration(ms)*time.Millisecond) >= units
	}))
}

// Restart kills a region's process and starts another at once.
func (w *World) Restart(place int) {
	w.kill(w.regions[place].processes[0], false)
	w.begin(place, w.regions[place].nextName())
}

// Isolate cuts a region off from all others, bus and gossip, or heals that.
func (w *World) Isolate(place int, yes bool) {
	for other := range w.regions {
		if other != place {
			w.Cut(place, other, yes)
			w.Cut(other, place, yes)
			w.CutGossip(place, other, yes)
		}
	}
}
