package gossip_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/region/gossip"
)

// Ten processes, two a region, come and go; everybody is asked about them all
// the while, which is for the race detector, and what is returned is the caller's.
func TestTenMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 5 {
			w.seeds = append(w.seeds, address(i+1))
		}
		var ps []*process
		for i := range 10 {
			ps = append(ps, w.start(fmt.Sprintf("r%d", i%5+1), fmt.Sprintf("p%d", i/5), address(i+1)))
		}
		took := w.await(time.Minute, func() bool { return whole(ps, 10) })
		t.Logf("ten processes that start at once see each other after %v", took)
		if took > 10*s {
			t.Errorf("full view after %v", took)
		}
		names := ps[3].Members()
		for i := 1; i < len(names); i++ {
			if names[i-1].Name() >= names[i].Name() {
				t.Errorf("%s comes before %s", names[i-1].Name(), names[i].Name())
			}
		}
		for i := range names {
			names[i].State = gossip.Dead
		}
		if !whole(ps, 10) {
			t.Error("who changes what Members returned changes the members")
		}

		var asking sync.WaitGroup
		for _, p := range ps {
			asking.Go(func() {
				for range 300 {
					for _, m := range p.Members() {
						if m.Self && m.State == gossip.Dead {
							t.Errorf("%s takes itself for dead", m.Name())
						}
					}
					p.Conflict()
					p.Drift()
					p.Update()
					time.Sleep(100 * ms)
				}
			})
		}
		ps[9].crash()
		ps[8].stop()
		asking.Wait()
		for _, p := range ps[:8] {
			if p.sees("r5/p1") != gossip.Dead || p.sees("r4/p1") != gossip.Left || p.count(gossip.Alive) != 8 {
				t.Errorf("%s sees %v and %v", p.addr, p.sees("r5/p1"), p.sees("r4/p1"))
			}
		}
	})
}
