package quota

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// CalendarUnit is how long a period of a Calendar is. The zero value is CalendarHour.
type CalendarUnit uint8

// The units of a calendar.
const (
	// CalendarHour begins with each hour that the clocks show.
	CalendarHour CalendarUnit = iota
	// CalendarDay begins at midnight.
	CalendarDay
	// CalendarWeek begins at midnight of a weekday.
	CalendarWeek
	// CalendarMonth begins at midnight of a day of the month.
	CalendarMonth
)

var (
	calendarNames = []string{"hour", "day", "week", "month"}
	weekdayNames  = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
)

// String returns the name used in topology.yaml and in answers.
func (u CalendarUnit) String() string { return EnumName(calendarNames, uint8(u)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *CalendarUnit) UnmarshalText(text []byte) error { return ParseName(u, calendarNames, text) }

// Window is about how long a period is: exactly where no clock of the zone is changed, and of a month the longest.
func (u CalendarUnit) Window() time.Duration {
	return [...]time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, MaxWindow}[u]
}

// calendarSpare is by how much a period may be longer than its unit, since clocks in its zone are set back, and how far the clocks of
// regions may be apart beside.
const calendarSpare = 3 * time.Hour

// Longest is how long a period lasts at most, from when the first region's clock shows its beginning until the last shows its end.
func (u CalendarUnit) Longest() time.Duration { return u.Window() + calendarSpare }

// Anchor is when a week or a month begins.
type Anchor uint8

// MaxAnchor is the last day of any month.
const MaxAnchor = 31

// ParseAnchor reads a weekday for CalendarWeek, and a day for CalendarMonth.
func (u CalendarUnit) ParseAnchor(text string) (a Anchor, err error) {
	switch {
	case u == CalendarWeek:
		err = ParseName(&a, weekdayNames, []byte(text))
		return a + 1, err
	case u != CalendarMonth:
		return 1, fmt.Errorf("is for calendar: week (a weekday) and month (a day); a period of calendar: %s has no other beginning", u)
	}
	day, err := strconv.ParseUint(text, 10, 8)
	if err != nil || day < 1 || day > MaxAnchor {
		return 1, fmt.Errorf("must be a day of the month between 1 and %d, is %q; %d is the last day of shorter months too", MaxAnchor, Clip(text), MaxAnchor)
	}
	return Anchor(day), nil
}

// Calendar divides time into periods that begin as the clocks of a zone show it: with each hour, day, week or month. Immutable,
// shared between goroutines.
//
// A period is named by its number, which counts civil time: hours and days from the year 0, weeks of the anchor's weekday, and
// months as year·12 + month. It begins at the first instant at which the clocks show its beginning or more. So a midnight that a
// zone skips is the first instant of that date, an hour that is shown twice is one period of two hours, and one that is skipped
// is none.
type Calendar struct {
	Unit   CalendarUnit
	Zone   *time.Location
	Anchor Anchor // of a week the weekday, 1 (Monday)…7; of a month the day, 1…MaxAnchor, at most the month's last; else 1
}

// validate finds what no topology.yaml can say: callers that make a Calendar of their own can.
func (c *Calendar) validate(ms *FieldErrors) {
	if c.Unit > CalendarMonth {
		ms.Add("/calendar", "must be one of %s", strings.Join(calendarNames, ", "))
		return
	}
	ms.When(c.Zone == nil, "/timezone", "is missing")
	most := [...]Anchor{1, 1, 7, MaxAnchor}[c.Unit]
	ms.When(c.Anchor < 1 || c.Anchor > most, "/anchor", "of calendar: %s must be between 1 and %d, is %d", c.Unit, most, c.Anchor)
}

// ParseCalendarID returns the calendar of an ID, with the zone that zone returns for a name.
func ParseCalendarID(id string, zone func(name string) *time.Location) (*Calendar, error) {
	unit, rest, _ := strings.Cut(id, "-")
	anchor, name, _ := strings.Cut(rest, "-")
	var c Calendar
	if err := c.Unit.UnmarshalText([]byte(unit)); err != nil {
		return nil, err
	}
	day, err := strconv.ParseUint(anchor, 10, 8)
	if err != nil {
		return nil, fmt.Errorf("the anchor of calendar %q: %w", Clip(id), err)
	}
	if name == "" {
		return nil, fmt.Errorf("calendar %q has no zone", Clip(id))
	}
	c.Zone, c.Anchor = zone(name), Anchor(day)
	var ms FieldErrors
	if c.validate(&ms); len(ms) > 0 {
		return nil, fmt.Errorf("calendar %q: %s", Clip(id), ms[0].Detail)
	}
	return &c, nil
}

// Period is one of a Calendar. Times are µs since the epoch.
type Period struct {
	Number     int64
	Begin, End int64 // it lasts while Begin <= t < End
}

// ID is the text of a calendar, "month-15-Europe/Berlin", and "" of none. It contains no space, colon or brace. Two that divide
// time differently have different texts, for one version of zone data.
func (c *Calendar) ID() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s-%d-%s", c.Unit, c.Anchor, c.Zone)
}

// MarshalText returns ID.
func (c *Calendar) MarshalText() ([]byte, error) { return []byte(c.ID()), nil }

// CalendarWindow is CalendarUnit.Window of a text that ID may have returned; false for any other.
func CalendarWindow(id string) (time.Duration, bool) {
	var u CalendarUnit
	unit, rest, _ := strings.Cut(id, "-")
	if u.UnmarshalText([]byte(unit)) != nil || rest == "" {
		return 0, false
	}
	return u.Window(), true
}

