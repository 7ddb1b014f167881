package quota_test

import (
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// The zone data are those of the program: those of a system may list years of changes for which these have a rule.
var _ = os.Setenv("ZONEINFO", "../internal/base/zones/zoneinfo.zip")

func zone(t interface{ Fatal(...any) }, name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// civil is the number of the period that the clocks show, told from its date alone, and by another count than Calendar's: the
// parts of a date one after the other.
func civil(c *quota.Calendar, t time.Time) int64 {
	year, month, day := t.Date()
	switch c.Unit {
	case quota.CalendarHour:
		return (int64(year)*400+int64(t.YearDay()))*24 + int64(t.Hour())
	case quota.CalendarDay:
		return int64(year)*400 + int64(t.YearDay())
	case quota.CalendarWeek:
		for (int(t.Weekday())+6)%7 != int(c.Anchor)-1 { // back to the anchor
			t = t.AddDate(0, 0, -1)
		}
		return int64(t.Year())*400 + int64(t.YearDay())
	}
	last := time.Date(year, month+1, 1, 12, 0, 0, 0, time.UTC).AddDate(0, 0, -1).Day()
	if day < min(int(c.Anchor), last) {
		month--
	}
	return int64(year)*12 + int64(month)
}

// TestLongWorldOfPeriods: each half hour of thirty years lies in the period that the clocks have shown last: the latest
// beginning that they have reached. Sao Paulo and Beirut skipped midnights, St. John's set its clocks back over some.
func TestLongWorldOfPeriods(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"America/Sao_Paulo", "Asia/Beirut", "America/St_Johns"} {
		for _, c := range []quota.Calendar{
			{Unit: quota.CalendarHour, Anchor: 1},
			{Unit: quota.CalendarDay, Anchor: 1},
			{Unit: quota.CalendarWeek, Anchor: 7},
			{Unit: quota.CalendarMonth, Anchor: 31},
		} {
			c.Zone = zone(t, name)
			const step = 30 * time.Minute
			latest, was := int64(0), quota.Period{}
			for at := time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC); at.Year() < 2030; at = at.Add(step) {
				us, n := at.UnixMicro(), civil(&c, at.In(c.Zone))
				if us >= was.End { // one look for each period
					now := c.At(us)
					for latest > 0 && was != now { // one of less than an hour lies between
						next := c.Next(was)
						if next.Begin != was.End || next.Number <= was.Number || next.End > now.End || c.Before(next) != was {
							t.Fatalf("%s: after %v comes %v", &c, was, next)
						}
						was = next
					}
					was = now
				}
				if begins := us-was.Begin < step.Microseconds(); latest > 0 && (n > latest) != begins {
					t.Fatalf("%s: %v shows another period: %v, and %+v begins: %v", &c, at.In(c.Zone), n > latest, was, begins)
				}
				latest = max(latest, n)
			}
		}
	}
}

