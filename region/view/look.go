package view

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// look puts the View together from where every region stands now.
func (v *Viewer) look(now time.Duration, live, known map[string][]*Process) *View {
	d := v.division
	view := &View{
		at: now, regions: d.regions, self: slices.Index(d.regions, v.self), division: d,
		hash: v.rollout.ours.hash, weights: v.rollout.ours.weights,
	}
	candidate := Set{}.With(view.self)
	for i, name := range d.regions {
		if s := v.standings[name]; s != nil {
			if s.in {
				candidate = candidate.With(i)
			}
			if s.current {
				view.current = view.current.With(i)
			}
		}
	}
	differing := v.differing(now, view, candidate, live)
	v.join(now, candidate, len(differing) == 0)
	view.decide(candidate, differing, v)
	view.peers = v.rows(now, view, known)
	view.spell = view.blind() || v.differ()
	view.old = view.frozenVariant()
	return view
}

// differing lists the members of candidate that have a live process whose newest beat
// does not advertise exactly candidate. Our siblings are asked like anybody: peers ask
// them too, and hold to their own parts while one of us sees less than the others.
func (v *Viewer) differing(now time.Duration, view *View, candidate Set, live map[string][]*Process) []string {
	if candidate.Len() == 1 {
		return nil // counting on nobody needs nobody's consent
	}
	var names []string
	for i, name := range view.regions {
		if !candidate.Has(i) {
			continue
		}
		mute := func(p *Process) bool { return v.newcomers.mute(now, p) }
		speak := without(live[name], mute) // in another region somebody must
		if i == view.self {
			// Here we do, so newcomers may be left out to the last; and one that we do not
			// hear says nothing. Peers miss it as well, and say so, or know better.
			speak = slices.DeleteFunc(slices.Clone(live[name]), func(p *Process) bool { return mute(p) || p.silent(now) })
		}
		if slices.ContainsFunc(speak, func(p *Process) bool { return !view.advertises(p, candidate) }) {
			names = append(names, name)
		}
	}
	return names
}

// advertises reports whether p's newest beat names exactly the regions of m.
func (v *View) advertises(p *Process, m Set) bool {
	var said Set
	for _, name := range p.Members {
		i := slices.Index(v.regions, name)
		if i < 0 {
			return false
		}
		said = said.With(i)
	}
	return said == m
}

// join ends joining once everybody counts on everybody, or time is up.
func (v *Viewer) join(now time.Duration, candidate Set, agreed bool) {
	all := candidate.Len() == len(v.standings)+1
	v.joined = v.joined || all && agreed || now-v.started >= JoiningFor
}

// decide settles M, what is advertised, and why.
func (v *View) decide(candidate Set, differing []string, of *Viewer) {
	alone := Set{}.With(v.self)
	v.joining = !of.joined
	v.candidate, v.members = candidate, candidate
	if v.joining && candidate.Len() < len(v.regions) {
		// A process that joins counts on nobody until it can count on everybody.
		v.candidate = alone
	}
	if v.joining || len(differing) > 0 {
		v.members = alone
	}
	v.advertised = v.names(v.candidate)
	slices.Sort(v.advertised)
	v.explain(differing, of)
}

// explain settles the reason, in the order of telling, and whom it is about.
func (v *View) explain(differing []string, of *Viewer) {
	if !v.blind() {
		return
	}
	about := make(map[quota.Reason][]string)
	for _, name := range v.regions {
		if s := of.standings[name]; s != nil && !s.in {
			about[s.cause] = append(about[s.cause], name)
		}
	}
	about[quota.ReasonViewsDiffer] = differing
	v.frozen = len(about[quota.ReasonProcessPaused]) > 0
	if v.joining {
		for _, name := range v.regions {
			if s := of.standings[name]; s != nil && !s.in {
				about[quota.ReasonJoining] = append(about[quota.ReasonJoining], name)
			}
		}
		if len(about[quota.ReasonJoining]) == 0 {
			about[quota.ReasonJoining] = differing
		}
	}
	for _, r := range []quota.Reason{
		quota.ReasonProcessPaused, quota.ReasonJoining, quota.ReasonPeerSilent, quota.ReasonOneWay, quota.ReasonViewsDiffer,
	} {
		if len(about[r]) > 0 {
			v.reason, v.about = r, about[r]
			return
		}
	}
}

// rows describes every region in topology order, our own with its siblings.
func (v *Viewer) rows(now time.Duration, view *View, known map[string][]*Process) []Peer {
	rows := make([]Peer, len(view.regions))
	for i, name := range view.regions {
		s := v.standings[name]
		if s == nil {
			rows[i] = Peer{
				Region: name, State: StateSelf, Since: now - v.started, Candidate: true, Current: true,
				Processes: v.processes(now, known[name]),
			}
		} else {
			rows[i] = v.peer(now, s, known[name])
		}
		rows[i].InUse = view.members.Has(i)
	}
	return rows
}
