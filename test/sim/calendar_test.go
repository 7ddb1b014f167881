package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// calendarPlan is a world of one bounded quota by the hour, with an hour that begins after three minutes. The clocks of its regions
// are up to a minute apart and are stepped over that beginning, stores lose what they hold or are rolled back, processes restart, links
// are cut, and messages are lost, repeated and late. Most is asked for in the region with the smallest share. In every other world regions
// also lend and return at random.
func calendarPlan(seed uint64) *StrictPlan {
	const begins, units = 3 * time.Minute, 60
	dice := rand.New(rand.NewPCG(seed, 0xca1))
	start := time.UnixMicro(startUS).UTC()
	zone := time.FixedZone("sim", int((start.Truncate(time.Hour).Add(time.Hour).Sub(start) - begins).Seconds()))
	limit := quota.Limit{
		Name: "all", Scope: quota.ScopeGlobal, Units: units, Algorithm: quota.CalendarPeriods, Window: time.Hour, MaxOvershoot: quota.Strict,
		Calendar: &quota.Calendar{Unit: quota.CalendarHour, Anchor: 1, Zone: zone},
	}
	o := Options{
		Seed: seed, Lossy: true, Slow: true, Jitter: 10 * time.Millisecond, Delay: 40 * time.Millisecond, LoanStep: 50 * time.Millisecond, Folly: seed%2 == 0,
		Policies: []quota.Policy{{Name: "p", EnforcePercent: -1, OnStoreLoss: quota.FailClosed, Limits: []quota.Limit{limit}}},
		Tenants:  map[string]string{"t": "p"},
	}
	for i := range 3 {
		o.Regions = append(o.Regions, RegionOptions{
			Name: fmt.Sprintf("r%d", i), Weight: int64(1 + i), Processes: 1 + dice.IntN(2), Skew: time.Duration(dice.Int64N(int64(2*time.Minute))) - time.Minute,
		})
	}
	w := New(o)
	f := &StrictPlan{World: w, dice: dice, asking: dice, there: []bool{true, true, true}, faults: Faults{}, lasts: 8 * time.Minute}
	for place := range f.regions {
		var ask func()
		ask = func() {
			f.Check(place, "t", 1+dice.Int64N(2))
			f.At(f.now+f.span(time.Duration(1+3*place)*time.Second), ask)
		}
		f.At(time.Second, ask)
	}
	for at := 20 * time.Second; at < f.lasts; at += f.span(40 * time.Second) {
		place, by := dice.IntN(3), f.span(2*time.Minute)-time.Minute
		switch dice.IntN(9) {
		case 0:
			f.At(at, func() { f.lose(place) })
		case 1, 2, 3, 4:
			f.At(at, func() { f.step(place, by) })
		case 5:
			f.At(at, func() { f.killAll(place, f.now+time.Second) })
		case 6:
			f.At(at, func() { f.Cut(place, (place+1)%3, true) })
			f.At(at+30*time.Second, func() { f.Cut(place, (place+1)%3, false) })
		case 7:
			f.At(at, func() { f.weather(0.3, 0.1, 0.1) })
			f.At(at+30*time.Second, func() { f.weather(0, 0, 0) })
		}
	}
	return f
}

// calendarWorlds are worlds for every run of the tests.
const calendarWorlds = 4

// TestCalendarPlans: no period of all regions together is above its bound, some are used up, and regions use more than their share.
func TestCalendarPlans(t *testing.T) {
	t.Parallel()
	full, grants := 0, int64(0)
	for seed := range uint64(calendarWorlds) {
		f := calendarPlan(seed + 1)
		for _, v := range f.Run() {
			t.Errorf("seed %d, at %v: %s: %s\n%s", seed+1, v.At, v.Name, v.Text, v.Last)
		}
		grants += f.stats.Grants
		for _, units := range f.bound.periods {
			if units >= 54 {
				full++
			}
		}
	}
	t.Logf("%d periods were nine tenths used, %d grants were sent", full, grants)
	if full < 3 || grants < 3*calendarWorlds {
		t.Error("the bound was hardly ever near")
	}
}
