package view

import (
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
)

const (
	// PausedAfter is how far two calls of Observe may be apart, and how old a View
	// may be, before this process must have been paused.
	PausedAfter = time.Second
	// JoiningFor bounds how long a process that starts waits for its peers.
	JoiningFor = 2 * time.Second
)

// Topology is the regions in force and the limits that are divided among them.
type Topology struct {
	Weights []quota.Weight // in the order of the file
	// Units lists the capacities of all global limits, so that their ceilings need no
	// allocation. Others are divided when they are needed.
	Units []int64
}

// Input is all that Observe evaluates. It is not kept; but for what View remembers of each
// process, which is for the next call, it is only read.
type Input struct {
	Now       time.Duration // monotonic, at least that of the call before
	Processes []members.Member
	// Unread: the state of our region was not read from its store yet. Joining lasts until
	// it was.
	Unread bool
	// Bounds is the least shares under topologies that our region's store holds beside ours,
	// where these are new; else nil.
	Bounds region.Floor
}

// Viewer turns what is known of processes into a View. It is a state machine: the
// same calls give the same views. It is not safe for concurrent use.
//
//	        joining ──all agree, or JoiningFor is over──┐
//	                                                    ▼
//	┌──▶ global: every region is in M, and M is agreed ─────────────┐
//	│                                                               │ a region is excluded, or a
//	│                                                               │ heartbeat advertises another M
//	└──── not global: partitioned, or stale by fail mode ◀──────────┘
//	                M in use: the group if it is agreed, else {ourselves}
//	                   ▲
//	                   └── from any state, with reason process_paused: Observe came late
type Viewer struct {
	self    string
	started time.Duration
	joined  bool // joining is over
	last    time.Duration

	configs    configVersions
	units      []int64
	allocation *allocation
	peers      map[string]*peerState // of every region of ours but our own
	view       *View                 // the one before; nil at first
}

// NewViewer returns a Viewer that knows no process, for a process of region self that
// started at started, on the clock of Input.Now.
func NewViewer(self string, started time.Duration, t Topology) *Viewer {
	v := &Viewer{self: self, started: started}
	v.Configure(t)
	return v
}

// Configure puts a topology in force; the next Observe shows it. Until every region
// has advertised it, the shares under those before apply too. It has our own region, and
// obeys the rules of package region.
func (v *Viewer) Configure(t Topology) {
	v.configs.configure(t.Weights)
	v.units = slices.Clone(t.Units)
	v.allocation = allocate(&v.configs, v.units)
	peers := make(map[string]*peerState, len(t.Weights))
	for _, w := range t.Weights {
		if w.Region == v.self {
			continue
		}
		s := v.peers[w.Region]
		if s == nil {
			s = &peerState{since: v.last, cause: quota.ReasonPeerSilent}
		}
		peers[w.Region] = s
	}
	v.peers = peers
}

// Observe evaluates all processes and returns the view, and what changed since the
// call before. It is to be called about every 50 ms: a call that comes more than
// PausedAfter after the one before means that this process was paused.
func (v *Viewer) Observe(in Input) (*View, []Event) {
	now := in.Now
	known := latest(now, in.Processes)
	live := alive(now, known)
	paused := v.view != nil && now-v.last > PausedAfter
	var events []Event
	if paused {
		v.joined = true // one that was paused while it joined recovers like any other
		for _, s := range v.peers {
			s.reset(now)
		}
		events = append(events, Event{
			Kind: ProcessPaused, Reason: quota.ReasonProcessPaused,
			Text: fmt.Sprintf("this process was paused for %v; no peer is counted on until it has sent all of its usage again", round(now-v.last)),
		})
	}
	drifted := v.configs.drift()
	if v.configs.update(now, v.self, live) {
		v.allocation = allocate(&v.configs, v.units)
	}
	if in.Bounds != nil { // this view shows it, and the next update may drop it
		v.configs.floor = v.configs.floor.Min(in.Bounds)
		v.allocation = allocate(&v.configs, v.units)
	}
	remember(now, live)
	for name, s := range v.peers {
		s.step(now, s.evaluate(now, live[name], known[name]))
	}
	view := v.build(in, live, known)
	if drifts := v.configs.drift(); drifts != drifted {
		events = append(events, topologyEvent(drifts, v.configs.waiting))
	}
	events = append(events, changes(v.view, view)...)
	v.view, v.last = view, now
	return view, events
}

