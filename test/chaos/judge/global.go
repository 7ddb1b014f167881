package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/regiond/regiond/test/chaos/traffic"
	"github.com/regiond/regiond/test/oracle"
)

// Span is a stretch of a run.
type Span struct {
	From, To time.Duration
}

// Common is a global limit, and what its regions may not have known.
type Common struct {
	Limit
	Regions []string
	// Late is how long another region's admissions may be unknown in normal operation.
	Late time.Duration
	// Dark are the times from each cut until it is noticed at the latest.
	Dark []Span
	// Losses are what Redis forgot: what its region used then may be admitted again.
	Losses []Loss
	// Cuts are the groups that could not reach each other, and Again is when all counted on each other. Until
	// then what another group has beyond its shares, of which Share judges why, is unknown.
	Cuts  []Cut
	Again time.Duration
	// Stepped is set if store clocks were stepped and do not show true time.
	Stepped bool
}

// Overshoot is what all regions admitted above the limit, at worst.
type Overshoot struct {
	Units     int64 // above the limit in some window; 0 when none
	Explained int64 // of it, at that moment: unknown to others
}

// admission is one of the class, with the time that the store gave it.
type admission struct {
	spend  oracle.Spend
	record *traffic.Record
}

// Global insists that what all regions together admit above the limit in some window is
// explained: by what a region could not know yet, by what a store lost. What a region knows counts
// for a window after it was received, so nothing that is in the window is forgotten. Anything else
// is a bug of the program.
func Global(records []traffic.Record, wallUS func(time.Duration) int64, class string, c Common) (Overshoot, []string) {
	o := objections{what: "global"}
	all, unsure := c.admissions(records, wallUS, class)
	big := oracle.NewGlobal(c.Window.Microseconds())
	worst := Overshoot{}
	for _, a := range all {
		j := big.Admit(a.spend, (c.Late + unsure).Microseconds())
		over := j.Used - c.Units
		if over <= 0 {
			continue
		}
		explained := j.Late + c.unknown(big, a, wallUS, unsure)
		if over > worst.Units {
			worst = Overshoot{Units: over, Explained: explained}
		}
		if over > explained {
			o.add("at %v %s admits the unit that makes it %d within %v, the limit is %d: %d came within %v from others, and %d could not"+
				" be known", a.record.Return, a.record.Region, j.Used, c.Window, c.Units, j.Late, c.Late+unsure, explained-j.Late)
		}
	}
	return worst, o.all()
}

// admissions are in the order of time. What a region's memory admitted while its Redis was
// away stands under a number of its own, since it is told of and forgotten like what
// another region admits, by its own region too. The time of one is the store's; where that is not
// known or not true, the answer's. unsure is by how much the latter may be off.
func (c Common) admissions(records []traffic.Record, wallUS func(time.Duration) int64, class string) (all []admission, unsure time.Duration) {
	for i := range records {
		r := &records[i]
		if r.Class != class || !r.Admitted() {
			continue
		}
		at := wallUS(r.Return)
		if store := r.Answer.Explain.StoreTimeUS; store != 0 && !c.Stepped {
			at = store
		} else {
			unsure = max(unsure, r.Return-r.Call)
		}
		region := c.number(r.Region)
		if r.Answer.Basis == "local" {
			region = c.memory(r.Region)
		}
		all = append(all, admission{record: r, spend: oracle.Spend{Region: region, US: at, Units: r.Cost}})
	}
	slices.SortStableFunc(all, func(a, b admission) int { return cmp.Compare(a.spend.US, b.spend.US) })
	return all, unsure
}

// number is a region's Redis, and memory what its regiond admits without.
func (c Common) number(region string) int { return slices.Index(c.Regions, region) }
func (c Common) memory(region string) int { return c.number(region) + len(c.Regions) }

// unknown is the usage in the window that the deciding region could not know:
// what was admitted while it was dark, what another group had beyond its shares, what a store has
// lost, and what may in truth have left the window already.
func (c Common) unknown(big *oracle.Global, a admission, wallUS func(time.Duration) int64, unsure time.Duration) int64 {
	us := a.spend.US
	start, units := us-c.Window.Microseconds(), int64(0)
	for _, cut := range c.Cuts {
		if us >= wallUS(cut.From) && us <= wallUS(c.Again) && !slices.Contains(cut.Regions, a.record.Region) {
			units += max(0, c.used(big, cut, us)-cut.Units)
		}
	}
	for _, d := range c.Dark {
		if from, to := max(start, wallUS(d.From)), min(us, wallUS(d.To)); from < to {
			units += big.Between(from, to)
		}
	}
	for _, l := range c.Losses {
		if at := wallUS(l.To); at > start && wallUS(l.From) <= us {
			units += big.Used(c.number(l.Region), at) + big.Used(c.memory(l.Region), at)
		}
	}
	return units + big.Between(start, start+unsure.Microseconds())
}

// Cut is a group of regions that could reach no other region for some time.
type Cut struct {
	Regions []string
	Units   int64 // the sum of their parts
	// Span begins when the cut is noticed at the latest and ends with it.
	Span
}

// used is what a group used in the window that ends at a moment.
func (c Common) used(big *oracle.Global, cut Cut, us int64) (units int64) {
	for _, name := range cut.Regions {
		units += big.Used(c.number(name), us) + big.Used(c.memory(name), us)
	}
	return units
}

// Share insists that a group of regions that is cut off admits no unit that makes more
// than its shares within a window, except for usage that its regions exchange too late.
func Share(records []traffic.Record, wallUS func(time.Duration) int64, class string, c Common, cuts []Cut) []string {
	o := objections{what: "share"}
	all, unsure := c.admissions(records, wallUS, class)
	big := oracle.NewGlobal(c.Window.Microseconds())
	for _, a := range all {
		j := big.Admit(a.spend, (c.Late + unsure).Microseconds())
		for _, cut := range cuts {
			if a.record.Call < cut.From || a.record.Return > cut.To || !slices.Contains(cut.Regions, a.record.Region) {
				continue
			}
			used, late := c.used(big, cut, a.spend.US), int64(0)
			if len(cut.Regions) > 1 {
				late = j.Late
			}
			if used > cut.Units+late {
				o.add("at %v %v have admitted %d within %v, their parts are %d, and %d could not be known", a.record.Return, cut.Regions, used, c.Window, cut.Units, late)
			}
		}
	}
	return o.all()
}
