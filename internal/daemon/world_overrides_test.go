package daemon

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// setUnits has a process give a tenant units of limit all.
func (p *node) setUnits(tenant string, units int64) quota.Edited {
	p.w.t.Helper()
	r, err := p.overrides.Edit(p.w.t.Context(), quota.Edit{Override: quota.Override{
		Tenant: tenant, Limits: []quota.OverrideLimit{{Name: "all", Units: units}}, By: "ops", Reason: "test",
	}})
	if err != nil {
		p.w.t.Fatal(err)
	}
	return r
}

// holds is how many units of the limit a process goes by, and whether it admits one of them.
func (p *node) holds(tenant string) (units int64, admitted bool) {
	p.w.t.Helper()
	d, err := p.limiter.Check(p.w.t.Context(), quota.Request{Tenant: tenant, Cost: 1})
	if err != nil || len(d.Limits) != 1 {
		p.w.t.Fatalf("%+v, %v", d, err)
	}
	return d.Limits[0].Limit.Units, d.Allowed
}

// TestWorldOverrideOfARegion: what one process sets is in force there at once and within a second in its siblings, although they
// remember denials, and outlives all of them. A process that starts decides by it from its first answer.
func TestWorldOverrideOfARegion(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(3, time.Hour, ""), func(w *world) {
		w.startAll()
		eu := w.regions[0]
		one, two := eu.one(), eu.start("two")
		two.awaitReady()
		for range 4 {
			one.holds("acme")
			two.holds("acme")
		}
		if units, admitted := two.holds("acme"); units != 3 || admitted {
			t.Errorf("before: %d, admitted %v", units, admitted)
		}
		one.setUnits("acme", 30)
		if units, admitted := one.holds("acme"); units != 30 || !admitted {
			t.Errorf("where it was set: %d, admitted %v", units, admitted)
		}
		w.await("the sibling has it", time.Second, func() bool {
			units, admitted := two.holds("acme")
			return units == 30 && admitted
		})
		one.stop()
		two.kill()
		three := eu.start("three")
		if units, _ := three.holds("acme"); units != 30 {
			t.Errorf("the first answer after a restart goes by %d", units)
		}
		three.awaitReady()
		three.setUnits("acme", 0)
		if units, admitted := three.holds("acme"); units != 0 || admitted {
			t.Errorf("suspended: %d, admitted %v", units, admitted)
		}
	})
}

// TestWorldOverrideEverywhere: what is set in one region is in force in all three within a second, and the answer says so. A region
// that is cut off has it when it is back; of edits on both sides of a cut the larger version holds everywhere; and a region whose
// Redis was emptied, with all of its processes gone, has all again.
func TestWorldOverrideEverywhere(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(3, time.Hour, ""), func(w *world) {
		w.startAll()
		eu, us, ap := w.regions[0], w.regions[1], w.regions[2]
		everywhere := func(what, tenant string, units int64, within time.Duration) {
			t.Helper()
			w.await(what, within, func() bool {
				for _, s := range w.regions {
					if got, _ := s.one().holds(tenant); got != units {
						return false
					}
				}
				return true
			})
		}
		reached := func(what string, r quota.Edited, want string) {
			t.Helper()
			got := ""
			for _, g := range r.Regions {
				got += g.Region + " " + g.Result + ", "
			}
			if got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		for range 4 {
			eu.one().holds("acme")
		}
		reached("a raise", us.one().setUnits("acme", 30), "eu-west applied, us-east applied, ap-south applied, ")
		everywhere("a raise is everywhere", "acme", 30, 0)
		if _, admitted := ap.one().holds("acme"); !admitted {
			t.Error("nothing of the raise is admitted")
		}

		w.isolate(2, true)
		time.Sleep(3 * time.Second)
		reached("a raise during a cut", eu.one().setUnits("acme", 20), "eu-west applied, us-east applied, ap-south not reached, ")
		reached("an edit on the other side", ap.one().setUnits("acme", 25), "eu-west not reached, us-east not reached, ap-south applied, ")
		ap.one().setUnits("acme", 26) // the larger counter
		us.one().setUnits("other", 7)
		w.isolate(2, false)
		everywhere("both sides hold the larger version", "acme", 26, 10*time.Second)
		everywhere("what was edited during the cut", "other", 7, 10*time.Second)

		ap.one().stop()
		ap.redis.FlushAll()
		ap.start("anew").awaitReady()
		everywhere("an emptied region", "acme", 26, 10*time.Second)
		everywhere("an emptied region, the other tenant", "other", 7, 10*time.Second)
	})
}

// TestWorldOverrideOfABound: a tenant's units under a bound are changed at run time, and all regions together admit what the largest
// version allowed and no more, whatever is lent.
func TestWorldOverrideOfABound(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(9, time.Minute, ", max_overshoot: 0%"), func(w *world) {
		w.startAll()
		time.Sleep(5 * time.Second)
		eu := w.regions[0].one()
		total := 0
		asks := func(p *node) {
			for {
				if _, admitted := p.holds("acme"); !admitted {
					return
				}
				total++
			}
		}
		flood := func(what string, want int, of ...*node) {
			t.Helper()
			for range 10 {
				for _, p := range of {
					asks(p)
				}
				time.Sleep(250 * time.Millisecond)
			}
			if total != want {
				t.Errorf("%s: %d were admitted, want %d", what, total, want)
			}
		}
		all := []*node{eu, w.regions[1].one(), w.regions[2].one()}
		flood("by the file", 9, all...)
		eu.setUnits("acme", 30)
		flood("raised, and asked in one region alone", 30, eu)
		eu.setUnits("acme", 20)
		flood("cut", 30, all...)
		eu.setUnits("acme", 0)
		flood("suspended", 30, all...)
		eu.setUnits("acme", 42)
		flood("raised again", 42, all...)
	})
}
