package oracle

import (
	"maps"
	"slices"

	"github.com/regiond/regiond/quota"
)

// count charges units to the usage total of a global limit if they are charged,
// and returns what it is: the sum of the charges since its bucket began. Time
// that falls by less than a bucket stays in it; time that steps further back
// begins another, as does time that goes on. now is the period that counts, of a limit with a calendar.
func (r *Region) count(name quota.CounterKey, time int64, l *quota.Limit, units int64, charge bool, now quota.PeriodUnits) quota.Counter {
	if l.Calendar != nil {
		return r.countPeriod(name, time, units, charge, now)
	}
	t := r.totals[name]
	if !charge {
		return t
	}
	at := time / l.WindowUS()
	if t == (quota.Counter{}) {
		t = quota.Counter{Generation: time, Bucket: at}
	}
	if at < t.Bucket-1 {
		t = quota.Counter{Generation: t.Generation + 1, Bucket: at}
	}
	if at > t.Bucket {
		t = quota.Counter{Generation: t.Generation, Bucket: at}
	}
	t.Units = min(t.Units+units, quota.MaxCounter)
	r.totals[name] = t
	return t
}

// periodTotals is what was charged to a counter in the last two periods of its generation, by number.
type periodTotals struct {
	generation int64
	units      map[int64]int64
}

// countPeriod is count for a limit with a calendar: the sum of the charges in the period that counts. Time that steps back behind the
// second of the newest periods begins all anew, under the next number.
func (r *Region) countPeriod(name quota.CounterKey, time, units int64, charge bool, now quota.PeriodUnits) quota.Counter {
	t := r.periods[name]
	if charge {
		if t.generation == 0 {
			t = periodTotals{time, map[int64]int64{}}
		}
		if used := slices.Sorted(maps.Keys(t.units)); len(used) == 2 {
			switch {
			case now.Number < used[0]:
				t = periodTotals{t.generation + 1, map[int64]int64{}}
			case now.Number > used[0] && now.Number != used[1]:
				delete(t.units, used[0])
			}
		}
		t.units[now.Number] = min(t.units[now.Number]+units, quota.MaxCounter)
		r.periods[name] = t
	}
	return quota.Counter{Generation: t.generation, Bucket: now.Number, Units: t.units[now.Number], EndsUS: now.End}
}

// period is the one that counts for a limit with a calendar, zero for any other.
func (r *Region) period(p Part, l *quota.Limit, time int64) quota.PeriodUnits {
	if l.Calendar == nil {
		return quota.PeriodUnits{}
	}
	return r.partition(p).usage.under(l, time).(periods).counts
}
