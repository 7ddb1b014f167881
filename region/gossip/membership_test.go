package gossip_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/gossiptest"
)

// However long a partition has lasted, all processes see each other within ten
// seconds after it. memberlist alone never heals it.
func TestFullViewAfterAPartition(t *testing.T) {
	for _, row := range []struct {
		name       string
		n, left    int // on one side
		cut        time.Duration
		nobodyDied bool
	}{
		{name: "a blink", n: 5, left: 2, cut: 3 * s, nobodyDied: true},
		{name: "a minute", n: 5, left: 2, cut: time.Minute},
		// Around a minute after the deaths the library begins to forget the dead.
		{name: "when the dead are forgotten", n: 5, left: 2, cut: 68 * s},
		{name: "an hour", n: 3, left: 1, cut: time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				ps := c.startAll(row.n)
				all := addresses(ps)
				c.net.Split(all[:row.left], all[row.left:])
				time.Sleep(row.cut)
				if row.nobodyDied != whole(ps, row.n) {
					t.Fatalf("after %v all are seen: %v, want %v", row.cut, !row.nobodyDied, row.nobodyDied)
				}
				c.net.Heal()
				took := c.await(time.Minute, func() bool { return whole(ps, row.n) })
				t.Logf("full view %v after a cut of %v", took, row.cut)
				if took > 10*s {
					t.Errorf("full view after %v, want at most 10s", took)
				}
			})
		})
	}
}

// A process that is not a seed finds the others, and is found after a partition.
func TestNotASeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ps := c.startAll(2)
		ps = append(ps, c.start("r1", "b", address(9)))
		c.await(10*s, func() bool { return whole(ps, 3) })
		c.net.Split([]string{address(9)}, c.seeds)
		time.Sleep(30 * time.Minute)
		if !whole(ps[:2], 2) {
			t.Error("the one that was cut off is still alive")
		}
		c.net.Heal()
		c.await(10*s, func() bool { return whole(ps, 3) })
	})
}

// All seeds are unreachable for an hour after a process starts.
func TestSeedsThatComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.seeds = []string{address(1), address(2)}
		p := c.start("r1", "a", address(1))
		time.Sleep(time.Hour)
		if got := p.log.count("gossip seed cannot be reached"); got != 1 {
			t.Errorf("%d lines about a seed that is away for an hour, want one", got)
		}
		q := c.start("r2", "a", address(2))
		c.await(10*s, func() bool { return whole([]*process{p, q}, 2) })
		c.await(10*s, func() bool { return p.log.count("gossip seed is reached again") == 1 })
	})
}

func TestPlannedLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ps := c.startAll(5)
		stopped := make(chan time.Duration, 1)
		begun := time.Now()
		go func() { ps[0].stop(); stopped <- time.Since(begun) }()
		seen := c.await(time.Minute, func() bool {
			for _, p := range ps[1:] {
				if p.sees("r1/a") != members.Dead {
					return false
				}
			}
			return true
		})
		took := <-stopped
		t.Logf("a leave is seen by all after %v; Run ended after %v", seen, took)
		if seen > 500*ms || took > 1500*ms {
			t.Errorf("a leave is seen by all after %v, Run ended after %v; want 500ms and 1.5s", seen, took)
		}
		time.Sleep(time.Minute)
		if got := ps[1].sees("r1/a"); got != members.Dead {
			t.Errorf("a minute later it is %v, want dead", got)
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
		took := c.await(time.Minute, dead)
		t.Logf("a crash is seen by all of three after %v", took)
		if took > 15*s {
			t.Errorf("a crash is seen after %v, want at most 15s", took)
		}
		time.Sleep(9 * time.Minute)
		if !dead() {
			t.Error("forgotten within ten minutes")
		}
		time.Sleep(2 * time.Minute)
		if got := ps[1].sees("r1/a"); got != "" {
			t.Errorf("after eleven minutes it is %v, want forgotten", got)
		}
		if got := ps[1].log.count("gossip: process is dead"); got != 1 {
			t.Errorf("%d lines about one death", got)
		}
	})
}

// A process that crashed comes back under its name, where it was or elsewhere: it
// is known at once, and the one before is no longer counted.
func TestSameNameAfterACrash(t *testing.T) {
	for name, addr := range map[string]string{"same address": address(1), "new address": address(8)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				ps := c.startAll(3)
				old := ps[1].member("r1/a").Boot
				ps[0].crash()
				again := c.start("r1", "a", addr)
				ps = []*process{again, ps[1], ps[2]}
				took := c.await(10*s, func() bool {
					return ps[1].member("r1/a").Boot > old && ps[2].member("r1/a").Boot > old && again.count(members.Alive) >= 3
				})
				t.Logf("%s: known again after %v", name, took)
				took += c.await(20*s, func() bool {
					return whole(ps, 3) && len(ps[1].Members()) == 3 && len(ps[2].Members()) == 3
				})
				t.Logf("%s: the one before is forgotten after %v", name, took)
			})
		})
	}
}

// One direction is cut, and others lead around it: no process is wrongly dead for
// long, and those at neither end never are.
func TestOneWayCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ps := c.startAll(4)
		c.net.Set(address(1), address(2), gossiptest.Path{Cut: true})
		wrong := 0
		for range 300 {
			time.Sleep(s)
			synctest.Wait()
			if !whole(ps, 4) {
				wrong++
			}
			if ps[2].sees("r4/a") != members.Alive || ps[3].sees("r3/a") != members.Alive {
				t.Fatal("a process at neither end is dead")
			}
		}
		t.Logf("one way cut between two of four: wrong for %d of 300 s", wrong)
		if wrong > 30 {
			t.Errorf("a process was wrongly dead for %d of 300 s", wrong)
		}
		c.net.Heal()
		c.await(10*s, func() bool { return whole(ps, 4) })
	})
}

// A slow and lossy network causes no false deaths.
func TestNoFalseDeaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.net.SetUsual(gossiptest.Path{Latency: 120 * ms, Loss: 0.1})
		ps := c.startAll(5)
		for range 600 {
			time.Sleep(s)
			synctest.Wait()
			if !whole(ps, 5) {
				t.Fatal("a process is dead although none died")
			}
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
		took := c.await(time.Minute, func() bool { return first.count(members.Alive) == n })
		t.Logf("%d processes are known after %v", n, took)
		for _, reason := range []string{"size", "bytes", "message"} {
			if got := value(t, reader, "regiond.gossip.refused", reason); got != 0 {
				t.Errorf("%v streams of processes were refused for %s", got, reason)
			}
		}
	})
}
