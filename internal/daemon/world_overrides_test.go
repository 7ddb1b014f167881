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
