package gossip_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/region/gossip"
)

const already = "another process already has this name"

// Of two processes with one name the one that started later knows, the others
// keep the first, and when the first goes the second takes its place.
func TestTwoProcessesWithOneName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ps := w.cluster(3)
		first, others := ps[0], ps[1:]
		second := w.start("r1", "a", address(8))
		conflict := func() bool { _, ok := second.Conflict(); return ok }
		took := w.await(time.Minute, conflict)
		t.Logf("the second sees the conflict after %v", took)
		if took > 2*s {
			t.Errorf("the second sees the conflict after %v, want at most 2s", took)
		}
		if m, _ := second.Conflict(); m.Addr != first.addr || m.Boot != first.member("r1/a").Boot {
			t.Errorf("the conflict is with %+v, want the process at %s", m, first.addr)
		}
		for range 120 {
			time.Sleep(s)
			synctest.Wait()
			if _, ok := first.Conflict(); ok || !conflict() {
				t.Fatalf("first has a conflict: %v, second: %v; want only the second to", ok, conflict())
			}
			for _, p := range others {
				if m := p.member("r1/a"); m.Addr != first.addr || m.State != gossip.Alive {
					t.Fatalf("others see %+v, want the first, alive", m)
				}
			}
		}
		if got := second.log.count(already); got != 1 {
			t.Errorf("%d lines say so, want one", got)
		}

		first.stop()
		took = w.await(time.Minute, func() bool {
			return !conflict() && others[0].member("r1/a").Addr == second.addr && others[1].member("r1/a").Addr == second.addr
		})
		t.Logf("the second has the name %v after the first has left", took)
		time.Sleep(5 * s)
		synctest.Wait()
		if second.log.count("the other process of this name is gone") != 1 {
			t.Error("no line says that the conflict is over")
		}
	})
}

// A second process that gives up does not take the first one with it.
func TestSecondGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ps := w.cluster(3)
		second := w.start("r1", "a", address(8))
		w.await(time.Minute, func() bool { _, ok := second.Conflict(); return ok })
		second.stop()
		for range 300 {
			time.Sleep(100 * ms)
			synctest.Wait()
			if !whole(ps, 3) {
				t.Fatal("the first is gone with the second")
			}
		}
	})
}

// Two namesakes on two sides of a cut find out when it heals.
func TestNamesakesMeetAfterACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ps := w.cluster(3)
		w.net.Split([]string{address(1), address(2)}, []string{address(3), address(8)})
		time.Sleep(2 * time.Minute)
		second := w.start("r1", "a", address(8))
		w.await(10*s, func() bool { return ps[2].member("r1/a").Addr == address(8) })
		if _, ok := second.Conflict(); ok {
			t.Error("a conflict with somebody out of reach")
		}
		w.net.Heal()
		w.await(30*s, func() bool { _, ok := second.Conflict(); return ok })
		if _, ok := ps[0].Conflict(); ok {
			t.Error("the first has a conflict")
		}
	})
}
