package view_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
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
func peerOf(region string) view.Process {
	return view.Process{Peer: meshsync.Peer{Process: quota.Process{Region: region, Instance: "1"}, ReceivedAt: epoch}}
}

func withTopology(p view.Process, hash uint64, weights []quota.Weight) view.Process {
	p.Topology, p.Weights = hash, weights
	return p
}

// While a peer has a topology whose weights it has not sent, or has sent wrongly, no
// share is certain.
func TestUnknownTopologiesLeaveNoShare(t *testing.T) {
	ours := []quota.Weight{{Region: "a", Weight: 1}, {Region: "b", Weight: 1}}
	theirs := []quota.Weight{{Region: "a", Weight: 3}, {Region: "b", Weight: 1}}
	for _, row := range []struct {
		why      string
		topology uint64
		weights  []quota.Weight
		want     int64
	}{
		{"no beat yet", 0, nil, 50},
		{"the same", view.Hash(ours), nil, 50},
		{"another, not spelled out", view.Hash(theirs), nil, 0},
		{"another, spelled out", view.Hash(theirs), theirs, 50},
		{"now it is known", view.Hash(theirs), nil, 50},
		{"spelled out wrongly", 42, theirs, 0},
		{"not a topology", view.Hash([]quota.Weight{{Region: "a", Weight: -1}}), []quota.Weight{{Region: "a", Weight: -1}}, 0},
		{"not a topology", view.Hash([]quota.Weight{theirs[0], theirs[0]}), []quota.Weight{theirs[0], theirs[0]}, 0},
		{"agreed again", view.Hash(ours), nil, 50},
	} {
		v, err := view.NewViewer("a", epoch, topologyOf(ours))
		if err != nil {
			t.Fatal(err)
		}
		if row.why == "now it is known" {
			v.Observe(view.Input{Now: epoch, Processes: []view.Process{withTopology(peerOf("b"), row.topology, theirs)}})
		}
		got, _ := v.Observe(view.Input{Now: epoch, Processes: []view.Process{withTopology(peerOf("b"), row.topology, row.weights)}})
		if part := got.Share(100); part != row.want {
			t.Errorf("%s: our part of 100 is %d, want %d", row.why, part, row.want)
		}
	}
}

func TestTooManyTopologiesLeaveNothingUntilAllAgree(t *testing.T) {
	weights := func(w int64) []quota.Weight {
		return []quota.Weight{{Region: "a", Weight: w}, {Region: "b", Weight: 1}}
	}
	v, err := view.NewViewer("a", epoch, topologyOf(weights(1)))
	if err != nil {
		t.Fatal(err)
	}
	part := func(theirs []quota.Weight) int64 {
		p := withTopology(peerOf("b"), view.Hash(theirs), theirs)
		p.AckedAt = epoch + 1
		got, _ := v.Observe(view.Input{Now: epoch, Processes: []view.Process{p}})
		return got.Share(100)
	}
	for i := range int64(view.MaxTopologies) {
		if got := part(weights(2 + i)); got != 50 {
			t.Fatalf("with %d others in play our part is %d, want 50", i+1, got)
		}
	}
	if got := part(weights(100)); got != 0 {
		t.Errorf("with one too many our part is %d, want 0", got)
	}
	if got := part(weights(2)); got != 0 {
		t.Errorf("what was turned away is still in play somewhere: our part is %d, want 0", got)
	}
	if got := part(weights(1)); got != 50 {
		t.Errorf("once all agree our part is %d, want 50", got)
	}
}
