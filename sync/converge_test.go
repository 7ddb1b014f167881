package sync_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/meshtest"

	"github.com/regiond/regiond/quota"
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

// shelf is where a process of the world keeps its totals.
type shelf interface {
	meshsync.Counters
	// admit returns which total it added to, and what that is now.
	admit(n *node, id uint64, units int64) (total string, now int64)
	of(region string) map[string]int64
}

// run plays a program and returns what is wrong at its end.
func run(w *world, steps []step, newShelf func(n *node) shelf, settle time.Duration) error {
	names := [][2]string{{"eu", "a"}, {"eu", "b"}, {"us", "a"}, {"ap", "a"}}
	nodes, shelves := make([]*node, 4), make([]shelf, 4)
	truth := map[string]map[string]int64{"eu": {}, "us": {}, "ap": {}}
	boot := int64(0)
	begin := func(i int) {
		boot++
		nodes[i] = w.newNode(names[i][0], names[i][1], epochUS+boot*1_000_000, time.Duration(len(names[i][0])+i/2)*time.Second)
		shelves[i] = newShelf(nodes[i])
		nodes[i].start(shelves[i])
	}
	for i := range nodes {
		begin(i)
	}
	for _, s := range steps {
		n := nodes[s.node]
		switch s.what {
		case "admit":
			total, units := shelves[s.node].admit(n, s.id, s.units)
			if truth != nil {
				truth[n.self.Region][total] = units
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
	return agree(nodes, shelves, truth)
}

// agree compares what every process holds of every region, with each other and with
// the truth if that is known, and whether it believes to hold all.
func agree(nodes []*node, shelves []shelf, truth map[string]map[string]int64) error {
	for _, region := range []string{"eu", "us", "ap"} {
		want := shelves[0].of(region)
		if truth != nil {
			want = truth[region]
		}
		for i, s := range shelves {
			if got := s.of(region); !maps.Equal(got, want) {
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
func converges(t *testing.T, newShelf func(n *node) shelf, restarts bool, settle time.Duration) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := program(rt, restarts)
		var err error
		synctest.Test(t, func(t *testing.T) {
			err = run(newWorld(t, "eu", "us", "ap"), steps, newShelf, settle)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func TestConverges(t *testing.T) { converges(t, newMaps, false, 3*time.Second) }

// What a process that died had told only some of the others comes to all by way of
// its next life: an echo, and the rolling digest.
func TestConvergesAfterRestarts(t *testing.T) { converges(t, newMaps, true, 5*time.Second) }

func TestConvergesWithTheLedger(t *testing.T) { converges(t, newLedgerShelf, false, 3*time.Second) }

// mapShelf keeps plain maps.
type mapShelf struct{ *meshtest.Totals }

func newMaps(n *node) shelf {
	t := meshtest.NewTotals(n.self.Region, n.w.now)
	t.UrgentAbove = 30
	return mapShelf{t}
}

// admit counts under an epoch for each process, since no store adds them up here.
func (s mapShelf) admit(n *node, id uint64, units int64) (string, int64) {
	c := n.cell(id)
	c.Epoch = n.self.Boot
	s.Admit(units, c)
	return nameCell(c.Bucket, id, c.Epoch), s.Snapshot()[c]
}

func nameCell(bucket int64, id uint64, epoch int64) string {
	return fmt.Sprint(bucket, "/", id, "/", epoch)
}

func (s mapShelf) of(region string) map[string]int64 {
	held := map[string]int64{}
	for c, units := range s.Of(region) {
		held[nameCell(c.Bucket, c.ID, c.Epoch)] = units
	}
	return held
}

// ledgerShelf keeps the real ledger.
type ledgerShelf struct {
	*ledger.Ledger
	units map[uint64]int64 // admitted by this process, by id
}

func newLedgerShelf(n *node) shelf {
	l, err := ledger.New(ledger.Options{
		Self: n.self.Region, Boot: n.self.Boot, Now: n.w.now,
		Limit:   func(string) (int64, bool) { return 600, true },
		Regions: func() int { return 3 },
	})
	if err != nil {
		n.w.t.Fatal(err)
	}
	return ledgerShelf{l, map[uint64]int64{}}
}

// admit records in an epoch of the process, as if each had a store of its own.
func (s ledgerShelf) admit(n *node, id uint64, units int64) (string, int64) {
	c := n.cell(id)
	s.units[id] += units
	series := &ledger.Series{ID: id, Limit: c.Limit, Units: 600, WindowUS: c.WindowUS, BucketUS: c.BucketUS}
	s.Record(series, quota.Counter{Bucket: c.Bucket, Generation: n.self.Boot, Units: s.units[id]}, n.timeUS())
	return nameCell(c.Bucket, id, n.self.Boot), s.units[id]
}

func (s ledgerShelf) of(region string) map[string]int64 {
	held := map[string]int64{}
	for _, c := range s.Snapshot() {
		if c.Region == region {
			held[nameCell(c.Bucket, c.ID, c.Generation)] = c.Units
		}
	}
	return held
}