// String is a calendar in words: "month from day 15 in Europe/Berlin".
func (c *Calendar) String() string {
	from := ""
	switch {
	case c.Unit == CalendarWeek:
		from = " from " + weekdayNames[c.Anchor-1]
	case c.Unit == CalendarMonth && c.Anchor > 1:
		from = fmt.Sprintf(" from day %d", c.Anchor)
	}
	return fmt.Sprintf("%s%s in %s", c.Unit, from, c.Zone)
}

// At is the period that a time lies in, µs since the epoch.
func (c *Calendar) At(us int64) Period {
	n := c.shown(time.UnixMicro(us).In(c.Zone))
	for { // what the clocks show may be set back behind the beginning of the period
		if end := c.begin(n + 1); end > us {
			return Period{n, c.begin(n), end}
		}
		n++
	}
}

// Next is the period after one.
func (c *Calendar) Next(p Period) Period { return c.At(p.End) }

// Before is the period before one.
func (c *Calendar) Before(p Period) Period { return c.At(p.Begin - 1) }

// Before year 0 there is nothing, so that no number is negative.
const (
	yearZeroDays = 719_528 // from the year 0 to 1970
	dayUS        = 24 * 3_600_000_000
)

// shown is the number of the period that the clocks show.
func (c *Calendar) shown(t time.Time) int64 {
	year, month, day := t.Date()
	days := daysOf(year, month, day)
	switch c.Unit {
	case CalendarHour:
		return days*24 + int64(t.Hour())
	case CalendarDay:
		return days
	case CalendarWeek:
		return (days - c.weekOffset()) / 7
	}
	n := int64(year)*12 + int64(month)
	if day < c.dayIn(year, month) {
		n--
	}
	return n
}

// weekOffset is the first day of week 0.
func (c *Calendar) weekOffset() int64 {
	const monday = 2 // the year 0 begins with a Saturday
	return monday + int64(c.Anchor) - 1
}

// dayIn is the day on which the period begins that begins in a month.
func (c *Calendar) dayIn(year int, month time.Month) int {
	return min(int(c.Anchor), time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day())
}

// daysOf is how many days a date is after the beginning of the year 0.
func daysOf(year int, month time.Month, day int) int64 {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()/86400 + yearZeroDays
}

// begin is the first instant at which the clocks show the beginning of a period or more.
func (c *Calendar) begin(number int64) int64 {
	var seconds int64
	switch c.Unit {
	case CalendarHour:
		seconds = number*3600 - yearZeroDays*86400
	case CalendarDay:
		seconds = (number - yearZeroDays) * 86400
	case CalendarWeek:
		seconds = (number*7 + c.weekOffset() - yearZeroDays) * 86400
	case CalendarMonth:
		year, month := int((number-1)/12), time.Month((number-1)%12+1)
		seconds = time.Date(year, month, c.dayIn(year, month), 0, 0, 0, 0, time.UTC).Unix()
	}
	const ahead = 26 * 3600 // no clock is ahead of UTC by more
	for t := time.Unix(seconds-ahead, 0).In(c.Zone); ; {
		_, offset := t.Zone()
		first := max(seconds-int64(offset), t.Unix())
		_, end := t.ZoneBounds() // until then the offset stays; on the last day of a leap year package time has that day's beginning
		if !end.After(t) || first < end.Unix() {
			return first * 1_000_000
		}
		t = end
	}
}

// Periods is the state of a limit with a calendar: what was used in the two newest periods in which anything was. Whatever other zone
// data say, one ends as it did when it was first used.
type Periods struct {
	Newest, Older PeriodUnits
}

// PeriodUnits is how much was used in a period. The zero value is none.
type PeriodUnits struct {
	Number, End int64 // of the Period
	Units       int64 // 0…MaxCounter
}

// At is the state at a time of the store, with a place for what counts then, Count. now is the period that lies there and next the
// one after it, maybe by other zone data than those by which the state came about.
//
// A clock that is set back over a beginning counts in the older period again. What lies before that one counts there too:
// a period that was given up never begins anew.
func (p Periods) At(us int64, now, next Period) (_ Periods, older bool) {
	switch {
	case us < p.Older.End:
		return p, true
	case us >= p.Newest.End:
		if now.Number <= p.Newest.Number { // that one is over, as answers have said
			now = Period{Number: max(next.Number, p.Newest.Number+1), End: next.End}
		}
		return Periods{Newest: PeriodUnits{Number: now.Number, End: now.End}, Older: p.Newest}, false
	case now.Number >= p.Newest.Number || now.Number <= p.Older.Number:
		return p, false
	}
	p.Older = PeriodUnits{Number: now.Number, End: now.End}
	return p, true
}

// Count is the period that counts.
func (p *Periods) Count(older bool) *PeriodUnits {
	if older {
		return &p.Older
	}
	return &p.Newest
}

// Falls is when at most so many units are used that are not now: at the end of the period that counts, or of the next one if that
// has more already, since the clock was set back.
func (p *Periods) Falls(older bool, room int64) int64 {
	if older && p.Newest.Number == p.Older.Number+1 && p.Newest.Units > room {
		return max(p.Newest.End, p.Older.End)
	}
	return p.Count(older).End
}

// Add charges units, or takes them back if they are negative.
func (u *PeriodUnits) Add(units int64) { u.Units = max(0, min(u.Units+units, MaxCounter)) }
