package limiter_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// calendarLimit is 5 units for each period.
func calendarLimit(t testing.TB, unit quota.CalendarUnit, anchor quota.Anchor) quota.Limit {
	t.Helper()
	zone := must(time.LoadLocation("Europe/Berlin"))(t)
	c := &quota.Calendar{Unit: unit, Anchor: anchor, Zone: zone}
	return quota.Limit{Name: "quota", Units: 5, Algorithm: quota.CalendarPeriods, Calendar: c, Window: unit.Window()}
}

// TestQuotaOfAnotherClock: whatever this host's clock says, the period is that of Redis's TIME, from the first check on.
func TestQuotaOfAnotherClock(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	setTime := limitertest.ClockOf(t, srv.Client())
	begins := time.Date(2031, 5, 1, 22, 0, 0, 0, time.UTC).UnixMicro() // years from this host's clock: the 2nd of May
	setTime(begins - 1)
	p := quota.Policy{Limits: []quota.Limit{calendarLimit(t, quota.CalendarDay, 1)}}
	r := newRig(t, limiter.Options{Store: limiter.NewRedis(t, srv.Addr(), limitertest.TimedLua), Config: onePolicy(p)})
	for _, row := range []struct{ us, left int64 }{{begins - 1, 4}, {begins, 4}, {begins - 1, 3}, {begins - 40*24*3_600_000_000, 2}, {begins, 3}} {
		setTime(row.us)
		if d := r.check(t, "acme", 1); !d.Allowed || d.Limits[0].Remaining != row.left || d.Basis != quota.BasisExact {
			t.Fatalf("at %d %d are left, want %d: %+v", row.us-begins, d.Limits[0].Remaining, row.left, d)
		}
	}
}

// TestReplayNamesItsWindow: what a check with an Idempotency-Key was admitted by is what its replay says, after a reload that gives the
// limit of that name, units and length a calendar, another one, or none.
func TestReplayNamesItsWindow(t *testing.T) {
	day := calendarLimit(t, quota.CalendarDay, 1)
	utc := day
	utc.Calendar = &quota.Calendar{Unit: quota.CalendarDay, Anchor: 1, Zone: time.UTC}
	window := quota.Limit{Name: day.Name, Units: day.Units, Window: day.Window}
	onRedis := redisserver.Start(t, redisserver.Options{}).Addr()
	for key, row := range map[string]struct{ before, after quota.Limit }{
		"to a calendar": {window, day}, "to a window": {day, window}, "to another zone": {day, utc}, "as it is": {day, day}, "without": {window, window},
	} {
		config := onePolicy(quota.Policy{Limits: []quota.Limit{row.before}})
		for store, r := range map[string]*rig{
			"memory": memoryRig(t, config, time.Now), "redis": redisRig(t, onRedis, config, 4*time.Second),
		} {
			again := func() quota.Decision {
				return ask(t, r, quota.Request{Tenant: strings.ReplaceAll(key, " ", "-"), Cost: 1, IdempotencyKey: "k"})
			}
			if first := again(); !first.Allowed || first.Replayed {
				t.Fatalf("%s, %s: %+v", store, key, first)
			}
			ok(t, r.Configure(onePolicy(quota.Policy{Limits: []quota.Limit{row.after}})))
			d := again()
			if l := d.Limits[0].Limit; !d.Replayed || l.Calendar.ID() != row.before.Calendar.ID() || l.Algorithm != row.before.Algorithm || l.Window != row.before.Window {
				t.Errorf("%s, %s: replayed %t, by %+v of %v", store, key, d.Replayed, l, l.Calendar)
			}
		}
	}
}
