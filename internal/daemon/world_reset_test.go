package daemon

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
	"github.com/regiond/regiond/test/meshtest"
)

// resetAll deletes acme's usage in all regions and returns what each did.
func (p *node) resetAll() string {
	p.w.t.Helper()
	regions, err := p.replication.resets.Everywhere(p.w.t.Context(), "acme")
	if err != nil {
		p.w.t.Fatal(err)
	}
	var all []string
	for _, r := range regions {
		word := fmt.Sprint(r.Region, " ", r.Result)
		if r.BurntMS != 0 {
			word += " burnt"
		}
		all = append(all, word)
	}
	return strings.Join(all, ", ")
}

// forge publishes counters of the partition in that group under a region's name, with the
// key: of now and of every kind of time that a region cannot have reached.
func forge(t *testing.T, bus meshsync.Bus, as *nodeRegion, cluster string, group wire.Group, units int64) {
	t.Helper()
	secret, err := wire.NewSecret([][]byte{bytes.Repeat([]byte{1}, 32)}, cluster)
	if err != nil {
		t.Fatal(err)
	}
	now := as.nowUS()
	group.Bucket = now / group.WindowUS
	ahead := group
	ahead.Bucket++
	var groups []wire.Group
	for _, g := range []wire.Group{group, ahead} {
		for _, generation := range []int64{now - 2_000_000, now + 20_000_000, wire.EndOfTime} {
			g.Generations, g.Units = []int64{generation}, []int64{units}
			groups = append(groups, g)
		}
	}
	self := quota.Process{Region: as.name, Instance: "hostile", Boot: time.Now().UnixMicro()}
	m := secret.Sign(meshsync.SubjectUsage+as.name, wire.Append(nil, &wire.Usage{Head: wire.Head{From: self, Seq: 1}, Number: 1, TimeUS: now, Groups: groups}))
	if err := bus.Publish(meshsync.SubjectUsage+as.name, m); err != nil {
		t.Fatal(err)
	}
}

// TestLongWorldResetEverywhere: somebody with the key has forged usage, and a tenant is denied in two
// regions. A reset of all regions lets it in again there, names the one that was cut off, and
// nothing that comes later brings the old usage back: neither the region, nor records of former
// messages, nor a restart. What is used after it counts.
func TestLongWorldResetEverywhere(t *testing.T) {
	t.Parallel()
	const limit = 900
	onRedises(t, worldOf(limit, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		eu.start("two")
		w.await("the sibling sees every other", 10*time.Second, w.global)
		var recorded []meshsync.Message
		for _, s := range w.regions {
			s.one().bus.(*meshtest.Bus).Spy(func(m meshsync.Message) { recorded = append(recorded, m) })
		}
		eu.one().ask(100)
		us.one().ask(100)
		ap.one().ask(100)
		time.Sleep(3 * time.Second)
		var group wire.Group
		for groups := range us.one().replication.ceilings.Ledger().Live(eu.name, 0, 1) {
			group = groups[0]
		}
		hostile := w.bus.Join(ap.name)
		forge(t, hostile, ap, eu.one().replication.topology().Cluster, group, limit)
		hostile.Leave()
		time.Sleep(time.Second)
		for _, p := range []*node{eu.one(), eu.processes[1], us.one()} {
			if d := p.ask(1); d.Allowed {
				t.Fatalf("%s admits in spite of the forged usage", p.home.name)
			}
		}
		w.isolate(2, true)
		time.Sleep(2 * time.Second)

		if got := eu.one().resetAll(); got != "eu-west cleared, us-east cleared, ap-south unreached" {
			t.Fatal(got)
		}
		time.Sleep(time.Second)
		forgotten := func(when string, used map[*nodeRegion]int64) {
			t.Helper()
			for _, p := range w.alive {
				for _, s := range w.regions {
					if p.home == ap || p.home == s {
						continue
					}
					if n := p.estimate(s); n != used[s] {
						t.Errorf("%s: %s/%s counts %d units of %s, want %d", when, p.home.name, p.options.Instance, n, s.name, used[s])
					}
				}
			}
		}
		forgotten("after the reset", nil)
		eu.one().ask(7)
		us.one().ask(11)
		time.Sleep(time.Second)
		used := map[*nodeRegion]int64{eu: 7, us: 11}
		forgotten("after later usage", used)

		w.isolate(2, false)
		w.awaitBy("the hostile process is forgotten", 6*time.Minute, time.Second, w.global)
		time.Sleep(10 * time.Second)
		forgotten("after the heal", used)
		before := len(recorded)
		for _, m := range recorded[:before] {
			us.one().bus.(*meshtest.Bus).Inject(m.Subject, m.Data)
			eu.one().bus.(*meshtest.Bus).Inject(m.Subject, m.Data)
		}
		time.Sleep(10 * time.Second)
		forgotten("after records of all messages", used)
		us.one().kill()
		us.start("one").awaitReady()
		w.await("the restarted process sees every other", time.Minute, w.global)
		forgotten("after a restart", used)
		if d := eu.one().ask(600); !d.Allowed {
			t.Errorf("most of the limit is not to be had: %+v", d)
		}

		if got := us.one().resetAll(); got != "eu-west cleared, us-east cleared, ap-south cleared" {
			t.Fatal(got)
		}
		ap.one().ask(5)
		time.Sleep(time.Second)
		used = map[*nodeRegion]int64{ap: 5}
		forgotten("after the second reset", used)
		if n := ap.one().estimate(eu); n != 0 {
			t.Errorf("ap-south counts %d units of eu-west", n)
		}
		for _, p := range w.alive {
			if n := p.sum("regiond_sync_lost_units_total"); n != 0 {
				t.Errorf("%s/%s takes %v deleted units for lost", p.home.name, p.options.Instance, n)
			}
		}
	})
}
