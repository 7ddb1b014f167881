package view

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	meshsync "github.com/regiond/regiond/sync"
)

// View is what one process could see at one moment. It never changes, nor what it refers to, and is
// safe for concurrent use.
type View struct {
	// Regions are in topology order, in which estimates are given.
	Regions []string
	// Members is M in use, ourselves included, as places in Regions: the candidate, or ourselves alone.
	Members Set
	// Joining is not over yet.
	Joining bool
	// About names the regions that the reason of Mode is about.
	About []string
	// Peers describes every region in the order of Regions, ours included.
	Peers []members.RegionRow
	// Heartbeat is what heartbeats contain: the candidate M in ascending order, whether or not the others
	// agree, and the weights while any process may have others, and while not every region is counted on.
	Heartbeat meshsync.Advertised

	at         time.Duration
	self       int
	current    Set // the regions whose usage is known
	paused     bool
	reason     quota.Reason // why not all regions are in M
	sees       []string     // the regions that enough is received from to count on them; nil while joining
	allocation *allocation
	stale      *View // this view once it is stale; nil in that one
}

// At returns the view to decide by at now: this one, or, when it is older than
// PausedAfter, one in which this process is paused. It allocates nothing.
func (v *View) At(now time.Duration) *View {
	if now-v.at > PausedAfter && v.stale != nil {
		return v.stale
	}
	return v
}

// Mode is the mode of a policy with fail mode f, and why it is not ModeGlobal;
// ReasonNone when it is.
func (v *View) Mode(f quota.FailMode) (quota.Mode, quota.Reason) {
	switch {
	case !v.partitioned():
		return quota.ModeGlobal, quota.ReasonNone
	case v.Joining:
		return quota.ModeJoining, v.reason
	case f == quota.FailShare:
		return quota.ModePartitioned, v.reason
	}
	return quota.ModeStale, v.reason
}

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
	for k, p := range v.Peers {
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
		if k := len(v.Regions) + i; k < len(estimates) && estimates[k] > 0 {
			terms.Peers = append(terms.Peers, quota.PeerTerm{
				Region: name, Estimate: estimates[k], State: "former", Reason: "it is not in the topology any more", AgeMS: members.Never,
			})
		}
	}
	return terms
}

func (v *View) terms(units int64, f quota.FailMode, estimates []int64, lost int64) Terms {
	return Terms{
		Shares: v.allocation.shares(units), Estimates: estimates, Self: v.self,
		Members: v.Members, Current: v.current, Lost: lost, Fail: f, Joining: v.Joining,
	}
}

func (v *View) partitioned() bool { return v.Members.Len() < len(v.Regions) }

func (v *View) names(s Set) []string {
	var names []string
	for i, name := range v.Regions {
		if s.Has(i) {
			names = append(names, name)
		}
	}
	return names
}

// whenStale is this view once it is stale. A region that is alone in its topology has
// no peer to miss.
func (v *View) whenStale() *View {
	if len(v.Regions) == 1 {
		return nil
	}
	old := *v
	old.Members, old.current = Set{}.With(v.self), Set{}
	old.Joining, old.paused, old.reason = false, true, quota.ReasonProcessPaused
	old.About = slices.Delete(slices.Clone(v.Regions), v.self, v.self+1)
	return &old
}
