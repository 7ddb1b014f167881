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
	"github.com/regiond/regiond/region/members"
)

// maxKnown bounds how many hashes of topologies are remembered while processes differ. A
// peer whose hash is forgotten sends its weights, as all do meanwhile.
const maxKnown = 256

// Hash identifies how limits are divided: it is equal for the same regions with the
// same weights in the same order, and never 0, which stands for "not known".
func Hash(weights []quota.Weight) uint64 {
	text := []byte("method dhondt\n") // of region.Shares
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
// to at most L. Only these are kept, not the topologies.
type configVersions struct {
	ours  configVersion
	moved bool          // ours is new since the last update
	since time.Duration // from when on we advertise ours
	// floor is the smallest shares under the other active topologies; nil: there are none.
	floor region.Floor
	known []uint64 // hashes of topologies that are in floor, the newest last
	// waiting is the live processes that do not have ours, as "region/instance".
	waiting []string
}

// configure makes weights ours and keeps what was active.
func (c *configVersions) configure(weights []quota.Weight) {
	v := configVersion{hash: Hash(weights), weights: slices.Clone(weights)}
	if v.hash == c.ours.hash {
		return
	}
	if c.ours.hash != 0 {
		c.remember(c.ours.hash, c.ours.weights)
	}
	c.ours, c.moved = v, true
}

func (c *configVersions) drift() bool { return c.floor != nil }

// update takes in what live processes advertise, siblings and regions outside our
// topology included. It reports whether anything that shares depend on changed.
func (c *configVersions) update(now time.Duration, self string, live map[string][]*members.Member) bool {
	if c.moved {
		c.moved, c.since = false, now
	}
	before := c.floor
	c.waiting = nil
	for _, name := range slices.Sorted(maps.Keys(live)) {
		for _, p := range live[name] {
			c.add(p)
		}
	}
	if c.confirmed(self, live) {
		c.floor, c.known = nil, nil
	}
	return !maps.Equal(before, c.floor) || (before == nil) != (c.floor == nil)
}

// add takes in one live process. Before its first heartbeat its topology is not known.
//
// One whose topology cannot be read is treated as unreachable. It needs no smaller shares of
// ours: we do not have its topology, so to it ours stays active.
func (c *configVersions) add(p *members.Member) {
	p.View.Unreadable = false
	if p.Topology == 0 || p.Topology == c.ours.hash {
		return
	}
	c.waiting = append(c.waiting, p.Region+"/"+p.Instance)
	if slices.Contains(c.known, p.Topology) {
		return
	}
	if len(p.Weights) == 0 || Hash(p.Weights) != p.Topology {
		p.View.Unreadable = true
		return
	}
	c.remember(p.Topology, p.Weights)
}

func (c *configVersions) remember(hash uint64, weights []quota.Weight) {
	c.floor = c.floor.Min(region.FloorOf(weights))
	c.known = append(c.known[max(0, len(c.known)+1-maxKnown):], hash)
}

// confirmed reports whether every region of ours but ourselves has a live process, and
// every live process has ours and knows that we do.
func (c *configVersions) confirmed(self string, live map[string][]*members.Member) bool {
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
	weights []quota.Weight
	floor   region.Floor
	known   map[int64][]int64 // shares of the limits that Configure listed, by units
}

func allocate(c *configVersions, units []int64) *allocation {
	a := &allocation{weights: c.ours.weights, floor: c.floor, known: make(map[int64][]int64, len(units))}
	for _, w := range a.weights {
		a.regions = append(a.regions, w.Region)
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

// divide returns the smallest share of each region under any active topology.
func (a *allocation) divide(units int64) []int64 {
	shares := region.Shares(a.weights, units)
	if a.floor != nil {
		for i, name := range a.regions {
			shares[i] = min(shares[i], a.floor.Share(name, units))
		}
	}
	return shares
}