func (v *Viewer) build(in Input, live, known map[string][]*members.Member) *View {
	now, a := in.Now, v.allocation
	view := &View{at: now, Regions: a.regions, self: slices.Index(a.regions, v.self), allocation: a}
	candidate := Set{}.With(view.self)
	for i, name := range a.regions {
		if s := v.peers[name]; s != nil {
			if s.in {
				candidate = candidate.With(i)
			}
			if s.current {
				view.current = view.current.With(i)
			}
		}
	}
	seen := view.names(candidate)
	candidate, apart := v.common(now, view, candidate, live[v.self])
	differing := v.differing(now, view, candidate, live)
	if apart {
		differing = append(differing, v.self)
	}
	all := candidate.Len() == len(view.Regions)
	v.joined = v.joined || !in.Unread && (all && len(differing) == 0 || now-v.started >= JoiningFor)
	if v.joined {
		view.sees = seen
	}
	v.decide(view, candidate, differing)
	view.Peers = v.rows(now, view, live, known)
	if view.Heartbeat.Topology = v.configs.ours.hash; view.partitioned() || v.configs.drift() {
		view.Heartbeat.Weights = v.configs.ours.weights
	}
	view.stale = view.whenStale()
	return view
}

// common is those of candidate that our siblings receive from too, as far as these do not
// reach us on the bus but share our store, and whether these are fewer. One in whose entry
// nothing changed since it fell silent may receive from nobody. Without this, a split through
// our region would leave one half counting on some regions, and the other half on others:
// both would give the share of ours away.
func (v *Viewer) common(now time.Duration, view *View, candidate Set, siblings []*members.Member) (common Set, fewer bool) {
	common = candidate
	for _, p := range siblings {
		if p.Store.At == 0 || !p.Silent(now) {
			continue
		}
		stale := p.ReceivedAt != 0 && p.Store.At <= p.ReceivedAt+members.SilentAfter
		if p.Store.Sees == nil && !stale {
			continue // it joins, and counts on no other region
		}
		for i, name := range view.Regions {
			if i != view.self && (stale || !slices.Contains(p.Store.Sees, name)) {
				common = common.without(i)
			}
		}
	}
	return common, common != candidate
}

// differing lists the members of candidate that have a live process whose newest
// heartbeat does not advertise exactly candidate. That includes our siblings: peers
// require their agreement too, and keep to their own shares while one of us sees less
// than the others.
func (v *Viewer) differing(now time.Duration, view *View, candidate Set, live map[string][]*members.Member) []string {
	if candidate.Len() == 1 {
		return nil // counting on no other region requires no agreement
	}
	var names []string
	for i, name := range view.Regions {
		if !candidate.Has(i) {
			continue
		}
		inGraceNow := func(p *members.Member) bool { return inGrace(now, p) }
		deciding := without(live[name], inGraceNow) // in another region at least one decides
		if i == view.self {
			// In ours this process does, so all newcomers may be left out. So may silent
			// siblings: peers that miss one advertise it, or hear it where we do not.
			deciding = slices.DeleteFunc(slices.Clone(live[name]), func(p *members.Member) bool { return inGraceNow(p) || p.Silent(now) })
		}
		if slices.ContainsFunc(deciding, func(p *members.Member) bool { return !view.advertises(p, candidate) }) {
			names = append(names, name)
		}
	}
	return names
}

// advertises reports whether p's newest heartbeat names exactly the regions of m.
func (v *View) advertises(p *members.Member, m Set) bool {
	var advertised Set
	for _, name := range p.Members {
		i := slices.Index(v.Regions, name)
		if i < 0 {
			return false
		}
		advertised = advertised.With(i)
	}
	return advertised == m
}

// decide sets M, what is advertised, and why.
func (v *Viewer) decide(view *View, candidate Set, differing []string) {
	alone := Set{}.With(view.self)
	view.Joining, view.Members = !v.joined, candidate
	if view.Joining || len(differing) > 0 {
		view.Members = alone
	}
	if view.Joining && candidate.Len() < len(view.Regions) {
		// A process that joins counts on no region until it can count on all.
		candidate = alone
	}
	view.Heartbeat.Members = view.names(candidate)
	slices.Sort(view.Heartbeat.Members)
	if view.partitioned() {
		v.decideReason(view, differing)
	}
}

// decideReason sets the reason, by precedence, and the regions that it is about.
func (v *Viewer) decideReason(view *View, differing []string) {
	about := map[quota.Reason][]string{quota.ReasonViewsDiffer: differing}
	var out []string
	for _, name := range view.Regions {
		if s := v.peers[name]; s != nil && !s.in {
			out = append(out, name)
			about[s.cause] = append(about[s.cause], name)
		}
	}
	if view.Joining {
		about[quota.ReasonJoining] = out
		if len(out) == 0 {
			about[quota.ReasonJoining] = differing
		}
	}
	for _, r := range []quota.Reason{
		quota.ReasonProcessPaused, quota.ReasonJoining, quota.ReasonPeerSilent, quota.ReasonOneWay, quota.ReasonViewsDiffer,
	} {
		if len(about[r]) > 0 {
			view.reason, view.About = r, about[r]
			return
		}
	}
	if view.Joining { // our own store was not read yet
		view.reason = quota.ReasonJoining
	}
}
