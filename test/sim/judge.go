package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/view"
)

// judge sees everything and holds the product to the invariants of doc.go. It is
// called after whatever may have broken one.
type judge struct {
	w        *World
	tenants  map[string]*truth
	order    []*truth
	byID     map[uint64]*truth
	hit      []time.Duration    // by region: when its store or its clock was last disturbed
	calm     time.Duration      // since when nothing is wrong with bus, stores, processes, topologies
	overlaps map[[2]int]overlap // by two processes' numbers: since when they count on each other's parts
	looks    int
	spent    int
	modes    [8]bool
	broken   []Violation
	x        terms // of the check under way, from before it
}

// Violation is an invariant that did not hold.
type Violation struct {
	Name string        // as in doc.go
	At   time.Duration // virtual
	Text string
	Last string // what happened just before
}

// cellKey names a counter of a peer.
type cellKey struct {
	region             int
	id                 uint64
	bucket, generation int64
}

// knowledge is what a process has received.
type knowledge struct {
	received map[cellKey]receipts
	lastFrom map[*process]time.Duration
	modes    []time.Duration // when its mode changed
	mode     quota.Mode
	members  view.Set
	alone    time.Duration // since when it counts on its own region alone, or on a group
	thawed   time.Duration // when it was frozen last
	// late is, by region, when a process that forwarded its counters was last frozen. The
	// messages that such a process processes late make it, and those it forwards to, count
	// units for longer, never for less.
	late map[int]time.Duration
	// parted is, by region, when the last message came of a process that had left: its
	// farewell may have overtaken it, and then it is refused. A real bus keeps a
	// connection's messages in order.
	parted map[int]time.Duration
}

func newJudge(w *World) *judge {
	j := &judge{w: w, tenants: map[string]*truth{}, byID: map[uint64]*truth{}, overlaps: map[[2]int]overlap{}, hit: make([]time.Duration, len(w.regions))}
	for i := range j.hit {
		j.hit[i] = -24 * time.Hour
	}
	return j
}

// violated takes down a violation, the first few of a world.
func (j *judge) violated(name string, p *process, format string, args ...any) {
	if len(j.broken) >= 3 {
		return
	}
	who := ""
	if p != nil {
		who = p.self.Region + "/" + p.self.Instance + ": "
	}
	j.broken = append(j.broken, Violation{name, j.w.now, who + fmt.Sprintf(format, args...), j.w.trace.last()})
}

// disturbed notes that a region's store lost something, or its clock was moved.
func (j *judge) disturbed(place int) { j.hit[place] = j.w.now }

// faulted notes that something is wrong from now on, or until now.
func (j *judge) faulted() { j.calm = j.w.now }

func (j *judge) started(p *process) {
	p.known = knowledge{
		received: map[cellKey]receipts{}, lastFrom: map[*process]time.Duration{}, late: map[int]time.Duration{}, parted: map[int]time.Duration{},
		mode: 255, alone: j.w.now,
	}
}

func (j *judge) truth(tenant string) *truth {
	t := j.tenants[tenant]
	if t == nil {
		t = newTruth(j.w, tenant)
		j.tenants[tenant], j.byID[t.id], j.order = t, t, append(j.order, t)
	}
	return t
}