// TestPeriods has beginnings from the calendar on the wall.
func TestPeriods(t *testing.T) {
	for _, row := range []struct {
		zone       string
		unit       quota.CalendarUnit
		anchor     string
		at         string
		number     int64
		begin, end string
	}{
		{"UTC", quota.CalendarHour, "", "1970-01-01T00:00:00Z", 719_528 * 24, "1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z"},
		{"Europe/Berlin", quota.CalendarMonth, "", "2026-11-28T07:00:00Z", 2026*12 + 11, "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"},
		{"Europe/Berlin", quota.CalendarMonth, "15", "2026-11-14T22:59:59Z", 2026*12 + 10, "2026-10-14T22:00:00Z", "2026-11-14T23:00:00Z"},
		{"UTC", quota.CalendarMonth, "31", "2027-02-27T23:59:59Z", 2027*12 + 1, "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"UTC", quota.CalendarMonth, "31", "2028-02-29T00:00:00Z", 2028*12 + 2, "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"},
		{"UTC", quota.CalendarMonth, "", "2026-12-31T23:59:59Z", 2026*12 + 12, "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"UTC", quota.CalendarWeek, "", "2026-11-28T07:00:00Z", 105_758, "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"UTC", quota.CalendarWeek, "sunday", "2026-11-28T07:00:00Z", 105_757, "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		// No midnight: the first instant of the date is one o'clock.
		{"America/Sao_Paulo", quota.CalendarDay, "", "2018-11-04T03:00:00Z", 737_367, "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		// An hour that is shown twice, one that is skipped, and a date that there was not.
		{"Europe/Berlin", quota.CalendarHour, "", "2026-10-25T01:30:00Z", 740_279*24 + 2, "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"},
		{"Europe/Berlin", quota.CalendarHour, "", "2026-03-29T01:00:00Z", 740_069*24 + 3, "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"},
		{"Pacific/Apia", quota.CalendarDay, "", "2011-12-30T10:00:00Z", 734_867, "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		// The last day of a leap year, of which package time says that the offset stays until its own beginning.
		{"Europe/Berlin", quota.CalendarMonth, "", "2028-12-31T12:00:00Z", 2028*12 + 12, "2028-11-30T23:00:00Z", "2028-12-31T23:00:00Z"},
		// Set back from a minute past midnight: the new date has begun, and does not end.
		{"America/St_Johns", quota.CalendarDay, "", "2010-11-07T03:00:00Z", 734_448, "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
	} {
		c := quota.Calendar{Unit: row.unit, Anchor: 1, Zone: zone(t, row.zone)}
		if row.anchor != "" {
			c.Anchor, _ = row.unit.ParseAnchor(row.anchor)
		}
		at, _ := time.Parse(time.RFC3339, row.at)
		p := c.At(at.UnixMicro())
		begin, end := time.UnixMicro(p.Begin).UTC().Format(time.RFC3339), time.UnixMicro(p.End).UTC().Format(time.RFC3339)
		if p.Number != row.number || begin != row.begin || end != row.end {
			t.Errorf("%s at %s is %d, %s to %s; want %d, %s to %s", &c, row.at, p.Number, begin, end, row.number, row.begin, row.end)
		}
	}
}

// FuzzPeriods: a time lies in its period, and that begins at the first instant at which the clocks show as much.
func FuzzPeriods(f *testing.F) {
	f.Add(int64(1_541_300_400_000_000), uint8(1), uint8(1), uint8(0))
	f.Add(int64(1_289_098_860_000_000), uint8(3), uint8(31), uint8(2))
	f.Add(int64(1_861_876_800_000_000), uint8(3), uint8(0), uint8(3)) // the last day of 2028
	names := []string{"America/Sao_Paulo", "Africa/Cairo", "America/St_Johns", "Europe/Berlin", "Pacific/Apia", "UTC"}
	f.Fuzz(func(t *testing.T, us int64, unit, anchor, at uint8) {
		c := quota.Calendar{Unit: quota.CalendarUnit(unit % 4), Anchor: 1, Zone: zone(t, names[int(at)%len(names)])}
		switch c.Unit {
		case quota.CalendarWeek:
			c.Anchor += quota.Anchor(anchor % 7)
		case quota.CalendarMonth:
			c.Anchor += quota.Anchor(anchor % 31)
		}
		us &= 1<<52 - 1
		p := c.At(us)
		if us < p.Begin || us >= p.End || p.Number < 1 {
			t.Fatalf("%s: %d lies in %+v", &c, us, p)
		}
		shown := civil(&c, time.UnixMicro(p.Begin).In(c.Zone))
		if before := civil(&c, time.UnixMicro(p.Begin-1).In(c.Zone)); before >= shown {
			t.Fatalf("%s: %+v begins where the clocks show no more than before", &c, p)
		}
		if c.At(p.Begin) != p || c.At(p.End-1) != p || c.Before(c.Next(p)) != p || c.Next(p).Begin != p.End {
			t.Fatalf("%s: %+v has other neighbours", &c, p)
		}
	})
}

// TestPeriodsCountOnce: whatever a clock does and whoever has other zone data, each period counts what is charged while it does,
// no number comes back after it was given up, and a period that is in use ends when it was said to.
func TestPeriodsCountOnce(t *testing.T) {
	calendar := func(offset int) *quota.Calendar {
		return &quota.Calendar{Unit: quota.CalendarHour, Anchor: 1, Zone: time.FixedZone("", offset)}
	}
	data := []*quota.Calendar{calendar(0), calendar(600), calendar(-900)}
	rapid.Check(t, func(t *rapid.T) {
		const hour = 3_600_000_000
		us, p := int64(1_795_198_405_000_000), quota.Periods{}
		charged, ends, gone := map[int64]int64{}, map[int64]int64{}, int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			us += rapid.OneOf(rapid.Int64Range(-3*hour, 3*hour), rapid.Int64Range(-hour/4, hour/2)).Draw(t, "move")
			c := rapid.SampledFrom(data).Draw(t, "zone data")
			now := c.At(us)
			was := p
			var older bool
			p, older = p.At(us, now, c.Next(now))
			u := p.Count(older)
			if us >= u.End {
				t.Fatalf("at %d counts %+v, which is over", us, *u)
			}
			if us < was.Older.End && u.Number != was.Older.Number {
				t.Fatalf("at %d counts %+v, and %+v is not over", us, *u, was.Older)
			}
			if p.Newest.Number <= p.Older.Number || p.Newest.Number < was.Newest.Number {
				t.Fatalf("%+v after %+v", p, was)
			}
			if end, known := ends[u.Number]; known && end != u.End {
				t.Fatalf("%d ends at %d, and now at %d", u.Number, end, u.End)
			}
			if u.Units != charged[u.Number] {
				t.Fatalf("%d has %d of %d units", u.Number, u.Units, charged[u.Number])
			}
			for _, before := range []quota.PeriodUnits{was.Newest, was.Older} {
				if before.Number != p.Newest.Number && before.Number != p.Older.Number {
					gone = max(gone, before.Number)
				}
			}
			if u.Number <= gone {
				t.Fatalf("%d begins again after %d was given up", u.Number, gone)
			}
			u.Add(2)
			charged[u.Number], ends[u.Number] = charged[u.Number]+2, u.End
		}
	})
}

func TestAnchors(t *testing.T) {
	for _, row := range []struct {
		unit   quota.CalendarUnit
		text   string
		anchor quota.Anchor
		err    string
	}{
		{quota.CalendarMonth, "31", 31, ""},
		{quota.CalendarMonth, "32", 1, `must be a day of the month between 1 and 31, is "32"; 31 is the last day of shorter months too`},
		{quota.CalendarMonth, "friday", 1, `must be a day of the month between 1 and 31, is "friday"; 31 is the last day of shorter months too`},
		{quota.CalendarWeek, "friday", 5, ""},
		{quota.CalendarWeek, "fri", 1, `"fri" is not one of monday, tuesday, wednesday, thursday, friday, saturday, sunday`},
		{quota.CalendarDay, "1", 1, "is for calendar: week (a weekday) and month (a day); a period of calendar: day has no other beginning"},
	} {
		anchor, err := row.unit.ParseAnchor(row.text)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if anchor != row.anchor || text != row.err {
			t.Errorf("%s from %s is %d, %q", row.unit, row.text, anchor, text)
		}
	}
}

// TestCalendarID: the text of a calendar is read back as the same, and no other text is read.
func TestCalendarID(t *testing.T) {
	load := func(name string) *time.Location {
		zone, _ := time.LoadLocation(name) // nil for none
		return zone
	}
	for _, id := range []string{"month-31-Europe/Berlin", "week-7-Etc/GMT-5", "day-1-UTC", "hour-1-America/Port-au-Prince"} {
		c, err := quota.ParseCalendarID(id, load)
		if err != nil || c.ID() != id {
			t.Errorf("%s is read as %v, %v", id, c, err)
		}
	}
	for _, id := range []string{"", "month", "month-1", "month-0-UTC", "month-32-UTC", "week-8-UTC", "day-2-UTC", "year-1-UTC", "month-x-UTC", "month-1-Nowhere", "month-257-UTC"} {
		if c, err := quota.ParseCalendarID(id, load); err == nil {
			t.Errorf("%q is read as %v", id, c)
		}
	}
}
