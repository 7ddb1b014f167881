package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Options is what a Viewer must know before it sees anything.
type Options struct {
	Self    string        // our own region
	Started time.Duration // when this process began, on the clock of Input.Now
}

// Topology is the regions in force and the limits that are divided among them.
type Topology struct {
	Weights []quota.Weight // in the order of the file
	// Units lists the capacities of all global limits, so that asking for their
	// ceilings allocates nothing. Others are divided when asked for.
	Units []int64
}

// Viewer turns what is known of processes into a View. It is a state machine: the
// same calls give the same views. It is not safe for concurrent use.
//
//	        joining ──all agree, or JoiningFor is over──┐
//	                                                    ▼
//	┌──▶ global: every region is in M, and M is agreed ─────────┐
//	│                                                           │ a region is excluded, or a
//	│                                                           │ beat advertises another M
//	└──────────── blind: share, or stale by fail mode ◀─────────┘
//	                M in use: the group if it is agreed, else {ourselves}
//	                   ▲
//	                   └── from anywhere, with reason frozen: Observe came late
type Viewer struct {
	self    string
	started time.Duration
	joined  bool // joining is over
	looked  bool // Observe was called before
	last    time.Duration

	rollout   rollout
	units     []int64
	division  *division
	standings map[string]*standing // of every region of ours but our own
	newcomers newcomers
	view      *View // the one before; nil at first
}

// New returns a Viewer that has seen nothing.
func New(o Options, t Topology) (*Viewer, error) {
	v := &Viewer{self: o.Self, started: o.Started, newcomers: make(newcomers)}
	if err := v.Configure(t); err != nil {
		return nil, err
	}
	return v, nil
}

// Configure puts a topology in force, at the start and after a reload; the next
// Observe shows it. Until every region has been heard to have it, the parts of those
// before stay in play. An error leaves everything as it was.
func (v *Viewer) Configure(t Topology) error {
	if !believable(t.Weights) {
		return fmt.Errorf("view: a topology has 1 to %d regions, each named once, with weights of 1 to %d", region.MaxRegions, region.MaxWeight)
	}
	if !slices.ContainsFunc(t.Weights, func(w quota.Weight) bool { return w.Region == v.self }) {
		return fmt.Errorf("view: the topology does not have our own region %q: add it, or start this process as one that is in it", v.self)
	}
	v.rollout.configure(t.Weights)
	v.units = slices.Clone(t.Units)
	v.division = divide(&v.rollout, v.units)
	standings := make(map[string]*standing, len(t.Weights))
	for _, w := range t.Weights {
		if w.Region == v.self {
			continue
		}
		s := v.standings[w.Region]
		if s == nil {
			s = &standing{region: w.Region, since: v.last, cause: quota.ReasonPeerSilent}
		}
		standings[w.Region] = s
	}
	v.standings = standings
	return nil
}

// Observe looks at everything and returns what is to be seen, and what changed since
// the call before. It is to be called at least every 50 ms or so: a call that comes
// more than FrozenAfter after the one before says that this process stood still.
func (v *Viewer) Observe(in Input) (*View, []Event) {
	now := in.Now
	known := present(in.Processes)
	live := alive(now, known)
	before := v.states()
	froze := v.looked && now-v.last > FrozenAfter
	if froze {
		v.distrust(now)
	}
	differed := v.differ()
	if v.rollout.observe(now, v.self, live) {
		v.division = divide(&v.rollout, v.units)
	}
	v.newcomers.observe(now, live)
	for name, s := range v.standings {
		s.step(now, v.find(now, s, live[name], known[name]))
	}
	view := v.look(now, live, known)

	log := recorder{now: now, before: v.view, after: view}
	if froze {
		log.frozen(now - v.last)
	}
	log.topology(differed, v.differ(), v.rollout.waiting)
	log.regions(before)
	log.mode()
	v.view, v.last, v.looked = view, now, true
	return view, log.events
}

// present groups the processes by region, without those whose instance has begun a
// later life.
func present(processes []Process) map[string][]*Process {
	newest := make(map[[2]string]int64, len(processes))
	for i := range processes {
		p := &processes[i]
		name := [2]string{p.Region, p.Instance}
		if boot, ok := newest[name]; !ok || p.Boot > boot {
			newest[name] = p.Boot
		}
	}
	known := make(map[string][]*Process, len(processes))
	for i := range processes {
		p := &processes[i]
		if p.Boot == newest[[2]string{p.Region, p.Instance}] {
			known[p.Region] = append(known[p.Region], p)
		}
	}
	for _, of := range known {
		slices.SortFunc(of, func(a, b *Process) int { return strings.Compare(a.Instance, b.Instance) })
	}
	return known
}

// alive is those of known that have to be reckoned with.
func alive(now time.Duration, known map[string][]*Process) map[string][]*Process {
	live := make(map[string][]*Process, len(known))
	for name, of := range known {
		for _, p := range of {
			if p.live(now) {
				live[name] = append(live[name], p)
			}
		}
	}
	return live
}

// find judges a region. One in good standing is judged without its newcomers.
func (v *Viewer) find(now time.Duration, s *standing, live, known []*Process) finding {
	if len(live) == 0 {
		return absent(known, s.state)
	}
	if s.in {
		live = without(live, func(p *Process) bool { return v.newcomers.unmet(now, p) })
	}
	return find(now, live)
}

// distrust forgets that anybody was ever good. A process that stood still while it
// joined does not join any more: it comes back like any other.
func (v *Viewer) distrust(now time.Duration) {
	v.joined = true
	for _, s := range v.standings {
		s.distrust(now)
	}
}

func (v *Viewer) states() map[string]State {
	states := make(map[string]State, len(v.standings))
	for name, s := range v.standings {
		states[name] = s.state
	}
	return states
}

// differ reports whether more than one topology is in play.
func (v *Viewer) differ() bool { return len(v.rollout.others) > 0 || v.rollout.blind }
