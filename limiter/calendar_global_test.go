package limiter_test

import (
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// otherPeriods is a Global that takes another period for that of now, and leaves something of the named ones alone.
type otherPeriods struct {
	others
	takes int64           // for the period of now
	left  map[int64]int64 // of a period, 0 of others
	asked []int64         // the periods that were named
}

func (o *otherPeriods) Ceiling(_ *quota.Policy, _ *quota.Limit, _ *quota.CounterKey, _ bool, period int64) quota.Ceiling {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, period)
	if period == 0 {
		period = o.takes
	}
	return quota.Ceiling{Units: o.left[period], Local: o.left[period], Period: period}
}

// TestCeilingOfAnotherPeriod: only the store knows in which period it counts. A ceiling that is for another one charges nothing and
// denies nothing: the store is asked again under that of the period that it named, within the same answer. Where that
// denies, and where a cost is above it, Retry-After is the next beginning.
func TestCeilingOfAnotherPeriod(t *testing.T) {
	ends := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	now := ends.Add(-10 * time.Minute)
	limit := calendarLimit(t, quota.CalendarHour, 1)
	limit.Scope = quota.ScopeGlobal
	hour := limit.Calendar.At(now.UnixMicro()).Number
	o := &otherPeriods{takes: hour + 1, left: map[int64]int64{hour: 2, hour + 1: 4}}
	c := onePolicy(quota.Policy{Name: "standard", Limits: []quota.Limit{limit}})
	c.Global = o
	r := memoryRig(t, c, func() time.Time { return now })
	check := func(what string, cost int64, allowed bool, ceiling int64, named []int64, wait time.Duration) {
		t.Helper()
		o.mu.Lock()
		o.asked = nil
		o.mu.Unlock()
		d := r.check(t, "acme", cost)
		if d.Allowed != allowed || d.Limits[0].Ceiling != ceiling || !slices.Equal(o.asked, named) || d.RetryAfter() != wait {
			t.Errorf("%s: allowed %v under %d after %v, wait %v; want %v under %d after %v, wait %v", what, d.Allowed, d.Limits[0].Ceiling, o.asked, d.RetryAfter(), allowed, ceiling, named, wait)
		}
	}
	check("the next hour was expected", 2, true, 2, []int64{0, hour}, 0)
	check("and nothing is left", 1, false, 2, []int64{0, hour}, 10*time.Minute)
	o.takes = hour
	check("a cost above the ceiling", 3, false, 2, []int64{0}, 10*time.Minute)
	now = ends
	check("the hour before was expected", 3, true, 4, []int64{0, hour + 1}, 0)
	o.takes = hour + 1
	check("the hour that was expected", 1, true, 4, []int64{0}, 0)
}