// delivered records a message just before a process receives it.
func (j *judge) delivered(p *process, m *message) {
	p.known.lastFrom[m.from] = j.w.now
	if m.usage == nil {
		return
	}
	of, direct := m.from.region.place, m.usage.Origin == ""
	if !direct {
		of = j.w.place(m.usage.Origin)
		p.known.late[of] = max(p.known.late[of], m.from.known.thawed, m.from.known.late[of])
	}
	if of == p.region.place {
		if !direct && len(m.usage.Groups) > 0 {
			j.w.reached(ownStateReturned)
		}
		return
	}
	if m.from.gone {
		p.known.parted[of] = j.w.now
	}
	follows := p.follows(m)
	for i := range m.usage.Groups {
		g := &m.usage.Groups[i]
		for n, id := range g.IDs {
			k := cellKey{of, id, g.Bucket, g.Generations[n]}
			r := p.known.received[k]
			r.whole = r.whole || !follows && g.Units[n] > r.all.units()
			switch grows := g.Units[n] > r.all.units(); {
			case grows && !direct:
				j.w.reached(forwarded)
			case grows && m.usage.Chunk.Snapshot != 0 && len(r.direct) > 0:
				j.w.reached(snapshotRepaired)
			}
			if r.all = r.all.add(j.w.now, g.Units[n]); direct {
				r.direct = r.direct.add(j.w.now, g.Units[n])
			}
			p.known.received[k] = r
			if t := j.byID[id]; t != nil && g.Generations[n] == m.from.self.Boot && direct {
				j.w.reached(localPublished)
			}
		}
	}
}

// asks works out, just before a check, what it has to go by: the check itself may teach
// the process that its store has forgotten something.
func (j *judge) asks(p *process, tenant string) {
	t := j.truth(tenant)
	j.x = j.terms(p, t, t.units(p.region.topology))
	if j.x.lost > 0 {
		j.w.reached(lostSubtracted)
	}
	j.remembers(p, t)
}

// answered judges a decision.
func (j *judge) answered(p *process, tenant string, cost int64, d *quota.Decision) {
	t := j.truth(tenant)
	t.age(j.w.now)
	t.ask(j.w.now, cost)
	units := d.Limits[0].Limit.Units
	if t.decided != 0 && t.decided != units {
		j.w.reached(limitChanged)
	}
	t.largest, t.decided = max(t.largest, units), units
	j.modes[d.Mode] = true
	if !d.Allowed {
		j.denied(p, t, cost, d)
		return
	}
	s := p.region
	if d.Basis == quota.BasisLocal {
		j.w.reached(localAdmitted)
		bucket := s.timeUS() / t.limit.WindowUS()
		c := t.admit(j.w.now, s.place, cost, bucket, p.self.Boot, j.began(s.timeUS(), bucket, t))
		c.log = c.log.add(j.w.now, c.most)
		j.disturbed(s.place)
		if !slices.ContainsFunc(j.w.regions, func(s *simRegion) bool { return !s.store.away }) {
			j.w.reached(allAway)
		}
		return
	}
	if d.Basis == quota.BasisOpen {
		j.disturbed(s.place)
		return
	}
	k := s.store.byKey[t.key]
	counter := k.buckets[len(k.buckets)-1]
	j.rolled(t, s, counter.Bucket)
	c := t.admit(j.w.now, s.place, cost, counter.Bucket, counter.Generation, j.began(d.StoreUS, counter.Bucket, t))
	if c.units != counter.Units && j.w.now-j.hit[s.place] > 2*t.limit.Window {
		j.violated("LOC-1 counter", p, "%s: the store counts %d in bucket %d, it is %d", tenant, counter.Units, counter.Bucket, c.units)
	}
	c.units, c.log = counter.Units, c.log.add(j.w.now, counter.Units)
	j.admitted(p, t, d)
	j.summed(p, t, d)
	if j.spent++; j.spent%16 == 0 {
		j.compare(p)
	}
}

// rolled notes a bucket that is the first of a region that others cannot receive.
func (j *judge) rolled(t *truth, s *simRegion, bucket int64) {
	cells := t.regions[s.place].cells
	if len(cells) == 0 || cells[len(cells)-1].bucket == bucket {
		return
	}
	if slices.ContainsFunc(j.w.links[s.place], func(l link) bool { return l.cut }) {
		j.w.reached(rolledDuringCut)
	}
}

// excuse is how long what a region's store lost, or a clock that was moved, may still
// show: what was counted before is over two windows after it last grew, and a bucket
// may have begun just before.
func (j *judge) excuse(t *truth) time.Duration { return 3*t.limit.Window + unseenFor }

