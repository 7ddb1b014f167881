package view

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// MaxTopologies bounds how many topologies that differ from ours are remembered at
// once. With more of them no share is certain, and every share is 0.
const MaxTopologies = 16

// Hash identifies how limits are divided: it is equal for the same regions with the
// same weights in the same order, and never 0, which stands for "not known".
func Hash(weights []quota.Weight) uint64 {
	var text []byte
	for _, w := range weights {
		text = fmt.Appendf(text, "region %q weight %d\n", w.Region, w.Weight)
	}
	sum := sha256.Sum256(text)
	return max(1, binary.BigEndian.Uint64(sum[:8]))
}

// configVersion is one way to divide limits. It never changes.
type configVersion struct {
	hash    uint64
	weights []quota.Weight
}

func newConfigVersion(weights []quota.Weight) configVersion {
	return configVersion{hash: Hash(weights), weights: slices.Clone(weights)}
}

// valid reports whether limits can be divided by weights, which may have come over
// the bus.
func valid(weights []quota.Weight) bool {
	if len(weights) == 0 || len(weights) > quota.MaxRegions {
		return false
	}
	for i, w := range weights {
		if w.Weight < 1 || w.Weight > quota.MaxWeight {
			return false
		}
		if slices.ContainsFunc(weights[:i], func(o quota.Weight) bool { return o.Region == w.Region }) {
			return false
		}
	}
	return true
}

// configVersions knows which topologies are active while processes do not all have
// the same one:
//
//	we       A ───────────────── B ──────────────────────────────▶ B
//	peers    A ──────────────────────────── some B ───── all B ──▶
//	active   A                   A, B                    B
//
// Ours is always active. Any other is from when we had it or a peer first advertised
// it, until every region of ours, and every other live process, has advertised ours in
// response to a message that we sent while we had it. Without the response an old
// heartbeat would do: we go from A to B and back, and a peer's last heartbeat from
// before it followed us to B would count as its consent to A.
//
// So there is always one topology that is active everywhere: that of the last process
// that dropped others. All had it then, and whichever moved on since remembers it
// until we have followed. The smallest shares under all active ones therefore add up
// to at most L.
type configVersions struct {
	ours   configVersion
	moved  bool          // ours is new since the last update
	since  time.Duration // from when on we advertise ours
	others []configVersion
	// unknown: a peer has a topology whose weights it has not sent, or overfull. No
	// share is certain then.
	unknown bool
	// overfull: there were more than MaxTopologies since all had ours.
	overfull bool
	// waiting is the live processes that do not have ours, as "region/instance".
	waiting []string
}

// configure makes weights ours and keeps what was active.
func (c *configVersions) configure(weights []quota.Weight) {
	v := newConfigVersion(weights)
	if c.ours.hash != 0 && v.hash != c.ours.hash {
		c.remember(c.ours)
	}
	c.others = slices.DeleteFunc(c.others, func(o configVersion) bool { return o.hash == v.hash })
	c.moved = c.moved || v.hash != c.ours.hash
	c.ours, c.unknown = v, c.unknown || c.overfull
}

// drift reports whether more than one topology is active.
func (c *configVersions) drift() bool { return len(c.others) > 0 || c.unknown }

// update takes in what live processes advertise, siblings and regions outside our
// topology included. It reports whether anything that shares depend on changed.
func (c *configVersions) update(now time.Duration, self string, live map[string][]*Process) bool {
	if c.moved {
		c.moved, c.since = false, now
	}
	others, unknown := len(c.others), c.unknown
	c.unknown, c.waiting = false, nil
	for _, name := range slices.Sorted(maps.Keys(live)) {
		for _, p := range live[name] {
			c.add(p)
		}
	}
	if c.confirmed(self, live) {
		c.others, c.overfull = nil, false
	}
	c.unknown = c.unknown || c.overfull
	return len(c.others) != others || c.unknown != unknown
}

// add takes in one live process. Before its first heartbeat its topology is not known.
func (c *configVersions) add(p *Process) {
	if p.Topology == 0 || p.Topology == c.ours.hash {
		return
	}
	c.waiting = append(c.waiting, p.Region+"/"+p.Instance)
	if slices.ContainsFunc(c.others, func(o configVersion) bool { return o.hash == p.Topology }) {
		return
	}
	if !valid(p.Weights) || Hash(p.Weights) != p.Topology {
		c.unknown = true
		return
	}
	c.remember(newConfigVersion(p.Weights))
}

func (c *configVersions) remember(v configVersion) {
	if len(c.others) == MaxTopologies {
		c.overfull = true
		return
	}
	c.others = append(c.others, v)
}

// confirmed reports whether every region of ours but ourselves has a live process, and
// every live process has ours and knows that we do.
func (c *configVersions) confirmed(self string, live map[string][]*Process) bool {
	for _, w := range c.ours.weights {
		if w.Region != self && len(live[w.Region]) == 0 {
			return false
		}
	}
	for _, processes := range live {
		for _, p := range processes {
			if p.Topology != c.ours.hash || p.AckedAt <= c.since {
				return false
			}
		}
	}
	return true
}

// allocation is how limits are divided under all active topologies. It never changes,
// and every View refers to the same one until something of it does.
type allocation struct {
	regions []string // ours, in topology order
	weights []int64
	active  []configVersion
	unknown bool
	known   map[int64][]int64 // shares of the limits that Configure listed, by units
}

// allocate computes the shares of units under the topologies of c.
func allocate(c *configVersions, units []int64) *allocation {
	a := &allocation{
		active: append([]configVersion{c.ours}, c.others...), unknown: c.unknown, known: make(map[int64][]int64, len(units)),
	}
	for _, w := range c.ours.weights {
		a.regions = append(a.regions, w.Region)
		a.weights = append(a.weights, w.Weight)
	}
	for _, u := range units {
		a.known[u] = a.divide(u)
	}
	return a
}

// shares returns each region's share of units, in topology order, not to be changed.
// Units that Configure did not list are divided on the spot.
func (a *allocation) shares(units int64) []int64 {
	if shares, ok := a.known[units]; ok {
		return shares
	}
	return a.divide(units)
}

// divide returns the smallest share of each region under any active topology: 0 for a
// region that one of them does not have, and for all when one is not known.
func (a *allocation) divide(units int64) []int64 {
	smallest := make([]int64, len(a.regions))
	if a.unknown {
		return smallest
	}
	for n, v := range a.active {
		shares := v.shares(units)
		for i, name := range a.regions {
			if share := shares[name]; n == 0 || share < smallest[i] {
				smallest[i] = share
			}
		}
	}
	return smallest
}

// shares divides units among the regions of a topology.
func (v configVersion) shares(units int64) map[string]int64 {
	weights := make([]int64, len(v.weights))
	for i, w := range v.weights {
		weights[i] = w.Weight
	}
	shares := make(map[string]int64, len(weights))
	for i, share := range region.Parts(weights, units) {
		shares[v.weights[i].Region] = share
	}
	return shares
}
