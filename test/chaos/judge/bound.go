package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// bounded reports whether the request was counted under a limit with a bound.
func bounded(r *traffic.Record) bool {
	return !r.Bare && (r.Class == traffic.Strict || r.Class == traffic.Tenth || r.Class == traffic.Month || r.Class == traffic.Hour)
}

// clockRate is by how much a clock may run fast or slow: a window of true time is that much
// shorter than the limit's.
const clockRate = 500e-6

// Admitted is units that all answers and stores together show for one moment of a store.
type Admitted struct {
	Region string
	US     int64 // true time, when TIME of that store was what an answer or its log tells
}

// Admissions are the units of a class by moment. A unit is there if an answer told of it or a
// store holds it, and is there once if both do.
type Admissions map[Admitted]int64

// Answers adds what answers of a class told of. What was admitted without the store's time is
// objected to: no bound can hold then. trueUS is when the store's TIME was that of an answer.
func (a Admissions) Answers(records []traffic.Record, wallUS func(time.Duration) int64, trueUS func(*traffic.Record) int64, class string) []string {
	o := objections{what: "bound"}
	told := Admissions{}
	for i := range records {
		r := &records[i]
		if r.Class != class || !r.Admitted() {
			continue
		}
		at := trueUS(r)
		if r.Answer.Explain.StoreTimeUS == 0 || r.Answer.Basis == "local" || r.Answer.Basis == "open" {
			o.add("%s admits %d units of %s at %v by basis %s, not by its Redis", r.Region, r.Cost, r.Tenant, r.Return, r.Answer.Basis)
			at = wallUS(r.Return)
		}
		told[Admitted{r.Region, at}] += r.Cost
	}
	a.Stored(told)
	return o.all()
}

// Stored adds what a store holds, or has held when it was read before.
func (a Admissions) Stored(stored Admissions) {
	for at, units := range stored {
		a[at] = max(a[at], units)
	}
}

// Phase is a time in which a bound is in force: of windows that end in it.
type Phase struct {
	Span
	Units int64
}

// Fullest is a window and the bound that it was held to.
type Fullest struct {
	Units int64 `json:"units"`
	Of    int64 `json:"of"`
}

// fullEnough is the part of a bound, in tenths, that the fullest window has to reach: a bound
// that nothing comes near to says nothing.
const fullEnough = 9

// Bound insists that in no window of true time all regions together admit more than the bound,
// whatever has happened, and that it was reached or nearly so in each phase that is long enough.
func Bound(all Admissions, wallUS func(time.Duration) int64, class string, window time.Duration, phases []Phase) (fullest Fullest, objects []string) {
	o := objections{what: "bound"}
	width := int64(float64(window.Microseconds()) * (1 - clockRate))
	sorted := make([]Admitted, 0, len(all))
	for at := range all {
		sorted = append(sorted, at)
	}
	slices.SortFunc(sorted, func(a, b Admitted) int { return cmp.Compare(a.US, b.US) })
	worst := make([]Fullest, len(phases))
	first, units, by := 0, int64(0), map[string]int64{}
	for _, at := range sorted {
		units, by[at.Region] = units+all[at], by[at.Region]+all[at]
		for ; sorted[first].US <= at.US-width; first++ {
			old := sorted[first]
			units, by[old.Region] = units-all[old], by[old.Region]-all[old]
		}
		for i, p := range phases {
			if at.US < wallUS(p.From) || at.US >= wallUS(p.To) {
				continue
			}
			worst[i] = Fullest{max(worst[i].Units, units), p.Units}
			if units > p.Units {
				o.add("%s admits a unit of %s at %v that makes it %d within %v, of which the bound is %d: %v",
					at.Region, class, time.Duration(at.US-wallUS(0))*time.Microsecond, units, window, p.Units, by)
			}
		}
	}
	for i, w := range worst {
		if long := phases[i].To-phases[i].From >= 2*window; long && 10*w.Units < fullEnough*phases[i].Units {
			o.add("the fullest window of %s has %d units of a bound of %d from %v to %v: it is not tested",
				class, w.Units, phases[i].Units, phases[i].From, phases[i].To)
		}
		if w.Units*fullest.Of >= fullest.Units*w.Of {
			fullest = w
		}
	}
	return fullest, o.all()
}

// Counted names what one region admitted of a tenant in one period of a calendar, by the clock of its store.
type Counted struct {
	Tenant, Region string
	Period         int64
}

// Periods are the units that were admitted at least: what answers tell, or what a store held, whichever is more.
type Periods map[Counted]int64

