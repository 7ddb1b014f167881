package oracle

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/regiond/regiond/quota"
)

// usage is what a partition has used. Values are never changed, only replaced.
type usage interface {
	// under is this usage as a limit sees it that reads it at now, the limit's
	// window or height perhaps being new.
	under(l *quota.Limit, now int64) usage
	// used is how many units are used at t, which is not before any charge. It
	// does not grow with t.
	used(t int64) int64
	// charge is the usage after units more at now.
	charge(now, units int64) usage
	// refund is the usage without the newest units at now, and its newest stamp.
	refund(now, units int64, l *quota.Limit) (usage, int64)
}

func newUsage(l *quota.Limit) usage {
	switch l.Algorithm {
	case quota.SlidingWindow:
		return window{width: l.WindowUS()}
	case quota.GCRA:
		return level{units: new(big.Rat), limit: l}
	case quota.CalendarPeriods:
		return periods{}
	default:
		return log{}
	}
}

// Admission is units that a store admitted, at a time of its own clock.
type Admission struct {
	US   int64 // µs since the epoch
	Cost int64 // units
}

// log is every admission, ever.
type log struct {
	all   []Admission
	width int64 // the W that it is read under
}

func (g log) under(l *quota.Limit, _ int64) usage { return log{all: g.all, width: l.WindowUS()} }

func (g log) used(t int64) int64 {
	units := int64(0)
	for i := len(g.all) - 1; i >= 0 && g.all[i].US > t-g.width; i-- {
		units += g.all[i].Cost
	}
	return units
}

func (g log) charge(now, units int64) usage {
	return log{all: append(g.all[:len(g.all):len(g.all)], Admission{US: now, Cost: units}), width: g.width}
}

// refund knows of the limit's newest units that are not outside its window.
func (g log) refund(now, units int64, l *quota.Limit) (usage, int64) {
	var known []Admission
	for i, left := len(g.all)-1, l.Units; i >= 0 && left > 0 && g.all[i].US > now-g.width; i-- {
		known = slices.Insert(known, 0, Admission{US: g.all[i].US, Cost: min(left, g.all[i].Cost)})
		left -= known[0].Cost
	}
	if known = without(known, units); len(known) == 0 {
		return log{width: g.width}, 0
	}
	return log{all: known, width: g.width}, known[len(known)-1].US
}

// without is admissions without the newest units.
func without(all []Admission, units int64) []Admission {
	all = slices.Clone(all)
	for n := len(all); units > 0 && n > 0; n = len(all) {
		part := min(units, all[n-1].Cost)
		all[n-1].Cost -= part
		if units -= part; all[n-1].Cost == 0 {
			all = all[:n-1]
		}
	}
	return all
}

// window is every admission too, but counts them by aligned buckets of its width.
type window struct {
	all   []Admission
	width int64
}

// held is where a bucket stops counting.
const held = 4 * quota.MaxUnits

func (w window) bucket(from int64) int64 {
	units := int64(0)
	for _, a := range w.all {
		if a.US >= from && a.US < from+w.width {
			units += a.Cost
		}
	}
	return min(units, held)
}

func (w window) under(l *quota.Limit, _ int64) usage {
	if l.WindowUS() == w.width {
		return w
	}
	other := window{width: l.WindowUS()}
	if n := len(w.all); n > 0 { // all that was used at the last charge counts as spent then
		newest := w.all[n-1].US
		other.all = []Admission{{US: newest, Cost: w.used(newest)}}
	}
	return other
}

func (w window) used(t int64) int64 {
	start := t - t%w.width
	fading := big.NewRat(w.width-(t-start), w.width)
	fading.Mul(fading, new(big.Rat).SetInt64(w.bucket(start-w.width)))
	return ceiling(fading) + w.bucket(start)
}

func (w window) charge(now, units int64) usage {
	return window{all: append(w.all[:len(w.all):len(w.all)], Admission{US: now, Cost: units}), width: w.width}
}

func (w window) refund(now, units int64, _ *quota.Limit) (usage, int64) {
	return window{all: without(w.all, units), width: w.width}, now
}

// level is how full a bucket is that drains evenly, as an exact fraction.
type level struct {
	units *big.Rat
	us    int64 // when it stood so
	limit *quota.Limit
}

