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

// BoundOfPeriods holds the share of a region in a period of a calendar to be that, and nothing while it is burnt. The period
// that counts decides whether it is: a clock that is set back over its beginning finds the one before burnt still.
func BoundOfPeriods(t *testing.T, newStore New) {
	s, now := newStore(t)
	limit := boundedCalendar(10)
	hour := limit.Calendar.At(Epoch)
	q := Ask(limit)
	bound := quota.Bound{Share: 4, Epoch: 7, BurntThrough: hour.Number, BurntUntilUS: hour.End, SinceUS: Epoch}
	for _, row := range []struct {
		what    string
		op      store.Op
		us      int64
		bound   quota.Bound
		cost    int64
		outcome byte
		bounded int64
	}{
		{"nothing is burnt", store.OpCheck, Epoch, quota.Bound{Share: 4, Epoch: 7}, 4, store.Admitted, 4},
		{"the share is used", store.OpCheck, Epoch, quota.Bound{Share: 4, Epoch: 7}, 1, store.Denied, 4},
		{"the share has become larger", store.OpCheck, Epoch, quota.Bound{Share: 5, Epoch: 7}, 1, store.Admitted, 5},
		{"burnt", store.OpCheck, Epoch, bound, 1, store.Denied, 0},
		{"what is reported counts all the same", store.OpReport, Epoch, bound, 2, store.Admitted, 0},
		{"the last microsecond", store.OpCheck, hour.End - 1, bound, 1, store.Denied, 0},
		{"the next period", store.OpCheck, hour.End, bound, 3, store.Admitted, 4},
		{"set back over its beginning", store.OpCheck, hour.End - 1, bound, 1, store.Denied, 0},
		{"and on again", store.OpCheck, hour.End, bound, 2, store.Denied, 4},
		{"the epoch is not known", store.OpCheck, hour.End, quota.Bound{Share: 4}, 1, store.Denied, 0},
		{"the fence is left", store.OpCheck, hour.End, quota.Bound{Share: 4, Epoch: 7, FromUS: Epoch, ToUS: hour.End - 1}, 1, store.Denied, 0},
		{"the rest of it", store.OpCheck, hour.End, bound, 1, store.Admitted, 4},
	} {
		now(row.us)
		c := q.Call("acme", row.op, row.cost, nil)
		c.Bounds = []quota.Bound{row.bound}
		v, err := DecideOne(s, c)
		if err != nil || v.Outcome != row.outcome || v.Limits[0].Bounded != row.bounded {
			t.Errorf("%s: %+v, %v", row.what, v, err)
		}
	}
}

func boundedCalendar(units int64) *quota.Limit {
	l := calendarLimit("g", units, "hour", 0)
	l.Scope, l.MaxOvershoot = quota.ScopeGlobal, quota.Strict
	return l
}

// RunPeriodBounds has three regions, each with a store of its own, admit and lend under one bound at random, and holds that in every
// period all together admit no more than it. Clocks are apart and are set over beginnings of periods either way; stores lose what they
// hold, which burns the share; messages come late, twice, in any order or not at all; reservations last over the end of a period.
func RunPeriodBounds(t *testing.T, newStore New) {
	var regions [3]*periodRegion
	for i := range regions {
		regions[i] = &periodRegion{name: fmt.Sprint("r", i)}
		regions[i].store, regions[i].now = newStore(t)
	}
	worlds, full, beyond := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		worlds++
		w := newPeriodWorld(t, regions[:], worlds)
		for range rapid.IntRange(100, 300).Draw(t, "steps") {
			w.step(t)
		}
		full, beyond = full+w.full, beyond+w.beyond
	})
	t.Logf("%d worlds, in which a period was used up %d times and a region used %d times what was lent to it", worlds, full, beyond)
	if full < worlds/20 || beyond < worlds/5 {
		t.Error("too little was admitted to show anything")
	}
}

// periodRegion is a region: its store, its clock and what its processes know.
type periodRegion struct {
	name    string
	store   store.Store
	now     func(us int64)
	us      int64
	most    int64 // the largest TIME since the store held anything
	tenant  string
	bound   quota.Bound
	periods quota.Periods
	holds   []int64     // ids of reservations
	held    []loan.Loan // as last read
	lent    []loan.Loan
}

