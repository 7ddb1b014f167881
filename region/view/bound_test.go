package view_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/view"
	"github.com/regiond/regiond/sync/wire"
)

func strictLimit(overshoot quota.Overshoot) *quota.Limit {
	l := limitOf(10 * time.Second)
	l.MaxOvershoot = overshoot
	return l
}

var unequal = []region.Region{{Name: "eu-west", Weight: 9}, {Name: "us-east", Weight: 1}}

// reweigh has the region reload with unequal weights.
func (c *counting) reweigh() {
	_, l := c.policy()
	c.top = withLimit(l)
	c.top.Regions = unequal
	c.manager.Configure(c.top)
}

// sees has the other region advertise these weights.
func (c *counting) sees(weights []quota.Weight) {
	c.peer.Weights, c.peer.Topology = weights, view.Hash(weights)
}

func (c *counting) share(when string, want int64) {
	c.Helper()
	*c.now += 50 * time.Millisecond
	c.peer.ReceivedAt, c.peer.AckedAt = *c.now, *c.now
	put(c.members, c.peer)
	c.manager.Refresh()
	_, l := c.policy()
	c.shareOf(when, l.Units, want)
}

// shareOf is the share of the limit with the units of an override.
func (c *counting) shareOf(when string, units, want int64) {
	c.Helper()
	p, file := c.policy()
	l := *file
	l.Units = units
	b, regions, ok := c.ceilings.Bound("standard", &l)
	decided := c.ceilings.Ceiling(p, &l, counterOf(&l), true, 0)
	if !ok || regions != 2 || b.Share != want || decided.Bound.Share != want {
		c.Errorf("%s the share of %d units of %s is %d and in a decision %d, want %d", when, units, c.self.Region, b.Share, decided.Bound.Share, want)
	}
	bound, _ := l.Bound()
	if keep := loan.TermsOfLimit(file).Keep() / 1000; decided.Terms.Bound.KeepMS != keep || decided.Terms.Bound.Units != bound {
		c.Errorf("%s the bound of %d units is %+v, kept for %d ms", when, units, decided.Terms.Bound, keep)
	}
}

// A smaller share holds at once, a larger one when all regions have had the new weights for
// as long as what was lent and used under the old ones may count: of a calendar's limit, when the longest period is over, however far
// the clocks of regions are apart by then. So do the shares of an override.
func TestSharesGrowLate(t *testing.T) {
	weights := (&region.Topology{Regions: unequal}).Weights()
	for _, row := range []struct {
		limit *quota.Limit
		least time.Duration
	}{
		{strictLimit(quota.Strict), 15 * time.Second},
		{calendarLimit(quota.CalendarDay), 27 * time.Hour}, // a day may last 25 h in clocks that are 2 h apart
	} {
		now := time.Second
		eu, us := newCounting(t, &now, row.limit)
		eu.share("at first", 300)
		us.share("at first", 300)
		eu.shareOf("at first", 6000, 3000)
		eu.shareOf("at first", 7, 4)
		eu.shareOf("suspended", 0, 0)
		eu.reweigh()
		eu.share("with a larger weight", 300)
		eu.shareOf("with a larger weight", 6000, 3000)
		us.sees(weights)
		us.share("when eu-west has a larger one", 60)
		us.reweigh()
		us.share("with a smaller weight", 60)
		eu.sees(weights)
		eu.share("when both have it", 300)
		eu.shareOf("when both have it", 6000, 3000)
		keep := time.Duration(loan.TermsOfLimit(row.limit).Keep()) * time.Microsecond
		if held := eu.ceilings.Held(); held != keep || keep < row.least {
			t.Errorf("the smaller share holds for %v, want %v, which is at least %v", held, keep, row.least)
		}
		now += keep - time.Second
		eu.share("until what was lent and used before is over", 300)
		eu.shareOf("until that is over", 100, 50)
		now += time.Second
		eu.share("when it is over", 540)
		us.share("when it is over", 60)
		eu.shareOf("when it is over", 6000, 5400)
	}
}