// began is the true time at which a bucket of a region's store began.
func (j *judge) began(storeUS, bucket int64, t *truth) time.Duration {
	return j.w.now - time.Duration(storeUS-bucket*t.limit.WindowUS())*time.Microsecond
}

// terms are what a decision must have gone by, worked out anew.
type terms struct {
	v         *view.View
	parts     []int64
	units     int64 // L, where a reload has come to
	estimates []int64
	lost      int64
	ceiling   int64
	differ    bool // several topologies are in play: the parts are upper bounds
}

// place in topology order equals the world's, since all topologies here list all regions.
func (j *judge) terms(p *process, t *truth, units int64) terms {
	x := terms{v: p.ceilings.View(), units: units}
	top := p.region.topology
	weights := top.Weights()
	x.parts = region.Shares(weights, units)
	x.estimates = make([]int64, len(weights))
	l := p.ceilings.Ledger()
	raw := make([]int64, len(weights)+1)
	x.lost, _ = l.Estimates(t.id, t.limit.WindowUS(), t.most(p, 2*t.limit.Window), p.now(), raw)
	for i := range top.Regions {
		if n := l.Region(top.Regions[i].Name); n > 0 && n < len(raw) {
			x.estimates[i] = raw[n]
		}
	}
	spelled := x.v.Heartbeat.Weights
	all := x.v.Members.Len() == len(weights)
	x.differ = all && spelled != nil || !all && j.w.reloaded
	x.ceiling = units - x.lost
	for k := range weights {
		switch {
		case k == p.region.place:
		case x.v.Members.Has(k):
			x.ceiling -= x.estimates[k]
		default:
			x.ceiling -= max(x.parts[k], x.estimates[k])
		}
	}
	x.ceiling = max(0, x.ceiling)
	return x
}

// admitted holds an admission by a store to G-1 and G-3.
func (j *judge) admitted(p *process, t *truth, d *quota.Decision) {
	if t.policy.OnPartition != quota.FailShare {
		if d.Mode == quota.ModeStale {
			return // stale does not promise to stay within L: DESIGN's table of fail modes
		}
	}
	units, place, x := d.Limits[0].Limit.Units, p.region.place, j.x
	state := &d.Limits[0]
	most := x.ceiling
	if state.Ceiling > most { // the store may have been asked twice: the check itself taught what it has lost
		after := j.terms(p, t, units)
		most = max(most, after.ceiling)
	}
	if state.Ceiling > most {
		j.violated("G-1 ceiling", p, "%s: the ceiling was %d; of %d the others may use, or have used, so much that it is at most %d (estimates %v, parts %v, M %v, lost %d)",
			t.tenant, state.Ceiling, units, most, x.estimates, x.parts, x.v.Heartbeat.Members, x.lost)
	}
	if least := x.ceiling; state.Ceiling < least && !x.differ && t.policy.OnPartition == quota.FailShare {
		if least = min(least, j.terms(p, t, units).ceiling); state.Ceiling < least {
			j.violated("G-5 ceiling", p, "%s: the ceiling was %d; of %d the others may use, or have used, so little that it is at least %d (estimates %v, parts %v, M %v, lost %d)",
				t.tenant, state.Ceiling, units, least, x.estimates, x.parts, x.v.Heartbeat.Members, x.lost)
		}
	}
	undisturbed := j.w.now-j.hit[place] > 2*t.limit.Window+5*time.Second
	own := t.regions[place].units
	if held := state.Ceiling - state.Remaining; undisturbed && own > held+x.lost {
		j.violated("LOC-3 window", p, "%s: %d units were admitted in the window, the store holds %d", t.tenant, own, held)
	}
	if x.v.Members.Len() == 1 && undisturbed && !x.differ && j.w.now-p.known.alone > t.limit.Window && own > x.parts[place] {
		j.violated("G-3 share", p, "%s: counting on nobody, the region holds %d of its part %d", t.tenant, own, x.parts[place])
	}
	if t.all() > t.largest {
		j.w.reached(overshoot)
	}
	for k := range j.w.regions {
		if k != place {
			j.accountable(p, t, k, &x)
		}
	}
}

