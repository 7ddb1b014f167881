package view_test

import (
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestCalendarOfTwoZoneData: two regions whose zone data differ by half an hour count in one quota by the numbers of its periods. Each
// goes by the period that its own data show, and what the other has used of that, before or after its own beginning of it.
// A store that counts in another one is given the ceiling for that.
func TestCalendarOfTwoZoneData(t *testing.T) {
	hourly := func(offset int) *quota.Limit {
		c := &quota.Calendar{Unit: quota.CalendarHour, Anchor: 1, Zone: time.FixedZone("Here/There", offset)}
		return &quota.Limit{Name: "hourly", Units: 60, Algorithm: quota.CalendarPeriods, Calendar: c, Window: c.Unit.Window(), Scope: quota.ScopeGlobal}
	}
	now := time.Hour - time.Duration(storeUS%3_600_000_000)*time.Microsecond + 10*time.Minute // after a full hour
	eu, us := newCounting(t, &now, hourly(0))
	us.reload(hourly(-1800)) // each of its hours begins half an hour later
	record := func(c *counting, number, ends, units int64) {
		p, l := c.policy()
		counter := quota.Counter{Bucket: number, Generation: storeUS, Units: units, EndsUS: ends}
		c.ceilings.Record(t.Context(), p, l, counterOf(l), counter, quota.Gauge{}, c.timeUS())
	}
	period := func(c *counting) quota.Period {
		_, l := c.policy()
		return l.Calendar.At(c.timeUS())
	}
	wantPeriod := func(when string, c *counting, want int64) {
		t.Helper()
		if got := c.ceiling().Period; got != want {
			t.Errorf("%s: %s takes %+d for the period of now, want %+d", when, c.self.Region, got-period(eu).Number, want-period(eu).Number)
		}
	}
	n := period(eu)
	if period(us).Number != n.Number-1 {
		t.Fatal("ten minutes after the hour the other region is in the hour before")
	}
	record(us, n.Number-1, period(us).End, 10)
	us.publish(eu)
	eu.wantGlobal("what the other used of the hour before", 60)
	wantPeriod("by its own data", eu, n.Number)
	record(eu, n.Number, n.End, 7)
	eu.publish(us)
	us.wantGlobal("what the other used of the hour to come", 60)
	wantPeriod("by its own data", us, n.Number-1)
	p, l := us.policy()
	if c := us.ceilings.Ceiling(p, l, counterOf(l), false, n.Number); c.Units != 53 || c.Period != n.Number {
		t.Errorf("for a store that counts in the hour to come the ceiling is %+v, want 53", c)
	}
	p, l = eu.policy()
	if c := eu.ceilings.Ceiling(p, l, counterOf(l), false, n.Number-1); c.Units != 50 || c.Used != 0 {
		t.Errorf("for a store that counts in the hour before the ceiling is %+v, want 50", c)
	}
	now += 25 * time.Minute // both are in it
	us.wantGlobal("in the same hour", 53)
	wantPeriod("in the same hour", us, n.Number)
	eu.wantGlobal("in the same hour", 60)
	now = time.Duration(n.End-storeUS)*time.Microsecond - time.Second
	us.wantGlobal("it does not fade", 53)
	record(us, n.Number, n.End+1_800_000_000, 3) // its store has kept a later end
	now += 2 * time.Second
	wantPeriod("a period that is in use ends when its store says", us, n.Number)
	us.reload(hourly(0))
	wantPeriod("also with other zone data", us, n.Number)
	wantPeriod("and one that is not, by the data", eu, n.Number+1)
	eu.wantGlobal("in the next hour", 60)
}
