package gossip_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A new hash is known in two seconds and a difference at once, until it ends.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ps := c.startAll(3)
		reader, meter := metered()
		p := c.start("r4", "a", address(9), meter)
		c.await(10*s, func() bool { return whole(ps, 4) })
		if _, _, differ := p.Drift(); differ {
			t.Error("they differ from the start")
		}
		if differ, got := p.Alike(); got < 365*24*time.Hour || len(differ) > 0 {
			t.Errorf("they were never seen to differ, and are alike for %v but for %v", got, differ)
		}
		if got := reader.Of(t, "regiond.gossip.members", "state", "alive"); got != 4 {
			t.Errorf("regiond.gossip.members is %v, want 4", got)
		}
		for len(p.table.Changed()) > 0 {
			<-p.table.Changed()
		}
		alive := p.member("r3/a").Gossip.Since
		ps[2].hash("h2")
		ps[2].Update()
		begun := time.Now()
		c.await(2*s, func() bool { return len(p.table.Changed()) == 1 })
		if m := p.member("r3/a"); m.Gossip.ConfigHash != "h2" || m.Gossip.Version != "v1" || m.Gossip.Since != alive {
			t.Errorf("after its update it is %+v, alive since %v", m, alive)
		}
		c.await(10*s, func() bool { _, _, differ := p.Drift(); return differ })
		since, hashes, _ := p.Drift()
		want := map[string][]string{"h1": {"r1/a", "r2/a", "r4/a"}, "h2": {"r3/a"}}
		if diff := cmp.Diff(want, hashes); diff != "" || since.Before(begun) || since.After(begun.Add(2*s)) {
			t.Errorf("differ since %v (begun %v), %s", since, begun, diff)
		}
		if differ, got := p.Alike(); got != 0 || !slices.Equal(differ, []string{"r3"}) {
			t.Errorf("r3 differs, and they are alike for %v but for %v", got, differ)
		}
		time.Sleep(time.Until(since.Add(361 * s)))
		if got := reader.Of(t, "regiond.config.drift"); got < 360 || got > 362 {
			t.Errorf("regiond.config.drift is %v s, want 360 to 362", got)
		}
		ps[2].crash() // whoever is dead does not drift, and may still admit by what it had
		c.await(30*s, func() bool { _, _, differ := p.Drift(); return !differ })
		time.Sleep(20 * time.Minute) // gossip has forgotten it
		if differ, got := p.Alike(); got != 0 || !slices.Equal(differ, []string{"r3"}) {
			t.Errorf("r3 is dead, and they are alike for %v but for %v", got, differ)
		}
		c.start("r3", "a", address(3))
		c.await(10*s, func() bool { differ, _ := p.Alike(); return len(differ) == 0 })
		time.Sleep(5 * s)
		if differ, got := p.Alike(); got < 5*s || got > 7*s || len(differ) > 0 {
			t.Errorf("5 s after it is back with theirs they are alike for %v but for %v", got, differ)
		}
	})
}
