package limitertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// RunBounds has three regions, each with a store of its own, check and lend at random under one bound, and holds that
// in every window of true time they admit no more than it. Messages come late, twice, in any order or not at all;
// clocks are apart, drift and step; stores lose all that they hold; shares change.
func RunBounds(t *testing.T, newStore New) {
	var regions [3]bounded
	for i := range regions {
		regions[i].store, regions[i].now = newStore(t)
	}
	worlds, admitted, lent := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		worlds++
		w := newBounds(t, regions, fmt.Sprint("t", worlds))
		for range rapid.IntRange(150, 400).Draw(t, "steps") {
			w.step(t)
		}
		admitted, lent = admitted+len(w.admitted), lent+w.lent
	})
	t.Logf("%d worlds, %d units admitted, %d lent", worlds, admitted, lent)
	if admitted < 20*worlds || lent < 2*worlds {
		t.Error("too little was admitted or lent to show anything")
	}
}

// bounded is a region: its store, its clock, and what its processes know.
type bounded struct {
	store         store.Store
	now           func(us int64)
	name, tenant  string
	offset, drift int64 // µs, millionths
	share         int64
	epoch         uint32
	openFrom      int64
	raises        []raise     // of the share, still to come
	held          []loan.Loan // as last read
}

type raise struct{ at, units int64 }

// bounds is the world.
type bounds struct {
	regions  []*bounded
	question *Question
	terms    loan.Terms
	limit    int64
	us       int64 // true time
	admitted []int64
	messages []func(t *rapid.T) // what happens when it arrives
	losses   int
	lent     int
}

func newBounds(t *rapid.T, regions [3]bounded, tenant string) *bounds {
	const units = 7
	l := &quota.Limit{Name: "g", Units: units, Window: time.Second, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}
	w := &bounds{question: Ask(l), terms: loan.TermsOf(l.WindowUS()), limit: units, us: Epoch}
	for i := range regions {
		r := &regions[i]
		r.name, r.tenant, r.epoch, r.share = fmt.Sprint("r", i), tenant, 1, []int64{2, 3, 2}[i]
		r.offset = rapid.Int64Range(0, 3_600_000_000).Draw(t, "offset")
		r.drift = rapid.Int64Range(-loan.RatePPM, loan.RatePPM).Draw(t, "drift")
		w.regions = append(w.regions, r)
	}
	return w
}

func (w *bounds) clock(r *bounded) int64 {
	passed := w.us - Epoch
	return Epoch + passed + passed*r.drift/1_000_000 + r.offset
}

// ask has a region's store decide a call.
func (w *bounds) ask(t *rapid.T, r *bounded, op store.Op, cost int64, ops ...store.LoanOp) store.Verdict {
	for len(r.raises) > 0 && r.raises[0].at <= w.us {
		r.share, r.raises = r.share+r.raises[0].units, r.raises[1:]
	}
	c := w.question.Call(r.tenant, op, cost, nil)
	c.Bounds, c.Loans = []quota.Bound{{Share: r.share, Epoch: r.epoch, OpenFromUS: r.openFrom}}, ops
	r.now(w.clock(r))
	v, err := DecideOne(r.store, c)
	if err != nil {
		t.Fatal(err)
	}
	if v.Loans != nil {
		r.held = v.Loans.State.Held
	}
	return v
}

func (w *bounds) send(m func(t *rapid.T)) { w.messages = append(w.messages, m) }

func (w *bounds) step(t *rapid.T) {
	r := rapid.SampledFrom(w.regions).Draw(t, "region")
	switch rapid.SampledFrom([]string{
		"check", "check", "check", "check", "check", "check", "want", "want", "want", "arrive", "arrive", "arrive", "arrive",
		"return", "wait", "wait", "wait", "far", "rare",
	}).Draw(t, "step") {
	case "check":
		for range rapid.IntRange(1, 4).Draw(t, "times") {
			w.check(t, r, rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "cost"))
		}
	case "want":
		w.want(t, r)
	case "arrive":
		w.arrive(t)
	case "return":
		for _, h := range r.held {
			o := store.LoanOp{Kind: store.LoanReturn, Units: rapid.Int64Range(1, w.limit).Draw(t, "units"), Peer: h.Peer, ID: h.ID}
			w.sendBack(r, h, w.ask(t, r, store.OpLoans, 0, o).Loans.Results[0].Back)
		}
	case "wait":
		w.us += rapid.OneOf(rapid.Int64Range(0, 100_000), rapid.Int64Range(0, w.terms.Window)).Draw(t, "µs")
	case "far":
		w.us += rapid.SampledFrom([]int64{w.terms.Length, w.terms.Window, w.terms.Keep()}).Draw(t, "µs")
	case "rare":
		if rapid.IntRange(0, 2).Draw(t, "seldom") == 0 {
			w.rare(t, r)
		}
	}
}

