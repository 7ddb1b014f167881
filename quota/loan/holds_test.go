package loan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// TestHoldOutlastsLoan: regions that each have another max_ttl lend to each other, hold units, and settle, at random. What all
// windows hold and may hold is never more than the bound, by a ledger of what each was allowed and one true clock.
func TestHoldOutlastsLoan(t *testing.T) {
	for seed := range uint64(400) {
		w := newHoldWorld()
		dice := rand.New(rand.NewPCG(seed, 0))
		for range 100 {
			r, to := w.regions[dice.IntN(3)], w.regions[dice.IntN(3)]
			lasts, units := maxTTLs[dice.IntN(len(maxTTLs))], []int64{9, 9, 2}[dice.IntN(3)]
			room := r.book.Room(w.now, w.used(r))
			switch dice.IntN(9) {
			case 0:
				r.book.Terms = r.book.Terms.Holding(lasts)
			case 1:
				w.check(r, min(room, units))
			case 2, 3:
				w.hold(r, min(room, units), lasts)
			case 4:
				if n := len(r.holds); n > 0 {
					w.prolong(r, r.holds[dice.IntN(n)], lasts)
				}
			case 5:
				if n := len(r.holds); n > 0 {
					w.settle(r, r.holds[dice.IntN(n)])
				}
			case 6, 7:
				if r != to {
					w.pass(r, to, units)
				}
			case 8:
				if n := len(r.book.Held); n > 0 {
					l := r.book.Held[dice.IntN(n)]
					w.back(r, w.region(l.Peer), l.ID, units)
				}
			}
			w.now += []int64{0, 0, second / 2, second, 3 * second}[dice.IntN(5)]
			if sum, all := w.sum(); sum > 15 {
				t.Fatalf("seed %d: after %d µs %d of 15 units are used or may be:%s", seed, w.now-clockA, sum, all)
			}
		}
	}
}

const second = int64(1_000_000)

var maxTTLs = []int64{30 * second, second, 4 * second}

// holdWorld is three regions with five units each in a window of a second.
type holdWorld struct {
	now     int64
	regions []*holdRegion
}

type holdRegion struct {
	book  loan.Book
	log   []int64 // a stamp for each unit
	holds []*timedHold
}

type timedHold struct{ units, ends, last int64 }

func newHoldWorld() *holdWorld {
	w := &holdWorld{now: clockA}
	for _, name := range []string{"a", "b", "c"} {
		w.regions = append(w.regions, &holdRegion{book: loan.Book{
			Region: name, Terms: loan.TermsOf(second).Holding(30 * second), Bound: quota.Bound{Epoch: 7, Share: 5},
		}})
	}
	return w
}

// used is what the window and open reservations hold, and has the book know the latter.
func (w *holdWorld) used(r *holdRegion) (n int64) {
	r.log = slices.DeleteFunc(r.log, func(at int64) bool { return at <= w.now-r.book.Terms.Window })
	r.holds = slices.DeleteFunc(r.holds, func(h *timedHold) bool { return h.ends <= w.now })
	r.book.Holds = loan.Holds{}
	for _, h := range r.holds {
		r.book.Holds.Units, r.book.Holds.Until = r.book.Holds.Units+h.units, max(r.book.Holds.Until, h.last)
	}
	return int64(len(r.log)) + r.book.Holds.Units
}

// sum is what all windows hold, and may hold once lenders have extended what their records say.
func (w *holdWorld) sum() (n int64, all string) {
	may := map[string]int64{}
	for _, r := range w.regions {
		r.book.Ceiling(w.now) // drops what is over
		may[r.book.Region] += r.book.Share - loan.Left(r.book.Lent, 0)
		for _, l := range r.book.Lent {
			may[l.Peer] += l.Left()
		}
	}
	for _, r := range w.regions {
		used := w.used(r)
		n += max(used, may[r.book.Region])
		all += fmt.Sprintf("\n%s: %d used of %d, holds %+v, lent %+v, held %+v", r.book.Region, used, may[r.book.Region], r.book.Holds, r.book.Lent, r.book.Held)
	}
	return n, all
}

func (w *holdWorld) check(r *holdRegion, units int64) {
	if r.book.Room(w.now, w.used(r)) >= units {
		r.log = append(r.log, slices.Repeat([]int64{w.now}, int(units))...)
	}
}

func (w *holdWorld) hold(r *holdRegion, units, ttl int64) *timedHold {
	if r.book.Room(w.now, w.used(r)) < units || units == 0 {
		return nil
	}
	last := w.now + r.book.MaxTTL(w.now)
	h := &timedHold{units: units, ends: min(w.now+ttl, last), last: last}
	r.holds = append(r.holds, h)
	return h
}

func (w *holdWorld) prolong(r *holdRegion, h *timedHold, ttl int64) {
	h.ends = min(w.now+min(ttl, r.book.Terms.MaxTTL), h.last)
}

// pass has one region lend units to another, which gets the grant at once.
func (w *holdWorld) pass(from, to *holdRegion, units int64) loan.ID {
	id := loan.ID{}
	for _, l := range from.book.Lent {
		if l.Peer == to.book.Region {
			id = l.ID
		}
	}
	g, ok := from.book.Lend(w.now, w.used(from), units, loan.Request{From: to.book.Region, Epoch: 7, Time: w.now, ID: id})
	if ok {
		to.book.Accept(w.now, g)
	}
	return g.ID
}

// back has a region return units of a loan.
func (w *holdWorld) back(from, to *holdRegion, id loan.ID, units int64) {
	to.book.Returned(w.now, from.book.Region, id, from.book.Return(w.now, w.used(from), units, to.book.Region, id))
}

func (w *holdWorld) settle(r *holdRegion, h *timedHold) {
	h.ends = w.now
	r.log = append(r.log, slices.Repeat([]int64{w.now}, int(h.units))...)
}

func (w *holdWorld) region(name string) *holdRegion {
	return w.regions[slices.IndexFunc(w.regions, func(r *holdRegion) bool { return r.book.Region == name })]
}
