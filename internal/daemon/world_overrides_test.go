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

// TestWorldOverrideEverywhere: what is set in one region is in force in all that can be reached before the answer says so.
func TestWorldOverrideEverywhere(t *testing.T) {
	t.Parallel()
	onRedises(t, worldOf(3, time.Hour, ""), func(w *world) {
		w.startAll()
		reached := func(units int64, want string) {
			t.Helper()
			got := ""
			for i, g := range w.regions[1].one().setUnits("acme", units).Regions {
				got += g.Region + " " + g.Result + ", "
				if goes, admitted := w.regions[i].one().holds("acme"); (goes == units) != (g.Result == quota.EditApplied) || !admitted {
					t.Errorf("%s of %d: %s goes by %d and admits a unit: %v", g.Result, units, g.Region, goes, admitted)
				}
			}
			if got != want {
				t.Errorf("%d units: %s, want %s", units, got, want)
			}
		}
		reached(30, "eu-west applied, us-east applied, ap-south applied, ")
		w.isolate(2, true)
		time.Sleep(3 * time.Second)
		reached(20, "eu-west applied, us-east applied, ap-south not reached, ")
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
