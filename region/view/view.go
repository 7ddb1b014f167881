package view

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
)

// View is what one process could see at one moment. It never changes and is safe
// for concurrent use; the slices that it returns belong to it.
type View struct {
	at      time.Duration
	regions []string // in topology order
	self    int
	members Set // M in use: the candidate, or ourselves alone
	current Set // the regions whose usage is known

	joining, paused bool
	reason          quota.Reason // why not all regions are in M
	about           []string     // the regions that the reason is about

	advertised  []string
	sees        []string // the regions that enough is received from to count on them; nil while joining
	ours        configVersion
	sendWeights bool
	allocation  *allocation
	peers       []members.RegionRow
	stale       *View // this view once it is stale; nil in that one
}

// At returns the view to decide by at now: this one, or, when it is older than
// PausedAfter, one in which this process is paused. It allocates nothing.
func (v *View) At(now time.Duration) *View {
	if now-v.at > PausedAfter && v.stale != nil {
		return v.stale
	}
	return v
}

// Regions names the regions in the order in which estimates are given.
func (v *View) Regions() []string { return v.regions }

// Members is M in use, ourselves included, as places in Regions.
func (v *View) Members() Set { return v.members }

// Advertised is the candidate M in ascending order, as heartbeats advertise it,
// whether or not the others agree.
func (v *View) Advertised() []string { return v.advertised }

// Topology is the Hash of our regions and weights, and these themselves when
// heartbeats should contain them: while any process may have others, and while not
// every region is counted on.
func (v *View) Topology() (hash uint64, weights []quota.Weight) {
	if !v.sendWeights {
		return v.ours.hash, nil
	}
	return v.ours.hash, v.ours.weights
}

// Mode is the mode of a policy with fail mode f, and why it is not ModeGlobal;
// ReasonNone when it is.
func (v *View) Mode(f quota.FailMode) (quota.Mode, quota.Reason) {
	switch {
	case !v.partitioned():
		return quota.ModeGlobal, quota.ReasonNone
	case v.joining:
		return quota.ModeJoining, v.reason
	case f == quota.FailShare:
		return quota.ModePartitioned, v.reason
	}
	return quota.ModeStale, v.reason
}

// About names the regions that the reason of Mode is about.
func (v *View) About() []string { return v.about }

// Joined reports whether joining is over.
func (v *View) Joined() bool { return !v.joining }

// Ceiling is how many units our region may hold of a limit of units, for a policy
// with fail mode f. estimates is the estimated usage of each region, in whole units,
// rounded up, in the order of Regions, and after them that of former ones; lost is what we admitted and our store has
// lost. closed says that the ceiling is 0 because f is closed, not because the limit
// is reached. It allocates nothing for units that Configure listed.
func (v *View) Ceiling(units int64, f quota.FailMode, estimates []int64, lost int64) (ceiling int64, closed bool) {
	return Ceiling(v.terms(units, f, estimates, lost))
}

// Share is what our region may use of units by itself.
func (v *View) Share(units int64) int64 { return v.allocation.shares(units)[v.self] }

// Explain returns the terms of Ceiling, without the offsets of clocks. former names the
// regions whose estimates follow those of Regions. It allocates.
func (v *View) Explain(units int64, f quota.FailMode, estimates []int64, lost int64, former ...string) *quota.CeilingTerms {
	t := v.terms(units, f, estimates, lost)
	terms := &quota.CeilingTerms{Formula: v.formula(t, former), Part: t.Shares[v.self], Lost: lost}
	for k, p := range v.peers {
		if k == v.self {
			continue
		}
		term := quota.PeerTerm{
			Region: p.Region, Weight: p.Weight, Part: t.Shares[k], Counted: p.InUse,
			State: p.State.String(), Reason: p.Text, AgeMS: p.HeardMS,
		}
		if k < len(estimates) {
			term.Estimate = estimates[k]
		}
		if term.Reason == "" && !term.Counted {
			term.Reason = v.summary()
		}
		terms.Peers = append(terms.Peers, term)
	}
	for i, name := range former {
		if k := len(v.regions) + i; k < len(estimates) && estimates[k] > 0 {
			terms.Peers = append(terms.Peers, quota.PeerTerm{
				Region: name, Estimate: estimates[k], State: "former", Reason: "it is not in the topology any more", AgeMS: members.Never,
			})
		}
	}
	return terms
}

// Peers describes every region in the order of Regions, ours included.
func (v *View) Peers() []members.RegionRow { return v.peers }

func (v *View) terms(units int64, f quota.FailMode, estimates []int64, lost int64) Terms {
	return Terms{
		Shares: v.allocation.shares(units), Estimates: estimates, Self: v.self,
		Members: v.members, Current: v.current, Lost: lost, Fail: f, Joining: v.joining, Paused: v.paused,
	}
}

// partitioned reports whether any region is not in M.
func (v *View) partitioned() bool { return v.members.Len() < len(v.regions) }

// names lists the regions of s in topology order.
func (v *View) names(s Set) []string {
	var names []string
	for i, name := range v.regions {
		if s.Has(i) {
			names = append(names, name)
		}
	}
	return names
}

// whenStale is this view once it is stale. A region that is alone in its topology has
// no peer to miss.
func (v *View) whenStale() *View {
	if len(v.regions) == 1 {
		return nil
	}
	old := *v
	old.members, old.current = Set{}.With(v.self), Set{}
	old.joining, old.paused, old.reason = false, true, quota.ReasonProcessPaused
	old.about = slices.Delete(slices.Clone(v.regions), v.self, v.self+1)
	return &old
}
