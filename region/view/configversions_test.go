package view_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
)

// drawReloads starts two to four regions of equal weight, which count on each other,
// and draws topologies for them to reload, of which some lack a region.
func drawReloads(t *rapid.T) (w *world, topologies [][]quota.Weight) {
	names := regionNames[:rapid.IntRange(2, 4).Draw(t, "regions")]
	var first []quota.Weight
	for _, name := range names {
		first = append(first, quota.Weight{Region: name, Weight: 1})
	}
	topologies = [][]quota.Weight{first}
	for range 2 {
		var weights []quota.Weight
		for _, name := range names {
			if w := rapid.Int64Range(0, 4).Draw(t, "weight"); w > 0 {
				weights = append(weights, quota.Weight{Region: name, Weight: w})
			}
		}
		topologies = append(topologies, weights)
	}
	w = newWorld(first)
	w.fromAnywhere = true
	for _, name := range names {
		w.start(name)
	}
	w.run(time.Second)
	return w, topologies
}

// Regions reload in any order and as often as they like, and their heartbeats arrive
// late or not at all: the shares that they apply never add up to more than L.
func TestAppliedSharesNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, topologies := drawReloads(t)
		index := rapid.IntRange(0, len(w.nodes)-1)
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += time.Millisecond
			n, other := w.nodes[index.Draw(t, "who")], w.nodes[index.Draw(t, "other")]
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				next := topologies[rapid.IntRange(0, len(topologies)-1).Draw(t, "topology")]
				if slices.ContainsFunc(next, func(w quota.Weight) bool { return w.Region == n.Region }) {
					n.reload(next)
				}
			case 1, 2, 3:
				w.heartbeat(n)
			default: // the oldest message from other arrives
				i := slices.IndexFunc(w.flight, func(m message) bool { return m.from == other && m.to == n })
				if i >= 0 {
					w.receive(n, w.flight[i])
					w.flight = slices.Delete(w.flight, i, i+1)
				}
			}
			w.observe(n)
			for _, units := range []int64{1, 7, 100} {
				var sum int64
				var shares []string
				for _, r := range w.nodes {
					sum += r.view.Share(units)
					shares = append(shares, fmt.Sprintf("%s=%d", r.Region, r.view.Share(units)))
				}
				if sum > units {
					t.Fatalf("step %d: of %d the regions use %v", step, units, shares)
				}
			}
		}
	})
}

// peerOf is the only process of a region, of which a message has arrived.
func peerOf(region string) members.Member {
	return members.Member{Process: quota.Process{Region: region, Instance: "1"}, Bus: members.Bus{ReceivedAt: epoch}}
}

func withTopology(p members.Member, hash uint64, weights []quota.Weight) members.Member {
	p.Topology, p.Weights = hash, weights
	return p
}

// A peer whose topology cannot be read is treated as unreachable, like one that uses another key.
// It goes by the smaller of its share and the one under ours, as everybody does until all
// have the same topology, so our own share stays.
func TestUnreadableTopologyExcludesThePeerAlone(t *testing.T) {
	ours := []quota.Weight{{Region: "a", Weight: 1}, {Region: "b", Weight: 1}}
	theirs := []quota.Weight{{Region: "a", Weight: 1}, {Region: "b", Weight: 3}}
	for _, row := range []struct {
		why      string
		topology uint64
		weights  []quota.Weight
		want     int64
		state    members.State
	}{
		{"no heartbeat yet", 0, nil, 50, members.StateFresh},
		{"the same", view.Hash(ours), nil, 50, members.StateFresh},
		{"another without its weights", view.Hash(theirs), nil, 50, members.StateBehind},
		{"another with its weights", view.Hash(theirs), theirs, 25, members.StateFresh},
		{"its weights came earlier", view.Hash(theirs), nil, 25, members.StateFresh},
		{"other weights than the hash says", 42, theirs, 50, members.StateBehind},
		{"no regions at all", view.Hash(nil), nil, 50, members.StateBehind},
	} {
		v := view.NewViewer("a", epoch, topologyOf(ours))
		b := peerOf("b")
		b.AckedAt, b.Heartbeats, b.Synced, b.Members = epoch, 9, true, []string{"a", "b"}
		if row.why == "its weights came earlier" {
			v.Observe(view.Input{Now: epoch, Processes: []members.Member{withTopology(b, row.topology, theirs)}})
		}
		got, _ := v.Observe(view.Input{Now: epoch, Processes: []members.Member{withTopology(b, row.topology, row.weights)}})
		mode, _ := got.Mode(quota.FailShare)
		if share, state := got.Share(100), got.Peers[1].State; share != row.want || state != row.state || (mode == quota.ModeGlobal) != (state == members.StateFresh) {
			t.Errorf("%s: our share of 100 is %d, b is %v, the mode is %v; want %d, %v", row.why, share, state, mode, row.want, row.state)
		}
	}
}
