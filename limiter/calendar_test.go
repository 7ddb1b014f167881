package limiter_test

import (
	"context"
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
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	c := &quota.Calendar{Unit: unit, Anchor: anchor, Zone: zone}
	return quota.Limit{Name: "quota", Units: 5, Algorithm: quota.CalendarPeriods, Calendar: c, Window: unit.Window()}
}

// TestMonthlyQuota: a month is used up, a denial says when the next one begins, nothing fits a microsecond earlier, and then all does.
// A clock that is set back meanwhile counts in the month that it shows.
func TestMonthlyQuota(t *testing.T) {
	ends := time.Date(2026, 12, 14, 23, 0, 0, 0, time.UTC) // midnight of the 15th
	now := ends.Add(-50 * time.Hour)
	p := quota.Policy{Limits: []quota.Limit{calendarLimit(t, quota.CalendarMonth, 15)}}
	r := memoryRig(t, onePolicy(p), func() time.Time { return now })
	if n := r.admits(t, "acme", 9); n != 5 {
		t.Fatalf("admitted %d of 5", n)
	}
	d, err := r.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Explain: true})
	if err != nil || d.RetryAfter() != 50*time.Hour || d.Limits[0].ResetAfter != 50*time.Hour || d.Explanation.Limits[0].Ends != "2026-12-15T00:00:00+01:00" {
		t.Fatalf("%+v, %+v, %v", d, d.Explanation, err)
	}
	if now = ends.Add(-time.Microsecond); r.check(t, "acme", 1).Allowed {
		t.Fatal("admitted a microsecond before the month ends")
	}
	if now = ends; !r.check(t, "acme", 2).Allowed || r.check(t, "acme", 4).Allowed {
		t.Fatal("the new month has not 5 units")
	}
	if now = ends.Add(-time.Second); r.check(t, "acme", 1).Allowed {
		t.Fatal("the month before has units again")
	}
	if now = ends; r.check(t, "acme", 4).Allowed || !r.check(t, "acme", 3).Allowed {
		t.Fatal("the month has not the 3 units that it had")
	}
}

// TestQuotaOfAReservation: it holds units of the period that is under way, and a settle is charged to that in which it is made.
func TestQuotaOfAReservation(t *testing.T) {
	ends := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	now := ends.Add(-time.Second)
	limit := calendarLimit(t, quota.CalendarHour, 1)
	limit.Counts = quota.CountsTokens
	r := memoryRig(t, onePolicy(quota.Policy{Limits: []quota.Limit{limit}, MaxTTL: time.Minute, MaxHold: 100}), func() time.Time { return now })
	d := r.Reserve(context.Background(), []quota.Request{{Tenant: "acme", Cost: 4, Reserve: true}})[0].Decision
	if !d.Allowed || r.check(t, "acme", 2).Allowed {
		t.Fatalf("4 of 5 are not held: %+v", d)
	}
	now = ends.Add(time.Second)
	if r.check(t, "acme", 2).Allowed {
		t.Fatal("the hold has ended with its period")
	}
	s := r.Settle(context.Background(), []quota.Claim{{Reservation: d.Reservation.ID, Actual: 3}})[0]
	if s.Err != nil || s.Decision.Limits[0].Remaining != 2 {
		t.Fatalf("3 of 5 are not charged to the new hour: %+v, %v", s.Decision, s.Err)
	}
	if now = ends.Add(-time.Second); !r.check(t, "acme", 5).Allowed {
		t.Fatal("the hour before was charged")
	}
}

// TestQuotaOfAnotherClock: whatever this host's clock says, the period is that of Redis's TIME, from the first check on.
func TestQuotaOfAnotherClock(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	setTime := limitertest.ClockOf(t, srv.Client())
	begins := time.Date(2031, 5, 1, 22, 0, 0, 0, time.UTC).UnixMicro() // years from this host's clock: the 2nd of May
	setTime(begins - 1)
	p := quota.Policy{Limits: []quota.Limit{calendarLimit(t, quota.CalendarDay, 1)}}
	meter, reader := readMeter(t)
	r := storeRig(t, limiter.NewRedis(t, srv.Addr(), limitertest.TimedLua), onePolicy(p), meter, reader, nil)
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
			if err := r.Configure(onePolicy(quota.Policy{Limits: []quota.Limit{row.after}})); err != nil {
				t.Fatal(err)
			}
			d := again()
			if l := d.Limits[0].Limit; !d.Replayed || !l.Calendar.Same(row.before.Calendar) || l.Algorithm != row.before.Algorithm || l.Window != row.before.Window {
				t.Errorf("%s, %s: replayed %t, by %+v of %v", store, key, d.Replayed, l, l.Calendar)
			}
		}
	}
}
