package gossip_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
)

// However long a partition has lasted, all processes see each other within ten
// seconds after it, also one that is no seed. memberlist alone never heals it.
func TestFullViewAfterAPartition(t *testing.T) {
	for _, row := range []struct {
		name       string
		n, left    int // on one side
		cut        time.Duration
		nobodyDied bool
	}{
		{name: "a blink", n: 5, left: 2, cut: 3 * s, nobodyDied: true},
		{name: "a minute", n: 5, left: 2, cut: time.Minute}, // without seeds: the dead are called too
		// Around a minute after the deaths the library begins to forget the dead.
		{name: "when the dead are forgotten", n: 5, left: 2, cut: 68 * s},
		{name: "an hour", n: 3, left: 1, cut: time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				ps := c.startAll(row.n)
				all := addresses(ps)
				c.lost.Store(row.cut == time.Minute)
				c.net.Split(all[:row.left], all[row.left:])
				time.Sleep(row.cut)
				if row.nobodyDied != whole(ps, row.n) {
					t.Fatalf("after %v all are seen: %v, want %v", row.cut, !row.nobodyDied, row.nobodyDied)
				}
				c.net.Heal()
				c.await(10*s, func() bool { return whole(ps, row.n) })
			})
		})
	}
}

// All seeds are unreachable for an hour after a process starts.
func TestSeedsThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.seeds = []string{address(1), address(2)}
		p := c.start("r1", "a", address(1))
		time.Sleep(time.Hour)
		if got := logged(p.log, "gossip seed cannot be reached"); got != 1 {
			t.Errorf("%d lines about a seed that is away for an hour, want one", got)
		}
		q := c.start("r2", "a", address(2))
		c.await(10*s, func() bool { return whole([]*process{p, q}, 2) })
		c.await(10*s, func() bool { return logged(p.log, "gossip seed is reached again") == 1 })
	})
}

func TestPlannedLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ps := c.startAll(5)
		stopped := make(chan time.Duration, 1)
		begun := time.Now()
		go func() { ps[0].stop(); stopped <- time.Since(begun) }()
		dead := func(p *process) bool { return p.sees("r1/a") == members.Dead }
		seen := c.await(time.Minute, func() bool { return !slices.ContainsFunc(ps[1:], func(p *process) bool { return !dead(p) }) })
		took := <-stopped
		if seen > 500*ms || took > 1500*ms {
			t.Errorf("a leave is seen by all after %v, Run ended after %v; want 500ms and 1.5s", seen, took)
		}
		time.Sleep(time.Minute)
		if !dead(ps[1]) {
			t.Errorf("a minute later it is %v, want dead", ps[1].sees("r1/a"))
		}
		again := c.start("r1", "a", address(8)) // at another address at once
		c.await(10*s, func() bool { return whole(append(ps[1:5:5], again), 5) && len(ps[1].Members()) == 5 })
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ps := c.startAll(3)
		ps[0].crash()
		dead := func() bool {
			return ps[1].sees("r1/a") == members.Dead && ps[2].sees("r1/a") == members.Dead
		}
		c.await(15*s, dead)
		time.Sleep(9 * time.Minute)
		if !dead() {
			t.Error("forgotten within ten minutes")
		}
		time.Sleep(2 * time.Minute)
		if got := ps[1].sees("r1/a"); got != "" {
			t.Errorf("after eleven minutes it is %v, want forgotten", got)
		}
		if got := logged(ps[1].log, "gossip: process is dead"); got != 1 {
			t.Errorf("%d lines about one death", got)
		}
	})
}

// The state of 257 processes with the longest names, and of as many that they
// have replaced, is no flood.
func TestManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 257
		c := newCluster(t)
		c.seeds = []string{address(1)}
		reader, meter := metered()
		hash := func(o *gossip.Options) {
			o.ConfigHash = func() string { return strings.Repeat("h", 64) }
			o.Version = strings.Repeat("v", 64)
		}
		first := c.start("r1", "a", address(1), hash, meter)
		for i := range n - 1 {
			addr := fmt.Sprintf("10.0.%d.%d:7946", 1+i/200, 1+i%200)
			c.start(strings.Repeat("r", 32), fmt.Sprintf("%0128d", i), addr, hash)
		}
		c.await(time.Minute, func() bool { return first.count(members.Alive) == n })
		for _, reason := range []string{"size", "bytes", "message"} {
			if got := reader.Of(t, "regiond.gossip.refused", "reason", reason); got != 0 {
				t.Errorf("%v streams of processes were refused for %s", got, reason)
			}
		}
	})
}