func (w *bounds) check(t *rapid.T, r *bounded, cost int64) {
	if v := w.ask(t, r, store.OpCheck, cost); v.Outcome != store.Admitted {
		return
	}
	w.admitted = append(w.admitted, slices.Repeat([]int64{w.us}, int(cost))...)
	least := w.us - w.terms.Window + w.terms.Window*2*loan.RatePPM/1_000_000
	used := int64(0)
	for _, at := range w.admitted {
		if at > least {
			used++
		}
	}
	if used > w.limit {
		t.Fatalf("%s admits %d at %d, which makes %d of %d in one window", r.name, cost, w.us-Epoch, used, w.limit)
	}
}

// want asks another region for units, and for more time.
func (w *bounds) want(t *rapid.T, r *bounded) {
	lender := rapid.SampledFrom(w.regions).Draw(t, "lender")
	if lender == r {
		return
	}
	request, units := loan.Request{From: r.name, Epoch: r.epoch, Time: w.clock(r)}, rapid.Int64Range(0, 4).Draw(t, "units")
	if i := slices.IndexFunc(r.held, func(l loan.Loan) bool { return l.Peer == lender.name }); i >= 0 {
		request.ID = r.held[i].ID
	}
	w.send(func(t *rapid.T) {
		v := w.ask(t, lender, store.OpLoans, 0, store.LoanOp{Kind: store.LoanLend, Units: units, Request: request})
		g := v.Loans.Results[0].Grant
		if g.Units == 0 {
			return
		}
		g.From = lender.name
		w.lent++
		w.send(func(t *rapid.T) { w.ask(t, r, store.OpLoans, 0, store.LoanOp{Kind: store.LoanAccept, Grant: g}) })
	})
}

func (w *bounds) sendBack(r *bounded, h loan.Loan, back int64) {
	lender := w.regions[slices.IndexFunc(w.regions, func(o *bounded) bool { return o.name == h.Peer })]
	w.send(func(t *rapid.T) {
		w.ask(t, lender, store.OpLoans, 0, store.LoanOp{Kind: store.LoanReturned, Units: back, Peer: r.name, ID: h.ID})
	})
}

// arrive delivers any message; it may come again.
func (w *bounds) arrive(t *rapid.T) {
	if len(w.messages) == 0 {
		return
	}
	i := rapid.IntRange(max(0, len(w.messages)-6), len(w.messages)-1).Draw(t, "message")
	m := w.messages[i]
	if rapid.IntRange(0, 4).Draw(t, "again") > 0 {
		w.messages = slices.Delete(w.messages, i, i+1)
	}
	m(t)
}

// rare is what happens to a store, its clock or the topology. A loss and a step forward close the region for as long
// as what came before can matter.
func (w *bounds) rare(t *rapid.T, r *bounded) {
	switch rapid.SampledFrom([]string{"lose", "step", "shares"}).Draw(t, "rare") {
	case "lose":
		w.losses++
		r.tenant, r.held = fmt.Sprint(w.regions[0].tenant, "-", w.losses), nil // under keys that hold nothing
		r.epoch++
		r.openFrom = w.clock(r) + w.terms.Keep()
	case "step":
		by := rapid.Int64Range(-2*w.terms.Window, 2*w.terms.Window).Draw(t, "by")
		r.offset += by
		if r.epoch++; by > 0 || r.openFrom > 0 {
			r.openFrom = w.clock(r) + w.terms.Keep()
		}
	case "shares":
		if to := rapid.SampledFrom(w.regions).Draw(t, "to"); to != r && r.share > 0 {
			r.share--
			to.raises = append(to.raises, raise{w.us + w.terms.Keep() + w.terms.Keep()/500, 1})
		}
	}
}
