package loan

import (
	"cmp"
	"math"
	"slices"
)

// Settings of few units, found by simulation: TestFew of test/loansim compares them with shares that are not lent.
const (
	stay       = 4  // windows after a request in which a region counts as asked, up to longestStay
	term       = 3  // windows that a cost stays where it is asked for while another region waits
	fewCosts   = 10 // a share below that stays, in short windows
	shortTrips = 13 // trips of a short window, for each region

	longestStay = 600_000_000 // µs
	never       = math.MaxInt64
)

// keeps reports whether a share stays in a region that is asked for any: one of a few costs, where too much of a window would
// pass on the way, or between the answers of many regions.
func (p *Planner) keeps(share int64) bool {
	return share/max(1, p.last.cost) < fewCosts && p.Window < shortTrips*p.Trip*int64(p.Regions)
}

// turns reports whether a region with such a share takes turns: it admits one cost or none.
func (p *Planner) turns(share int64) bool { return share < 2*max(1, p.last.cost) }

// turnsOf reports whether the author of a want takes turns with this region: not where one of the two has use for its share.
func (p *Planner) turnsOf(w *Want) bool { return p.turns(w.Share) && w.Share < 2*p.costOf(w) }

// large reports whether a want is for a cost so large that its author takes turns, and this region does not. It may never come
// together, so only what this region will not use goes there.
func (p *Planner) large(w *Want) bool { return !p.turns(w.Share) && w.Share < 2*p.costOf(w) }

// costOf is the cost of the author of a want, by this region's own where it does not say.
func (p *Planner) costOf(w *Want) int64 { return max(1, cmp.Or(w.Cost, p.last.cost)) }

// Remembers is for how long, in µs, a region keeps such a share after it was asked for any, or waits for its turn; 0: the share
// is lent as soon as others need it more.
func (p *Planner) Remembers(share int64) int64 {
	if p.turns(share) || p.keeps(share) {
		return p.stay()
	}
	return 0
}

func (p *Planner) stay() int64 { return min(stay*p.Window, longestStay) }

func (p *Planner) lately(now int64) bool { return p.last.asked > 0 && now-p.last.asked < p.stay() }

// queue notes since when a region waits for its turn, which ends when it uses any: a want of it was received, or all have
// received ours.
func (p *Planner) queue(w *Want, received int64) {
	if _, waits := p.waits[w.From]; w.Ceil > w.Slack {
		delete(p.waits, w.From)
	} else if w.Urgent > 0 && !waits && p.turnsOf(w) {
		p.waits[w.From] = received
	}
}

// turn passes units on to the first in line, a cost at a time. Of regions that each hold less than a cost all leave it to one:
// short says that this one is in the line too.
func (x *plan) turn(short bool) {
	since := int64(never)
	if own, waits := x.waits[x.b.Region]; waits && short {
		since = own
	}
	first := x.first(since)
	if first == nil {
		return
	}
	n, stays := x.slack, x.stays(first)
	if stays {
		n -= x.cost
	}
	if n = min(n, first.Urgent-x.flying(first)); n > 0 {
		x.pass(first, n)
	} else if x.slack < x.cost && !stays {
		x.kept += x.cost
	}
}

// first takes the wants of regions that take turns out of the others, and returns the one that has waited longest, by name if
// that is not clear; nil if that is this region. One that has used some waits since just now.
func (x *plan) first(since int64) (first *received) {
	name, longest := x.b.Region, x.rank(since)
	x.wants = slices.DeleteFunc(x.wants, func(a *received) bool {
		t, waits := x.waits[a.From]
		if !waits {
			t = a.at
		}
		rank := x.rank(t)
		if x.turnsOf(&a.Want) && a.Urgent > x.flying(a) && (rank > longest || rank == longest && a.From < name) {
			first, longest, name = a, rank, a.From
		}
		return x.turnsOf(&a.Want)
	})
	return first
}

// rank is how long a region has waited since then, in steps of which each is a quarter longer than the one before. Regions learn
// of it at times of their own, so two that began at nearly the same time may be in another order elsewhere. That must not last, or
// a cost passes between regions that each leave it to another one: the longer both wait, the more of the time they have one rank.
func (x *plan) rank(since int64) int {
	if since == never {
		return -1
	}
	return int(math.Log1p(2*float64(max(0, x.now-since))/float64(x.Length)) / math.Log(1.25))
}

// stays reports whether the last cost of this region stays here. Units that pass on their way home stay for nobody.
func (x *plan) stays(first *received) bool {
	switch _, waits := x.waits[x.b.Region]; {
	case first.Ceil >= x.costOf(&first.Want): // it would be used there no sooner
		return x.lately(x.now)
	case x.last.had == 0 || x.ceiling >= 2*x.cost:
		return false
	case waits: // it was not used since it came
		return x.lately(x.now)
	}
	return x.now-x.last.had < term*x.Window && x.now-x.last.asked < x.Window
}