// unseenFor is how long a unit may go unseen by those who count on its region: a tick,
// the way, and when the message is lost, until a gap shows (a heartbeat), the snapshot was
// asked for (a second) and has come.
const unseenFor = 5 * time.Second

// accountable names every unit of a region that a process does not count: it was received more
// than a window ago, or no message that carries it has come yet.
func (j *judge) accountable(p *process, t *truth, k int, x *terms) {
	u := &t.regions[k]
	for i, c := range u.cells {
		if i > 0 && c.bucket == u.cells[i-1].bucket && len(p.received(t, k, c).direct) > 0 {
			j.w.reached(twoGenerations)
		}
	}
	least, upper := t.estimate(p, k)
	steady := j.w.now-j.hit[k] > j.excuse(t)
	if steady && x.estimates[k] < least {
		j.violated("G-1 unexplained", p, "%s: %d units of %s that count were received, and the estimate is %d",
			t.tenant, least, j.w.regions[k].name, x.estimates[k])
	}
	punctual := j.w.now-max(p.known.thawed, p.known.late[k]) > j.excuse(t)
	if steady && x.estimates[k] > upper && punctual {
		j.violated("BUS-4 age-out", p, "%s: %s is believed to have used %d, of which at most %d can still count", t.tenant, j.w.regions[k].name, x.estimates[k], upper)
	}
	if !x.v.Members.Has(k) || j.w.now-p.known.alone < unseenFor || !steady {
		return
	}
	for i := u.first; i < len(u.all); i++ {
		s := &u.all[i]
		if s.at >= j.w.now-unseenFor {
			return
		}
		if s.upTo > p.received(t, k, s.cell).all.units() && !t.published(p, j.w.regions[k], s.cell.bucket) {
			j.violated("G-1 unseen", p, "%s: %s is counted on, and %d units that it admitted %v ago were never received", t.tenant, j.w.regions[k].name, s.units, j.w.now-s.at)
			return
		}
	}
}

// denied holds a denial to G-4 and G-5.
func (j *judge) denied(p *process, t *truth, cost int64, d *quota.Decision) {
	if d.Mode == quota.ModeLocal || d.Basis == quota.BasisClosed || t.policy.OnPartition != quota.FailShare {
		return
	}
	state, place := &d.Limits[0], p.region.place
	units := state.Limit.Units
	if t.regions[place].units+cost <= units && state.Ceiling < units {
		j.w.reached(deniedByRemote)
	}
	settled := 2*t.limit.Window + unseenFor
	for _, hit := range j.hit {
		if j.w.now-hit < settled {
			return
		}
	}
	x := j.x
	// While topologies differ the smaller parts apply, which add up to less than L.
	if !x.differ && j.w.now-j.calm > settled && d.Mode == quota.ModeGlobal && t.demand <= units {
		j.violated("G-5 needless denial", p, "%s: denied under a ceiling of %d, although all regions together asked for %d of %d in two windows (used here %d, estimates %v, parts %v, lost %d)",
			t.tenant, state.Ceiling, t.demand, units, t.regions[place].units, x.estimates, x.parts, x.lost)
	}
	if x.differ || j.w.now-p.known.alone < settled {
		return
	}
	part := x.parts[place]
	for k := range j.w.regions {
		if k != place && !x.v.Members.Has(k) {
			part -= max(0, x.estimates[k]-x.parts[k])
		}
	}
	if x.v.Members.Len() == 1 && t.regions[place].units+cost <= part {
		j.violated("G-4 starvation", p, "%s: denied %d with %d used of a part of %d (ceiling %d, lost %d)", t.tenant, cost, t.regions[place].units, part, state.Ceiling, x.lost)
	}
}
