package sync_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/meshtest"
)

// step is one thing that happens in a world.
type step struct {
	what  string // admit, link, down, restart
	node  int
	id    uint64
	units int64
	to    int // for link: from node's region to this one's
	link  meshtest.Link
	wait  time.Duration // afterwards
}

// program draws what befalls three regions, one of two processes.
func program(rt *rapid.T, restarts bool) []step {
	what := []string{"admit", "admit", "admit", "link", "link", "down"}
	if restarts {
		what = append(what, "restart")
	}
	share := rapid.SampledFrom([]float64{0, 0, 0.1, 0.5})
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			what:  rapid.SampledFrom(what).Draw(rt, "what"),
			node:  rapid.IntRange(0, 3).Draw(rt, "node"),
			id:    rapid.Uint64Range(1, 5).Draw(rt, "id"),
			units: rapid.Int64Range(1, 40).Draw(rt, "units"),
			to:    rapid.IntRange(0, 3).Draw(rt, "to"),
			link: meshtest.Link{
				Cut:     rapid.IntRange(0, 3).Draw(rt, "cut") == 0,
				Latency: time.Duration(rapid.IntRange(0, 300).Draw(rt, "latency")) * time.Millisecond,
				Jitter:  time.Duration(rapid.SampledFrom([]int{0, 0, 50, 400}).Draw(rt, "jitter")) * time.Millisecond,
				Loss:    share.Draw(rt, "loss"),
				Repeat:  share.Draw(rt, "repeat"),
			},
			wait: time.Duration(rapid.SampledFrom([]int{0, 3, 40, 300, 1500}).Draw(rt, "wait")) * time.Millisecond,
		}
	}), 1, 25).Draw(rt, "program")
}

// run plays a program and returns what is wrong at its end.
func run(w *world, steps []step, settle time.Duration) error {
	names := [][2]string{{"eu", "a"}, {"eu", "b"}, {"us", "a"}, {"ap", "a"}}
	nodes := make([]*node, 4)
	truth := map[string]map[ledger.Cell]int64{"eu": {}, "us": {}, "ap": {}}
	boot := int64(0)
	begin := func(i int) {
		boot++
		nodes[i] = w.newNode(names[i][0], names[i][1], epochUS+boot*1_000_000, time.Duration(len(names[i][0])+i/2)*time.Second)
		nodes[i].totals = newCounters(nodes[i])
		nodes[i].totals.UrgentAbove = 30
		nodes[i].start(nodes[i].totals)
	}
	for i := range nodes {
		begin(i)
	}
	for _, s := range steps {
		n := nodes[s.node]
		switch s.what {
		case "admit":
			c := n.cell(s.id)
			c.Generation = n.self.Boot // one for each process: no store adds them up here
			n.totals.Admit(s.units, c)
			if truth != nil {
				truth[n.self.Region][c] += s.units
			}
		case "link":
			w.net.Set(n.self.Region, nodes[s.to].self.Region, s.link)
		case "down":
			n.bus.Down()
			sleep(s.wait)
			n.bus.Up()
		case "restart":
			n.kill()
			truth = nil // it may not have told anybody
			sleep(s.wait)
			begin(s.node)
		}
		sleep(s.wait)
	}
	w.net.SetAll(meshtest.Link{Latency: oneWay}, w.regions...)
	sleep(settle)
	return agree(nodes, truth)
}

// agree compares what every process holds of every region, with each other and with
// the truth if that is known, and whether it believes to hold all.
func agree(nodes []*node, truth map[string]map[ledger.Cell]int64) error {
	for _, region := range []string{"eu", "us", "ap"} {
		want := nodes[0].totals.Of(region)
		if truth != nil {
			want = truth[region]
		}
		for i, n := range nodes {
			if got := n.totals.Of(region); !maps.Equal(got, want) {
				return fmt.Errorf("of %s process %d holds %v, not %v", region, i, got, want)
			}
		}
	}
	for i, n := range nodes {
		for _, p := range n.Peers() {
			if !p.Synced || p.AckedAt == 0 {
				return fmt.Errorf("process %d has no digest of, or no ack from, %s/%s: %+v", i, p.Region, p.Instance, p)
			}
		}
		if len(n.Peers()) != 3 {
			return fmt.Errorf("process %d knows %d others", i, len(n.Peers()))
		}
	}
	return nil
}

// converges checks that programs end in agreement, so long after the last fault.
func converges(t *testing.T, restarts bool, settle time.Duration) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := program(rt, restarts)
		var err error
		synctest.Test(t, func(t *testing.T) {
			err = run(newWorld(t, "eu", "us", "ap"), steps, settle)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func TestConverges(t *testing.T) { converges(t, false, 3*time.Second) }

// What a process that died had told only some of the others comes to all by way of
// its next life: an echo, and the rolling snapshot.
func TestConvergesAfterRestarts(t *testing.T) { converges(t, true, 5*time.Second) }
