package view

import (
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
)

// View is what one process could see at one moment. It never changes and is safe
// for concurrent use; the slices that it returns belong to it.
type View struct {
	at        time.Duration
	regions   []string // in topology order
	self      int
	candidate Set // whom we would count on, as advertised
	members   Set // M in use: candidate, or ourselves alone
	current   Set // the regions whose estimates hold

	joining, frozen bool
	reason          quota.Reason // why not all regions are in M
	about           []string     // the regions that the reason is about

	advertised []string
	hash       uint64
	weights    []quota.Weight
	spell      bool
	division   *division
	peers      []Peer
	old        *View // what this view is worth once it is stale; nil in that one
}

// At returns the view to decide by at now: this one, or, when it is older than
// FrozenAfter, one in which this process is frozen. It allocates nothing.
func (v *View) At(now time.Duration) *View {
	if v.Stale(now) && v.old != nil {
		return v.old
	}
	return v
}

// Stale reports whether the view is older than FrozenAfter: then whoever calls
// Observe has stood still, and nothing in it can be relied on.
func (v *View) Stale(now time.Duration) bool { return now-v.at > FrozenAfter }

// Regions names the regions in the order in which estimates are given.
func (v *View) Regions() []string { return v.regions }

// Self is our own place in Regions.
func (v *View) Self() int { return v.self }

// Members is M in use, ourselves included, as places in Regions.
func (v *View) Members() Set { return v.members }

// Advertised is the candidate M in ascending order: what beats say, whether or not
// the others agree.
func (v *View) Advertised() []string { return v.advertised }

// Topology is the Hash of our regions and weights, and these themselves when beats
// should spell them out: while anybody may have others, and while not everybody is
// in sight.
func (v *View) Topology() (hash uint64, weights []quota.Weight) {
	if !v.spell {
		return v.hash, nil
	}
	return v.hash, v.weights
}

// Mode is how much we can see, for a policy that wants f when blind, and why it is
// not everything; ReasonNone with ModeGlobal.
func (v *View) Mode(f quota.FailMode) (quota.Mode, quota.Reason) {
	switch {
	case !v.blind():
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

// Joined reports whether joining is over. A process is then as ready as its peers
// let it be.
func (v *View) Joined() bool { return !v.joining }

// Ceiling is how many units our region may hold of a limit of units, for a policy
// that wants f when blind. estimates are what each region is believed to have used,
// whole units rounded up, in the order of Regions; lost is what we admitted and our
// store forgot. closed says that the ceiling is 0 because f is closed: the answer is
// then that we cannot say, not that the limit is reached. It allocates nothing for
// units that Configure was told of.
func (v *View) Ceiling(units int64, f quota.FailMode, estimates []int64, lost int64) (ceiling int64, closed bool) {
	return Ceiling(v.terms(units, f, estimates, lost))
}

// Part is what our region may claim of units by itself.
func (v *View) Part(units int64) int64 { return v.division.parts(units)[v.self] }

// Peers describes every region in the order of Regions, ours included.
func (v *View) Peers() []Peer { return v.peers }

func (v *View) terms(units int64, f quota.FailMode, estimates []int64, lost int64) Terms {
	return Terms{
		Parts: v.division.parts(units), Estimates: estimates, Self: v.self,
		Members: v.members, Current: v.current, Lost: lost, Fail: f, Joining: v.joining, Frozen: v.frozen,
	}
}

// blind reports whether any region is not in M.
func (v *View) blind() bool { return v.members.Len() < len(v.regions) }

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

// frozenVariant is this view as it is to be read when nobody has renewed it. A region
// that is alone in its topology has nothing to miss.
func (v *View) frozenVariant() *View {
	if len(v.regions) == 1 {
		return nil
	}
	old := *v
	old.members, old.current = Set{}.With(v.self), Set{}
	old.joining, old.frozen, old.reason = false, true, quota.ReasonProcessPaused
	old.about = slices.Delete(slices.Clone(v.regions), v.self, v.self+1)
	return &old
}