func (v level) at(t int64) *big.Rat {
	drained := big.NewRat(v.limit.Units, v.limit.WindowUS())
	drained.Mul(drained, new(big.Rat).SetInt64(t-v.us))
	left := new(big.Rat).Sub(v.units, drained)
	if left.Sign() < 0 {
		return new(big.Rat)
	}
	return left
}

// under reads the level in the fractions of another window, rounded up, no
// higher than a level of the limit can be, and drained from when it was charged:
// a limit that drains faster has done so since then.
func (v level) under(l *quota.Limit, now int64) usage {
	whole, part := split(v.units)
	grains := ceiling(part.Mul(part, new(big.Rat).SetInt64(l.WindowUS())))
	part = big.NewRat(grains, l.WindowUS())
	more, rest := split(part)
	u := new(big.Rat).SetInt64(min(whole+more, 4*l.Capacity()))
	seen := level{units: u.Add(u, rest), us: v.us, limit: l}
	return level{units: seen.at(now), us: now, limit: l}
}

func (v level) used(t int64) int64 { return ceiling(v.at(t)) }

func (v level) charge(now, units int64) usage {
	whole, part := split(v.at(now))
	u := new(big.Rat).SetInt64(min(whole+units, 4*v.limit.Capacity()))
	return level{units: u.Add(u, part), us: now, limit: v.limit}
}

func (v level) refund(now, units int64, _ *quota.Limit) (usage, int64) {
	left := v.at(now)
	if left.Sub(left, new(big.Rat).SetInt64(units)); left.Sign() < 0 {
		left = new(big.Rat)
	}
	return level{units: left, us: now, limit: v.limit}, now
}

// split returns the whole units of r and what is left.
func split(r *big.Rat) (whole int64, part *big.Rat) {
	q := new(big.Int).Quo(r.Num(), r.Denom())
	return q.Int64(), new(big.Rat).Sub(r, new(big.Rat).SetInt(q))
}

func ceiling(r *big.Rat) int64 {
	whole, part := split(r)
	if part.Sign() > 0 {
		whole++
	}
	return whole
}

// periods is what each period has used in which anything was, by their numbers. The last two can count.
type periods struct {
	all    []quota.PeriodUnits
	counts quota.PeriodUnits // now
	next   quota.PeriodUnits // counts at the end of that, if anything was used in it before the clock was set back
}

// under finds the period that counts: of those known one that is not over, and else a new one.
func (p periods) under(l *quota.Limit, now int64) usage {
	c := l.Calendar.At(now)
	p.counts, p.next = quota.PeriodUnits{Number: c.Number, End: c.End}, quota.PeriodUnits{}
	if len(p.all) == 0 {
		return p
	}
	newest, older := p.all[len(p.all)-1], quota.PeriodUnits{}
	if len(p.all) > 1 {
		older = p.all[len(p.all)-2]
	}
	switch between := older.Number < c.Number && c.Number < newest.Number; {
	case now < older.End:
		p.counts = older
		if newest.Number == older.Number+1 {
			p.next = newest
		}
	case now < newest.End && !between:
		p.counts = newest
	case now >= newest.End && c.Number <= newest.Number:
		next := l.Calendar.At(c.End)
		p.counts = quota.PeriodUnits{Number: max(next.Number, newest.Number+1), End: next.End}
	case between && newest.Number == c.Number+1 && now < newest.End:
		p.next = newest
	}
	return p
}

func (p periods) used(t int64) int64 {
	switch {
	case t < p.counts.End:
		return p.counts.Units
	case t < p.next.End:
		return p.next.Units
	}
	return 0
}

func (p periods) charge(_, units int64) usage {
	p.counts.Units = max(0, min(p.counts.Units+units, quota.MaxCounter))
	p.all = append(slices.DeleteFunc(slices.Clone(p.all), func(u quota.PeriodUnits) bool { return u.Number == p.counts.Number }), p.counts)
	slices.SortFunc(p.all, func(a, b quota.PeriodUnits) int { return cmp.Compare(a.Number, b.Number) })
	return p
}

func (p periods) refund(now, units int64, _ *quota.Limit) (usage, int64) {
	return p.charge(now, -units), now
}