type periodWorld struct {
	regions  []*periodRegion
	q        *Question
	limit    *quota.Limit
	admitted map[int64]int64 // by the number of the period
	messages []func(t *rapid.T)
	id       int64 // of the next reservation
	full     int
	beyond   int // how often a region had used more than its share
}

func newPeriodWorld(t *rapid.T, regions []*periodRegion, n int) *periodWorld {
	const minute = int64(60_000_000)
	w := &periodWorld{regions: regions, limit: boundedCalendar(12), admitted: map[int64]int64{}, id: int64(1000 * n)}
	if rapid.Bool().Draw(t, "reservations") {
		w.limit.Counts, w.limit.HeldFor = quota.CountsTokens, time.Minute
	}
	w.q = Ask(w.limit)
	begin := w.limit.Calendar.At(Epoch).End - 5*minute
	for i, r := range regions {
		us := begin + rapid.Int64Range(-5*minute, 5*minute).Draw(t, "apart")
		*r = periodRegion{name: r.name, store: r.store, now: r.now, us: us, most: us, tenant: fmt.Sprint("t", n, "-", i)}
		r.bound = quota.Bound{Share: []int64{7, 3, 2}[i], Epoch: uint32(1000 * n)}
	}
	return w
}

func (w *periodWorld) step(t *rapid.T) {
	const minute = int64(60_000_000)
	r := rapid.SampledFrom(w.regions).Draw(t, "region")
	switch kind := rapid.IntRange(0, 33).Draw(t, "kind"); {
	case kind == 0 && rapid.IntRange(0, 3).Draw(t, "lost") == 0:
		w.lose(r)
	case kind == 1:
		r.us += rapid.Int64Range(-10*minute, 10*minute).Draw(t, "step")
		r.bound.Epoch++
	case kind < 5:
		r.us += rapid.Int64Range(0, 2*minute).Draw(t, "wait")
	case kind < 8 && w.limit.HeldFor > 0:
		w.id++
		w.ask(t, r, store.OpReserve, w.cost(t), store.Hold{ID: w.id, TTLUS: w.limit.HeldFor.Microseconds(), KeepUS: 1e9})
	case kind < 11 && len(r.holds) > 0:
		id := r.holds[0]
		r.holds = r.holds[1:]
		w.ask(t, r, store.OpSettle, 1, store.Hold{ID: id, KeepUS: 1e9})
	case kind < 17:
		w.ask(t, r, store.OpCheck, w.cost(t), store.Hold{})
	case kind < 21:
		w.want(t, r)
	case kind < 26:
		w.arrive(t)
	case kind < 28:
		w.giveBack(t, r)
	case kind < 30:
		for range 12 {
			w.ask(t, r, store.OpCheck, 1, store.Hold{})
		}
	default: // one asks, and has the answer at once
		w.want(t, r)
		w.arrive(t)
		w.arrive(t)
	}
	r.most = max(r.most, r.us)
}

func (w *periodWorld) cost(t *rapid.T) int64 { return rapid.Int64Range(1, 4).Draw(t, "cost") }

// lose has a region's store lose all. The processes know the largest TIME of it.
func (w *periodWorld) lose(r *periodRegion) {
	const hour = 3_600_000_000
	last := loan.TermsOfLimit(w.limit).Burns(w.limit.Calendar, max(r.us, min(r.most, r.us+hour)))
	w.id++
	*r = periodRegion{name: r.name, store: r.store, now: r.now, us: r.us, most: r.us, tenant: fmt.Sprint(r.tenant, "-", w.id), bound: r.bound}
	r.bound.BurntThrough, r.bound.BurntUntilUS, r.bound.SinceUS = max(r.bound.BurntThrough, last.Number), last.End, r.us
	r.bound.Epoch++
	r.bound.LostIn = r.bound.Epoch
}

// count is the period that counts in a region, to be charged n units.
func (w *periodWorld) count(r *periodRegion, n int64) int64 {
	now := w.limit.Calendar.At(r.us)
	p, older := r.periods.At(r.us, now, w.limit.Calendar.Next(now))
	if n > 0 {
		p.Count(older).Add(n)
		r.periods = p
	}
	if p.Count(older).Units > r.bound.Share {
		w.beyond += int(n)
	}
	return p.Count(older).Number
}