// Answers adds what answers of a class told of.
func (p Periods) Answers(records []traffic.Record, calendar *quota.Calendar, class string) []string {
	o := objections{what: "bound"}
	told := Periods{}
	for i := range records {
		r := &records[i]
		if r.Class != class || !r.Admitted() {
			continue
		}
		us := r.Answer.Explain.StoreTimeUS
		if us == 0 || r.Answer.Basis == "local" || r.Answer.Basis == "open" {
			o.add("%s admits %d units of %s at %v by basis %s, not by its Redis", r.Region, r.Cost, r.Tenant, r.Return, r.Answer.Basis)
		}
		told[Counted{r.Tenant, r.Region, calendar.At(us).Number}] += r.Cost
	}
	p.Stored(told)
	return o.all()
}

// Stored adds what a store holds, or has held when it was read before.
func (p Periods) Stored(stored Periods) {
	for c, units := range stored {
		p[c] = max(p[c], units)
	}
}

// fullest is the period in which all regions together admitted the most of a tenant, and what each did in it.
func (p Periods) fullest(tenant string) (most int64, by map[string]int64) {
	all := map[int64]map[string]int64{}
	sums := map[int64]int64{}
	for c, units := range p {
		if c.Tenant != tenant {
			continue
		}
		if all[c.Period] == nil {
			all[c.Period] = map[string]int64{}
		}
		all[c.Period][c.Region], sums[c.Period] = units, sums[c.Period]+units
		if sums[c.Period] > most {
			most, by = sums[c.Period], all[c.Period]
		}
	}
	return most, by
}

// Within insists that in no period all regions together admit more of any tenant than the bound, whatever has happened.
func (p Periods) Within(bound int64) (worst Fullest, objects []string) {
	worst.Of = bound
	o := objections{what: "bound"}
	tenants := map[string]bool{}
	for c := range p {
		tenants[c.Tenant] = true
	}
	for tenant := range tenants {
		units, by := p.fullest(tenant)
		if worst.Units = max(worst.Units, units); units > bound {
			o.add("%d units of %s are admitted in one period, of which the bound is %d: %v", units, tenant, bound, by)
		}
	}
	return worst, o.all()
}

// enoughAsked is how much has to be asked for, in quarters of what is there, for Left to say anything.
const enoughAsked = 5

// Left insists that a region which alone asks for a tenant admits what the others leave of it, but a tenth; its own share would be
// a third. stands is the part of the bound that no loss has burnt. It says nothing where too little was asked for in one period.
func (p Periods) Left(records []traffic.Record, calendar *quota.Calendar, stands int64, region, tenant string) (judged bool, objects []string) {
	asked := map[int64]int64{}
	for i := range records {
		if r := &records[i]; r.Tenant == tenant && r.Answer.Explain.StoreTimeUS != 0 {
			asked[calendar.At(r.Answer.Explain.StoreTimeUS).Number] += r.Cost
		}
	}
	units, by := p.fullest(tenant)
	for _, n := range asked {
		if judged = judged || 4*n >= enoughAsked*stands; judged && 10*units < fullEnough*stands {
			return judged, []string{fmt.Sprintf("left: %s, which alone asks for %s, was asked for %d and admits %d of the %d units that others leave: %v",
				region, tenant, n, units, stands, by)}
		}
	}
	return judged, nil
}

// Lent insists that a region whose share of a class is burnt admits units that others lend it within
// a time of the loss, and returns how long that took.
func Lent(records []traffic.Record, class, region string, loss, within time.Duration) (took time.Duration, objects []string) {
	for i := range records { // in the order of their answers
		if r := &records[i]; r.Class == class && r.Region == region && r.Return > loss && r.Admitted() && r.Answer.Binds() == "burnt" {
			if took = r.Return - loss; took <= within {
				return took, nil
			}
			return took, []string{fmt.Sprintf("lent: %s admits a unit of %s %v after its loss, %v are allowed", region, class, took, within)}
		}
	}
	return 0, []string{fmt.Sprintf("lent: %s admits no unit of %s after its loss", region, class)}
}

// Open insists that a region is closed to a class by its bound for no longer than a time at once, from the first answer that
// says so to the last: a class is not asked for all the while.
func Open(records []traffic.Record, class, region string, most time.Duration) (longest time.Duration, objects []string) {
	since := time.Duration(-1)
	for i := range records {
		r := &records[i]
		if r.Class != class || r.Region != region || r.Answer.Binds() == "" {
			continue
		}
		switch closed := r.Answer.Binds() == "closed"; {
		case !closed:
			since = -1
		case since < 0:
			since = r.Return
		default:
			longest = max(longest, r.Return-since)
		}
	}
	if longest > most {
		objects = append(objects, fmt.Sprintf("open: the bound of %s closes it in %s for %v, %v are allowed", class, region, longest, most))
	}
	return longest, objects
}
