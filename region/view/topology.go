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

// Hash is what two processes compare to know that they divide every limit alike: it
// is equal for the same regions with the same weights in the same order, and never
// 0, which means that nothing was said.
func Hash(weights []quota.Weight) uint64 {
	var text []byte
	for _, w := range weights {
		text = fmt.Appendf(text, "region %q weight %d\n", w.Region, w.Weight)
	}
	sum := sha256.Sum256(text)
	return max(1, binary.BigEndian.Uint64(sum[:8]))
}

// topology is one way to divide limits. It never changes.
type topology struct {
	hash    uint64
	weights []quota.Weight
}

func newTopology(weights []quota.Weight) topology {
	return topology{hash: Hash(weights), weights: slices.Clone(weights)}
}

// believable reports whether a peer's weights can be divided by: what came over the
// bus is not yet known to follow the rules of a topology file.
func believable(weights []quota.Weight) bool {
	if len(weights) == 0 || len(weights) > region.MaxRegions {
		return false
	}
	for i, w := range weights {
		if w.Weight < 1 || w.Weight > region.MaxWeight {
			return false
		}
		if slices.ContainsFunc(weights[:i], func(o quota.Weight) bool { return o.Region == w.Region }) {
			return false
		}
	}
	return true
}

// rollout knows which topologies are in play while processes do not all have the
// same one:
//
//	we       A ───────────────── B ──────────────────────────────▶ B
//	peers    A ──────────────────────────── some B ───── all B ──▶
//	in play  A                   A, B                    B
//
// Ours is always in play. Any other is from when we had it or a peer was first heard
// to have it, until every region of ours, and everybody else who is there, has said
// that it has ours, in answer to something that we sent while we had it. Without the
// answer an old beat would do: we go from A to B and back, and a peer's last word from
// before it followed us to B would count as its consent to A.
//
// So there is always one topology that is in play everywhere: the one of the last
// that dropped others. Everybody had it then, and whoever moved on since remembers it
// until we have followed. The smallest parts of all in play then add up to at most L.
type rollout struct {
	ours   topology
	moved  bool          // ours is new since the last look
	since  time.Duration // from when on we show ours
	others []topology
	// blind: a peer has a topology that it has not spelled out, or overfull. Nothing
	// is known to be ours then.
	blind bool
	// overfull: there were more than can be remembered since all had ours.
	overfull bool
	// waiting is the live processes that do not have ours, as "region/instance".
	waiting []string
}

// configure makes weights ours and keeps what was in play.
func (r *rollout) configure(weights []quota.Weight) {
	t := newTopology(weights)
	if r.ours.hash != 0 && t.hash != r.ours.hash {
		r.remember(r.ours)
	}
	r.others = slices.DeleteFunc(r.others, func(o topology) bool { return o.hash == t.hash })
	r.moved = r.moved || t.hash != r.ours.hash
	r.ours, r.blind = t, r.blind || r.overfull
}

// observe takes in what live processes, siblings and strangers to our topology
// included, say of theirs. It reports whether anything that parts depend on changed.
func (r *rollout) observe(now time.Duration, self string, live map[string][]*Process) bool {
	if r.moved {
		r.moved, r.since = false, now
	}
	others, blind := len(r.others), r.blind
	r.blind, r.waiting = false, nil
	for _, name := range slices.Sorted(maps.Keys(live)) {
		for _, p := range live[name] {
			r.hear(p)
		}
	}
	if len(r.waiting) == 0 && r.confirmed(self, live) {
		r.others, r.overfull = nil, false
	}
	r.blind = r.blind || r.overfull
	return len(r.others) != others || r.blind != blind
}

// hear takes in one live process. One that has not sent a beat yet says nothing.
func (r *rollout) hear(p *Process) {
	if p.Topology == 0 || p.Topology == r.ours.hash {
		return
	}
	r.waiting = append(r.waiting, p.Region+"/"+p.Instance)
	if slices.ContainsFunc(r.others, func(o topology) bool { return o.hash == p.Topology }) {
		return
	}
	if !believable(p.Weights) || Hash(p.Weights) != p.Topology {
		r.blind = true
		return
	}
	r.remember(newTopology(p.Weights))
}

func (r *rollout) remember(t topology) {
	if len(r.others) == MaxTopologies {
		r.overfull = true
		return
	}
	r.others = append(r.others, t)
}

// confirmed reports whether every region of ours but ourselves is there, and all who
// are there have ours and know that we do.
func (r *rollout) confirmed(self string, live map[string][]*Process) bool {
	for _, w := range r.ours.weights {
		if w.Region != self && len(live[w.Region]) == 0 {
			return false
		}
	}
	for _, processes := range live {
		for _, p := range processes {
			if p.Topology != r.ours.hash || p.Acked <= r.since {
				return false
			}
		}
	}
	return true
}