// ask has a region's store decide a call.
func (w *periodWorld) ask(t *rapid.T, r *periodRegion, op store.Op, cost int64, hold store.Hold) {
	c := w.q.Call(r.tenant, op, cost, nil)
	c.Bounds, c.Hold = []quota.Bound{r.bound}, hold
	r.now(r.us)
	v, err := DecideOne(r.store, c)
	switch {
	case err != nil:
		t.Fatal(err)
	case op == store.OpReserve && v.Outcome == store.Admitted:
		r.holds = append(r.holds, hold.ID)
	case v.Outcome == store.Settled && !v.Hold.Released: // it was over, or its epoch was: then it may exceed the bound
		w.count(r, cost)
	case v.Outcome == store.Admitted || v.Outcome == store.Settled:
		units, _ := w.limit.Bound()
		number := w.count(r, cost)
		if w.admitted[number] += cost; w.admitted[number] > units {
			t.Fatalf("%s admits %d in period %d, which makes %d of %d in all regions", r.name, cost, number, w.admitted[number], units)
		}
		if w.admitted[number] == units {
			w.full++
		}
	}
}

// operate has a region's store carry out one operation on loans.
func (w *periodWorld) operate(t *rapid.T, r *periodRegion, o store.LoanOp) store.LoanResult {
	c := w.q.Call(r.tenant, store.OpLoans, 0, nil)
	c.Bounds, c.Loans = []quota.Bound{r.bound}, []store.LoanOp{o}
	r.now(r.us)
	v, err := DecideOne(r.store, c)
	if err != nil {
		t.Fatal(err)
	}
	if number := w.count(r, 0); v.Loans.Period.Number != number {
		t.Fatalf("%s at %d: period %d counts, want %d", r.name, r.us, v.Loans.Period.Number, number)
	}
	if n := len(v.Loans.State.Lent); n > 4*len(w.regions) {
		t.Fatalf("%s has %d records", r.name, n)
	}
	r.held, r.lent = v.Loans.State.Held, v.Loans.State.Lent
	return v.Loans.Results[0]
}

// want asks another region for units, as a planner would, or for any loan and any period at all.
func (w *periodWorld) want(t *rapid.T, r *periodRegion) {
	lender := rapid.SampledFrom(w.regions).Draw(t, "lender")
	if lender == r {
		return
	}
	request := loan.Request{From: r.name, Epoch: r.bound.Epoch, Time: r.us, Period: w.count(r, 0)}
	of := r.held
	if rapid.IntRange(0, 4).Draw(t, "any") == 0 {
		of = lender.lent
		request.Period += rapid.Int64Range(-1, 1).Draw(t, "period")
	}
	for _, l := range of {
		if (l.Peer == lender.name || l.Peer == r.name) && l.Period == request.Period {
			request.ID = l.ID
		}
	}
	o := store.LoanOp{Kind: store.LoanLend, Units: rapid.Int64Range(0, 6).Draw(t, "units"), Request: request}
	w.send(func(t *rapid.T) {
		g := w.operate(t, lender, o).Grant
		if g.Units == 0 {
			return
		}
		g.From = lender.name
		w.send(func(t *rapid.T) { w.operate(t, r, store.LoanOp{Kind: store.LoanAccept, Grant: g}) })
	})
}

// giveBack returns what a region borrows.
func (w *periodWorld) giveBack(t *rapid.T, r *periodRegion) {
	for _, h := range r.held {
		o := store.LoanOp{Kind: store.LoanReturn, Units: rapid.Int64Range(1, 6).Draw(t, "units"), Peer: h.Peer, ID: h.ID}
		back := w.operate(t, r, o).Back
		lender := w.regions[slices.IndexFunc(w.regions, func(o *periodRegion) bool { return o.name == h.Peer })]
		w.send(func(t *rapid.T) {
			w.operate(t, lender, store.LoanOp{Kind: store.LoanReturned, Units: back, Peer: r.name, ID: h.ID})
		})
	}
}

func (w *periodWorld) send(m func(t *rapid.T)) { w.messages = append(w.messages, m) }

