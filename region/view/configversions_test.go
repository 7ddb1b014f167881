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

// claimant is a region with its Viewer, and what it last heard of each other.
type claimant struct {
	name   string
	viewer *view.Viewer
	view   *view.View
	heard  map[string]view.Process
	sent   map[string]time.Duration // when what was last heard of each was sent
	flight map[string][]beat        // on its way from here to each, oldest first
}

// beat is what one says of itself, spelled out or not as it sees fit, and when it
// was that the receiver sent what it has last heard of it.
type beat struct {
	sent time.Duration
	view.Process
}

func (c *claimant) observe(now time.Duration) {
	in := view.Input{Now: now}
	for _, p := range c.heard {
		in.Processes = append(in.Processes, p)
	}
	c.view, _ = c.viewer.Observe(in)
}

func (c *claimant) send(to string, now time.Duration) {
	b := beat{now, peerOf(c.name)}
	b.AckedAt = c.sent[to]
	b.Topology, b.Weights = c.view.Topology()
	c.flight[to] = append(c.flight[to], b)
}

func (c *claimant) hear(from *claimant) {
	if q := from.flight[c.name]; len(q) > 0 {
		c.heard[from.name], c.sent[from.name] = q[0].Process, q[0].sent
		from.flight[c.name] = q[1:]
	}
}

// peerOf is the only process of a region, of which a message has arrived.
func peerOf(region string) view.Process {
	return view.Process{Peer: meshsync.Peer{Process: quota.Process{Region: region, Instance: "1"}, ReceivedAt: epoch}}
}

func withTopology(p view.Process, hash uint64, weights []quota.Weight) view.Process {
	p.Topology, p.Weights = hash, weights
	return p
}

// drawClaimants starts two to four regions of equal weight, which have all met, and
// draws topologies for them to reload.
func drawClaimants(t *rapid.T) (regions []*claimant, topologies [][]quota.Weight) {
	names := regionNames[:rapid.IntRange(2, 4).Draw(t, "regions")]
	var first []quota.Weight
	for _, name := range names {
		first = append(first, quota.Weight{Region: name, Weight: 1})
	}
	topologies = [][]quota.Weight{first}
	for range 2 {
		var weights []quota.Weight
		for _, name := range names {
			if w := rapid.Int64Range(0, 4).Draw(t, "weight"); w > 0 { // 0: not in it
				weights = append(weights, quota.Weight{Region: name, Weight: w})
			}
		}
		topologies = append(topologies, weights)
	}
	for _, name := range names {
		v, err := view.NewViewer(name, epoch, topologyOf(first))
		if err != nil {
			t.Fatal(err)
		}
		c := &claimant{
			name: name, viewer: v, heard: map[string]view.Process{},
			sent: map[string]time.Duration{}, flight: map[string][]beat{},
		}
		c.observe(epoch)
		regions = append(regions, c)
	}
	for _, from := range regions {
		for _, to := range regions {
			if from != to {
				from.send(to.name, epoch)
				to.hear(from)
			}
		}
	}
	return regions, topologies
}

// Regions reload in any order and as often as they like, and hear of each other late
// or not at all: what all of them together take for theirs is never more than L.
func TestAppliedPartsNeverAddUpToMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		regions, topologies := drawClaimants(t)
		index := rapid.IntRange(0, len(regions)-1)
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now := epoch + time.Duration(step+1)*time.Millisecond
			c, other := regions[index.Draw(t, "who")], regions[index.Draw(t, "other")]
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				next := topologies[rapid.IntRange(0, len(topologies)-1).Draw(t, "topology")]
				if slices.ContainsFunc(next, func(w quota.Weight) bool { return w.Region == c.name }) {
					if err := c.viewer.Configure(topologyOf(next)); err != nil {
						t.Fatal(err)
					}
				}
			case 1, 2, 3:
				if c != other {
					c.send(other.name, now)
				}
			default:
				c.hear(other)
			}
			c.observe(now)
			addUp(t, step, regions)
		}
	})
}

func addUp(t *rapid.T, step int, regions []*claimant) {
	for _, units := range []int64{1, 7, 100} {
		var sum int64
		said := ""
		for _, r := range regions {
			sum += r.view.Share(units)
			said += fmt.Sprintf(" %s=%d", r.name, r.view.Share(units))
		}
		if sum > units {
			t.Fatalf("step %d: of %d the regions take%s", step, units, said)
		}
	}
}

// A peer that has not spelled its topology out, or has more of them than can be
// remembered, leaves nothing to claim; one that lies about them is not believed.
func TestWhatIsNotKnownIsNotOurs(t *testing.T) {
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
	part := func(said []quota.Weight) int64 {
		p := withTopology(peerOf("b"), view.Hash(said), said)
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