// A process that was paused while all regions took the new weights counts from when it sees that.
func TestSharesGrowLateAfterAPause(t *testing.T) {
	now := time.Second
	limit := strictLimit(quota.Strict)
	eu, _ := newCounting(t, &now, limit)
	eu.reweigh()
	eu.share("with a larger weight", 300)
	now += 2 * time.Duration(loan.TermsOfLimit(limit).Keep()) * time.Microsecond
	eu.sees((&region.Topology{Regions: unequal}).Weights())
	eu.share("when both have it, since nobody knows when", 300)
}

// The estimate of a bounded limit goes by all regions, and the bound has what that misses.
func TestCeilingOfABoundedLimit(t *testing.T) {
	for _, row := range []struct {
		overshoot   quota.Overshoot
		before, now int64 // ceilings, with nothing and 400 used by the other
	}{
		{quota.Strict, 600, 600},
		{quota.Strict + 1000, 600, 200},
	} {
		now := time.Second
		eu, us := newCounting(t, &now, strictLimit(row.overshoot))
		if got := eu.ceiling(); got.Units != row.before || !got.Bounded || got.Bound.Epoch != 0 {
			t.Errorf("%v: while joining the ceiling is %+v, want %d and a bound that is closed", row.overshoot, got, row.before)
		}
		us.admit(400)
		us.publish(eu)
		if got := eu.ceiling(); got.Units != row.now {
			t.Errorf("%v: the ceiling is %d, want %d", row.overshoot, got.Units, row.now)
		}
		p, l := eu.policy()
		if got := eu.ceilings.Grows(p, l, counterOf(l), row.now); got != l.Window {
			t.Errorf("%v: where the bound denies, the estimate is said to grow in %v", row.overshoot, got)
		}
	}
}

// TestUsageUnderAnOverride: what a region used under the units of an override is published and counted, beyond the file's bound too.
func TestUsageUnderAnOverride(t *testing.T) {
	now := time.Second
	file := strictLimit(quota.Strict + 10*100)
	eu, us := newCounting(t, &now, file)
	raised := *file
	raised.Units = 6000
	p, key := &eu.top.Policies[0], counterOf(file)
	used := quota.Counter{Bucket: eu.timeUS() / file.WindowUS(), Generation: storeUS, Units: 2500}
	eu.ceilings.Record(t.Context(), p, &raised, key, used, quota.Gauge{}, eu.timeUS())
	eu.publish(us)
	us.share("then", 330)
	if c := us.ceilings.Ceiling(p, &raised, key, false, 0); c.Units != 3500 || c.Bound.Share != 3300 {
		t.Errorf("of 6000 units, of which the other region used 2500, the ceiling is %d and the share of the bound %d", c.Units, c.Bound.Share)
	}
	if c := us.ceilings.Ceiling(p, file, key, false, 0); c.Units != 0 || c.Bound.Share != 330 {
		t.Errorf("once the override is over, the ceiling is %d and the share of the bound %d", c.Units, c.Bound.Share)
	}
}

func calendarLimit(unit quota.CalendarUnit) *quota.Limit {
	l := strictLimit(quota.Strict)
	l.Algorithm, l.Calendar = quota.CalendarPeriods, &quota.Calendar{Unit: unit, Anchor: 1, Zone: time.UTC}
	l.Window = unit.Window()
	return l
}