// arrive delivers any message; it may come again.
func (w *periodWorld) arrive(t *rapid.T) {
	if len(w.messages) == 0 {
		return
	}
	i := rapid.IntRange(max(0, len(w.messages)-8), len(w.messages)-1).Draw(t, "message")
	m := w.messages[i]
	if rapid.IntRange(0, 4).Draw(t, "again") > 0 {
		w.messages = slices.Delete(w.messages, i, i+1)
	}
	m(t)
}

// LoansOfPeriods holds what a loan of a period is: usable in that alone, there again after a step of the clock, void after a loss of
// the period's data, also for a process that does not know of it yet, and no ground for a reservation that lasts beyond the period.
// One that is settled in an earlier period was not held there.
func LoansOfPeriods(t *testing.T, newStore New) {
	s, now := newStore(t)
	limit := boundedCalendar(10)
	limit.Counts, limit.HeldFor = quota.CountsTokens, time.Minute
	q, hour := Ask(limit), limit.Calendar.At(Epoch)
	bound := quota.Bound{Share: 4, Epoch: 7}
	ask := func(us int64, c store.Call, b quota.Bound) store.Verdict {
		t.Helper()
		now(us)
		c.Bounds = []quota.Bound{b}
		v, err := DecideOne(s, c)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	operate := func(us int64, o store.LoanOp) store.LoanResult {
		t.Helper()
		c := q.Call("acme", store.OpLoans, 0, nil)
		c.Loans = []store.LoanOp{o}
		return ask(us, c, bound).Loans.Results[0]
	}
	grant := loan.Grant{From: "b", ID: loan.ID{Epoch: 9, Stamp: 3}, Units: 5, New: true, Epoch: 7, Time: Epoch, MaxTTL: 60_000_000, Period: hour.Number}
	elsewhere := grant
	elsewhere.ID.Stamp, elsewhere.Period = 4, hour.Number+1
	request := loan.Request{From: "c", Epoch: 3, Time: 1, Period: hour.Number}
	for what, o := range map[string]store.LoanOp{
		"a grant of another period":      {Kind: store.LoanAccept, Grant: elsewhere},
		"a grant without one":            {Kind: store.LoanAccept, Grant: loan.Grant{From: "b", ID: grant.ID, Units: 5, New: true, Epoch: 7, Time: Epoch, MaxTTL: 1}},
		"a request of another period":    {Kind: store.LoanLend, Units: 1, Request: loan.Request{From: "c", Epoch: 3, Time: 1, Period: hour.Number - 1}},
		"one of a version without loans": {Kind: store.LoanLend, Units: 1, Request: loan.Request{From: "c", Epoch: 3, Time: 1}},
	} {
		if r := operate(Epoch, o); r != (store.LoanResult{}) {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if !operate(Epoch, store.LoanOp{Kind: store.LoanAccept, Grant: grant}).Changed {
		t.Error("a grant of the period changes nothing")
	}
	first := operate(Epoch, store.LoanOp{Kind: store.LoanLend, Units: 1, Request: request}).Grant
	again := operate(Epoch, store.LoanOp{Kind: store.LoanLend, Units: 1, Request: request}).Grant
	if again.ID != first.ID || again.Units != 2 || !again.New {
		t.Errorf("a grant that was lost comes with the next one as %+v, after %+v", again, first)
	}
	named := request
	named.ID = first.ID
	if g := operate(Epoch, store.LoanOp{Kind: store.LoanLend, Request: named}).Grant; g.ID != first.ID || g.Units != 2 || g.New {
		t.Errorf("a request that names the loan is answered with %+v, after %+v", g, again)
	}
	later := named
	later.Period++
	if r := operate(hour.End, store.LoanOp{Kind: store.LoanLend, Request: later}); r != (store.LoanResult{}) {
		t.Errorf("a request of the next period that names the loan is answered with %+v", r.Grant)
	}
	if r := operate(hour.End, store.LoanOp{Kind: store.LoanReturn, Units: 5, Peer: "b", ID: grant.ID}); r != (store.LoanResult{}) {
		t.Errorf("a return in the next period: %+v", r)
	}
	request.Epoch++
	if g := operate(Epoch, store.LoanOp{Kind: store.LoanLend, Units: 1, Request: request}).Grant; g.ID == first.ID || g.Units != 1 || !g.New {
		t.Errorf("a borrower that has lost its loan is lent %+v, after %+v", g, again)
	}
	before := request
	before.Epoch--
	if g := operate(Epoch, store.LoanOp{Kind: store.LoanLend, Units: 1, Request: before}).Grant; g.Units != 0 {
		t.Errorf("a request of an earlier epoch is answered with %+v", g)
	}
	if r := operate(Epoch, store.LoanOp{Kind: store.LoanReturned, Units: 2, Peer: "c", ID: first.ID}); r != (store.LoanResult{}) {
		t.Errorf("a return of the lost loan: %+v", r)
	}
	stepped, lost := bound, bound
	stepped.Epoch++
	lost.Epoch, lost.LostIn, lost.BurntThrough, lost.BurntUntilUS, lost.SinceUS = 9, 9, hour.Number, hour.End, Epoch
	for _, row := range []struct {
		what  string
		us    int64
		bound quota.Bound
		want  int64
	}{
		{"4 less 3 lent and 5 borrowed", Epoch, bound, 6},
		{"the last microsecond", hour.End - 1, bound, 6},
		{"the next period", hour.End, bound, 4},
		{"set back over its beginning", hour.End - 1, bound, 6},
		{"another epoch, nothing is lost", Epoch, stepped, 6},
		{"the data are lost", Epoch, lost, 0},
		{"they stay so", Epoch + 1, lost, 0},
		{"the period after the loss", hour.End, lost, 4},
	} {
		if v := ask(row.us, q.Call("acme", store.OpPeek, 1, nil), row.bound); v.Limits[0].Bounded != row.want {
			t.Errorf("%s: %d under the bound, want %d", row.what, v.Limits[0].Bounded, row.want)
		}
	}
	// A store that was rolled back has loans again that were used or returned. Nobody may ask for them before the region is reopened.
	grant.ID.Stamp = 5
	c := q.Call("initech", store.OpLoans, 0, nil)
	c.Loans = []store.LoanOp{{Kind: store.LoanAccept, Grant: grant}}
	ask(Epoch, c, bound)
	reopened := bound
	reopened.Epoch, reopened.LostIn = 10, 9
	for _, b := range []quota.Bound{reopened, reopened} {
		if v := ask(Epoch, q.Call("initech", store.OpPeek, 1, nil), b); v.Limits[0].Bounded != 4 {
			t.Errorf("a region that is reopened has %d under the bound, want its share, 4", v.Limits[0].Bounded)
		}
	}

	accept := q.Call("acme", store.OpLoans, 0, nil)
	accept.Loans = []store.LoanOp{{Kind: store.LoanAccept, Grant: grant}}
	if r := ask(Epoch, accept, bound).Loans.Results[0]; r.Changed {
		t.Error("after a loss a process that does not know of it accepts what was voided")
	}
	if v := ask(Epoch, q.Call("acme", store.OpPeek, 1, nil), lost); v.Limits[0].Bounded != 0 {
		t.Errorf("after a loss %d are under the bound once what was voided has come again", v.Limits[0].Bounded)
	}

	hold := func(tenant string, us int64) int64 {
		c := q.Call(tenant, store.OpReserve, 2, nil)
		c.Hold = store.Hold{ID: us, TTLUS: 60_000_000, KeepUS: 1e9}
		return ask(us, c, bound).Hold.ExpiresUS
	}
	late := hour.End - 10_000_000
	if ends := hold("umbrella", late); ends != late+60_000_000 {
		t.Errorf("a reservation without a loan ends at %d, want %d", ends, late+60_000_000)
	}
	c = q.Call("umbrella", store.OpLoans, 0, nil)
	grant.Time = late
	c.Loans = []store.LoanOp{{Kind: store.LoanAccept, Grant: grant}}
	ask(late, c, bound)
	if ends := hold("umbrella", late+1); ends != hour.End {
		t.Errorf("a reservation that may rest on a loan ends at %d, want the end of the period at %d", ends, hour.End)
	}

	ask(hour.End, q.Call("used", store.OpCheck, 4, nil), bound)
	lend := q.Call("lent", store.OpLoans, 0, nil)
	lend.Loans = []store.LoanOp{{Kind: store.LoanLend, Units: 4, Request: loan.Request{From: "c", Epoch: 3, Time: 1, Period: hour.Number + 1}}}
	ask(hour.End, lend, bound)
	for _, tenant := range []string{"used", "lent"} {
		if ends := hold(tenant, late); ends != hour.End {
			t.Errorf("%s: after a step back from the next period a reservation ends at %d, want the end of its own at %d", tenant, ends, hour.End)
		}
	}

	settle := func(us, id int64) bool {
		c := q.Call("hooli", store.OpSettle, 2, nil)
		c.Hold = store.Hold{ID: id, KeepUS: 1e9}
		return ask(us, c, bound).Hold.Released
	}
	ask(late, q.Call("hooli", store.OpCheck, 4, nil), bound)
	hold("hooli", hour.End)
	if settle(late, hour.End) {
		t.Error("after a step back over the end a reservation of the next period is settled as one of a period that is full")
	}
	if hold("hooli", hour.End+1); !settle(hour.End+2, hour.End+1) {
		t.Error("a reservation that is settled in its period does not count as one")
	}
}

// LoansAfterALoss holds that a loss voids once what was borrowed in a period, in whichever later epoch a partition is asked for again.
// What is borrowed after it survives epochs in which nothing is lost, so that what was used of it leaves the rest.
func LoansAfterALoss(t *testing.T, newStore New) {
	s, now := newStore(t)
	limit := boundedCalendar(12)
	q, hour := Ask(limit), limit.Calendar.At(Epoch)
	before := quota.Bound{Share: 4, Epoch: 7}
	lost := quota.Bound{Share: 4, Epoch: 9, LostIn: 9, BurntThrough: hour.Number, BurntUntilUS: hour.End, SinceUS: Epoch}
	kept, again, reopened := lost, lost, quota.Bound{Share: 4, Epoch: 10, LostIn: 9}
	kept.Epoch, again.Epoch, again.LostIn = 10, 11, 11
	now(Epoch)
	for _, row := range []struct {
		what    string
		tenant  string
		bound   quota.Bound
		lent    int64 // of the loan of this epoch so far; 0: nothing comes
		cost    int64
		outcome byte
		bounded int64
	}{
		{"3 of 5 borrowed are used", "acme", before, 5, 7, store.Admitted, 9},
		{"5 are borrowed of which none is used yet", "rest", before, 5, 0, 0, 9},
		{"5 are borrowed that an operator answers for", "open", before, 5, 0, 0, 9},
		{"a loss voids them", "acme", lost, 0, 1, store.Denied, 0},
		{"8 are borrowed anew", "acme", lost, 8, 1, store.Admitted, 8},
		{"an epoch begins in which nothing is lost", "acme", kept, 0, 0, 0, 8},
		{"the loan grows", "acme", kept, 9, 1, store.Admitted, 9},
		{"all is used", "acme", kept, 0, 1, store.Denied, 9},
		{"what was lost before that epoch is void", "rest", kept, 0, 1, store.Denied, 0},
		{"and once an operator has reopened the region", "open", reopened, 0, 0, 0, 4},
		{"another loss", "acme", again, 0, 1, store.Denied, 0},
	} {
		decide := func(c store.Call) store.Verdict {
			c.Bounds = []quota.Bound{row.bound}
			v, err := DecideOne(s, c)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if row.lent > 0 {
			id := loan.ID{Epoch: 5, Stamp: int64(max(row.bound.LostIn, 1))}
			g := loan.Grant{From: "b", ID: id, Units: row.lent, Epoch: row.bound.Epoch, Time: Epoch, Period: hour.Number}
			g.New = g.Epoch < kept.Epoch
			c := q.Call(row.tenant, store.OpLoans, 0, nil)
			c.Loans = []store.LoanOp{{Kind: store.LoanAccept, Grant: g}}
			decide(c)
		}
		if v := decide(q.Call(row.tenant, store.OpPeek, 1, nil)); v.Limits[0].Bounded != row.bounded {
			t.Errorf("%s: %d under the bound, want %d", row.what, v.Limits[0].Bounded, row.bounded)
		}
		if row.cost > 0 {
			if v := decide(q.Call(row.tenant, store.OpCheck, row.cost, nil)); v.Outcome != row.outcome {
				t.Errorf("%s: %d more are answered %c, want %c", row.what, row.cost, v.Outcome, row.outcome)
			}
		}
	}
}
