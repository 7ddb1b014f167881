package limitertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// HoldOutlastsLoan has a reservation of 30 s come to rest on a loan of a region with a max_ttl of 1 s, in each way that there is.
// What three regions with five units each have used and may use stays within 15, by a ledger of what they were answered.
func HoldOutlastsLoan(t *testing.T, newStore New) {
	const long, short = 30 * time.Second, time.Second
	s, set := newStore(t)
	for what, play := range map[string]func(w *lenders, a, b, c *lender){
		"its own share is lent": func(w *lenders, a, b, c *lender) {
			w.hold(a, 5, long)
			w.lend(b, a, 5)
			w.lend(a, c, 5)
		},
		"what it rested on is returned": func(w *lenders, a, b, c *lender) {
			w.check(a, 5)
			w.lend(c, a, 5)
			w.us += 500_000
			w.hold(a, 5, long)
			w.lend(b, a, 5)
			w.us += 500_000
			w.lend(a, c, 5) // which the check has freed
			w.giveBack(a, c, 5)
		},
		"what it rested on is returned when it is over": func(w *lenders, a, b, c *lender) {
			w.hold(a, 5, long)
			w.lend(c, a, 5)
			w.hold(a, 5, long)
			w.us += 3_000_000
			w.lend(b, a, 5)
			w.giveBack(a, c, 5)
		},
		"it is extended": func(w *lenders, a, b, c *lender) {
			h := w.hold(a, 5, short)
			w.lend(b, a, 5)
			w.lend(a, c, 5)
			w.us += 999_999
			w.extend(a, h, long)
		},
		"its region is given a shorter max_ttl": func(w *lenders, a, b, c *lender) {
			w.hold(a, 4, long)
			a.takes(short)
			w.lend(b, a, 5)
			w.lend(a, c, 5)
			w.us += 4_000_000
			w.lend(a, c, 0)
		},
	} {
		w := &lenders{t: t, what: what, store: s, set: set, us: Epoch}
		for i, name := range []string{"a", "b", "c"} {
			w.all[i] = &lender{name: name}
			w.all[i].takes(long)
		}
		w.all[1].takes(short)
		play(w, w.all[0], w.all[1], w.all[2])
		for until := w.us + 12_000_000; w.us < until && w.within(); w.us += 1_000_000 {
		}
	}
}

// lenders are regions that share a store, each under a tenant of its own.
type lenders struct {
	t     *testing.T
	what  string
	store store.Store
	set   func(us int64)
	us    int64
	all   [3]*lender
	made  int64 // reservations so far
}

type lender struct {
	name   string
	limits *Question
	log    []int64 // a stamp for each unit
	holds  []*bookedHold
}

// takes has a region go by another max_ttl.
func (r *lender) takes(maxTTL time.Duration) {
	r.limits = Ask(&quota.Limit{
		Name: "g", Units: 15, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict, Counts: quota.CountsTokens, HeldFor: maxTTL,
	})
}

func (w *lenders) ask(r *lender, op store.Op, cost int64, hold store.Hold, ops ...store.LoanOp) store.Verdict {
	w.t.Helper()
	c := r.limits.Call(w.what+" "+r.name, op, cost, []int64{15})
	hold.KeepUS, hold.GoneUS = 1<<50, 1<<52
	c.Bounds, c.Hold, c.Loans = []quota.Bound{{Epoch: 7, Share: 5}}, hold, ops
	w.set(w.us)
	v, err := DecideOne(w.store, c)
	if err != nil {
		w.t.Fatalf("%s: %c of %s: %v", w.what, op, r.name, err)
	}
	return v
}

func (w *lenders) check(r *lender, units int64) {
	if w.ask(r, store.OpCheck, units, store.Hold{}).Outcome == store.Admitted {
		for range units {
			r.log = append(r.log, w.us)
		}
	}
}

func (w *lenders) hold(r *lender, units int64, lasts time.Duration) *bookedHold {
	w.made++
	h := &bookedHold{id: w.made, units: units}
	if v := w.ask(r, store.OpReserve, units, store.Hold{ID: h.id, TTLUS: lasts.Microseconds()}); v.Outcome == store.Admitted {
		h.ends, r.holds = v.Hold.ExpiresUS, append(r.holds, h)
	}
	return h
}

func (w *lenders) extend(r *lender, h *bookedHold, lasts time.Duration) {
	if v := w.ask(r, store.OpExtend, 0, store.Hold{ID: h.id, TTLUS: lasts.Microseconds()}); v.Outcome == store.Admitted {
		h.ends = v.Hold.ExpiresUS
	}
}

// state is what a region has lent and borrowed.
func (w *lenders) state(r *lender) loan.State {
	return w.ask(r, store.OpLoans, 0, store.Hold{}).Loans.State
}

// lend has one region lend units to another, which is granted them at once.
func (w *lenders) lend(from, to *lender, units int64) {
	request := loan.Request{From: to.name, Epoch: 7, Time: w.us}
	for _, l := range w.state(from).Lent {
		if l.Peer == to.name {
			request.ID = l.ID
		}
	}
	g := w.ask(from, store.OpLoans, 0, store.Hold{}, store.LoanOp{Kind: store.LoanLend, Units: units, Request: request}).Loans.Results[0].Grant
	if g.From = from.name; g.ID != (loan.ID{}) {
		w.ask(to, store.OpLoans, 0, store.Hold{}, store.LoanOp{Kind: store.LoanAccept, Grant: g})
	}
}

func (w *lenders) giveBack(from, to *lender, units int64) {
	for _, l := range w.state(from).Held {
		if l.Peer == to.name {
			back := w.ask(from, store.OpLoans, 0, store.Hold{}, store.LoanOp{Kind: store.LoanReturn, Units: units, Peer: to.name, ID: l.ID}).Loans.Results[0].Back
			w.ask(to, store.OpLoans, 0, store.Hold{}, store.LoanOp{Kind: store.LoanReturned, Units: back, Peer: from.name, ID: l.ID})
		}
	}
}

// within adds up what regions have used, and what each may use that has used less, by its share and what the others' records say.
func (w *lenders) within() bool {
	may, all, sum := map[string]int64{}, "", int64(0)
	for _, r := range w.all {
		may[r.name] += 5
		for _, l := range w.state(r).Lent {
			may[r.name] -= l.Left()
			may[l.Peer] += l.Left()
		}
	}
	for _, r := range w.all {
		used := int64(0)
		for _, at := range r.log {
			if at > w.us-1_000_000 {
				used++
			}
		}
		for _, h := range r.holds {
			if h.ends > w.us {
				used += h.units
			}
		}
		sum += max(used, may[r.name])
		all += fmt.Sprintf(", %s has used %d of %d", r.name, used, may[r.name])
	}
	if sum > 15 {
		w.t.Errorf("%s: after %d µs%s: %d of 15", w.what, w.us-Epoch, all, sum)
	}
	return sum <= 15
}