// A restart does not begin the wait for a larger share anew: where all regions had agreed before it, the process goes on with what
// is left. Otherwise a quota by the month would keep to the smallest shares for as long as it is deployed once in a month.
func TestCalendarSharesGrowOverRestarts(t *testing.T) {
	now, limit, key := time.Minute, calendarLimit(quota.CalendarMonth), wire.NewKey(nil, "test")
	top := withLimit(limit)
	top.Regions = unequal
	before := region.FloorOf(two)
	stored := &fixedState{}
	stored.of.Topology.Weights, stored.of.Topology.Floor, stored.of.Bounds, stored.of.Read = top.Weights(), before, before, true
	stored.of.Text = "not agreed"
	table := members.New(self)
	m, ceilings := manage(t, self, &now, top, view.ManagerOptions{Members: table, State: stored}, key)
	share := func(m *view.Manager, ceilings *view.Ceilings, when string, want int64) {
		t.Helper()
		for range 3 {
			now += view.RefreshEvery
			peer := healthy("us-east", "one", now, "eu-west", "us-east")
			peer.Key, peer.Weights = key.Fingerprint(), top.Weights()
			peer.Topology = view.Hash(peer.Weights)
			put(table, peer)
			m.Refresh()
		}
		if b, _, ok := ceilings.Bound("standard", limit); !ok || b.Share != want {
			t.Errorf("%s the share is %d, want %d", when, b.Share, want)
		}
	}
	share(m, ceilings, "while all agree", 300)
	keep := ceilings.Held()
	if !stored.agreed || stored.settled || keep < 31*24*time.Hour {
		t.Fatalf("all regions have agreed, and what was used may count for %v: %+v", keep, stored)
	}
	stored.of.Text, stored.of.Agreed = "agreed", true
	share(m, ceilings, "when that is kept", 300)
	if left := ceilings.Held(); left > keep {
		t.Errorf("to keep it has begun the wait of %v anew: %v", keep, left)
	}

	m, ceilings = manage(t, self, &now, top, view.ManagerOptions{Members: table, State: stored}, key)
	share(m, ceilings, "after a restart, with a clock that may have stepped", 300)
	stored.of.AgreedFor = keep - time.Hour
	share(m, ceilings, "an hour before the wait is over", 300)
	if left := ceilings.Held(); left > 61*time.Minute || left < 59*time.Minute {
		t.Errorf("after a restart the larger share is to come in %v, want an hour", left)
	}
	stored.of.Text = "agreed, with another limit"
	share(m, ceilings, "after a reload", 300)
	if stored.settled {
		t.Error("the shares of before bound no other process any more")
	}
	stored.of.AgreedFor = keep + time.Hour
	share(m, ceilings, "when it is over", 540)
	if !stored.settled {
		t.Error("the shares of before bind for ever")
	}
}

// A loss of data burns the share until the end of the period that it was in, by its number, and longer where reservations of before may
// still be settled. A step of the clock forward burns no period.
func TestCalendarBurnsItsPeriod(t *testing.T) {
	ends := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	november := int64(2026*12 + 11)
	for _, row := range []struct {
		what    string
		of      loan.Store
		heldFor time.Duration
		through int64
		until   time.Time
	}{
		{"nothing is lost", loan.Store{Epoch: 7}, 0, 0, time.UnixMicro(0)},
		{"a step of the clock", loan.Store{Epoch: 7, Lost: ends.Add(-time.Hour).UnixMicro()}, 0, 0, time.UnixMicro(0)},
		{"a loss", loan.Store{Epoch: 7, DataLost: ends.Add(-time.Hour).UnixMicro(), Unwatched: 1e13}, 0, november, ends},
		{"a loss at the end", loan.Store{Epoch: 7, DataLost: ends.Add(-time.Second).UnixMicro()}, 0, november, ends},
		{"an operator has reopened the region", loan.Store{Epoch: 7, LostIn: 6}, 0, 0, time.UnixMicro(0)},
		{"a loss while reservations are open", loan.Store{Epoch: 7, DataLost: ends.Add(-time.Second).UnixMicro()}, time.Minute, november + 1, ends.AddDate(0, 1, 0)},
	} {
		l := calendarLimit(quota.CalendarMonth)
		if row.heldFor > 0 {
			l.Counts, l.HeldFor = quota.CountsTokens, row.heldFor
		}
		c, err := view.NewCeilings(view.CeilingOptions{
			Self: quota.Process{Region: "eu-west", Instance: "one", Boot: 1}, Now: func() time.Duration { return 0 }, TimeUS: func() int64 { return 0 },
			Key: wire.NewKey(nil, "test"), Topology: withLimit(l), Store: func() loan.Store { return row.of },
		})
		if err != nil {
			t.Fatal(err)
		}
		b, _, ok := c.Bound("standard", l)
		if !ok || b.BurntThrough != row.through || b.BurntUntilUS != row.until.UnixMicro() || b.LostIn != row.of.LostIn {
			t.Errorf("%s: %+v, want burnt through %d until %v", row.what, b, row.through, row.until)
		}
	}
}
