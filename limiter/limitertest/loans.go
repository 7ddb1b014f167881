package limitertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// RunLoans holds a store to loan.Book: checks, reports, reservations and operations on loans, in batches, while epochs, shares and
// time change. What it answers and what it keeps must be what the Book has.
func RunLoans(t *testing.T, newStore New) {
	kept, now := newStore(t)
	tenants := 0
	rapid.Check(t, func(t *rapid.T) {
		tenants++
		m := newBooked(kept, now, fmt.Sprint("t", tenants), rapid.Bool().Draw(t, "reserves"))
		m.book.Bound.Epoch = uint32(1000 * tenants)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": m.reserve,
			"settle":  m.settle,
			"extend":  m.extend,
			"max ttl": func(t *rapid.T) {
				if m.maxTTL > 0 {
					m.maxTTL = rapid.SampledFrom(maxTTLs).Draw(t, "of reservations")
					m.per(m.limits.Limits[0].Window)
				}
			},
			"wait":  m.wait,
			"check": m.check,
			"op":    m.ops,
			"epoch": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "per") == 0 {
					m.per(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 20 * time.Minute}).Draw(t, "window"))
				}
				m.book.SinceUS = m.us
				if m.book.Bound.Epoch++; rapid.Bool().Draw(t, "lost") {
					m.book.BurntUntilUS = m.us + m.book.Terms.Keep()
				}
			},
			"drift": func(t *rapid.T) { m.book.FastPPM = rapid.SampledFrom([]int64{0, 1, 20_000}).Draw(t, "ppm") },
			"burnt": m.burnt,
			"cycle": m.cycle,
			"rests": m.rests,
			"back":  m.cameBack,
			"fence": m.outside,
			"share": func(t *rapid.T) { m.book.Share = rapid.Int64Range(0, 9).Draw(t, "share") },
			"reset": func(t *rapid.T) {
				if err := kept.ResetAll(context.Background(), m.tenant, 0); err != nil {
					t.Fatal(err)
				}
				m.log, m.holds = nil, nil
			},
			"": m.same,
		})
		slices.Sort(m.names)
		if n := len(slices.Compact(slices.Clone(m.names))); n != len(m.names) {
			t.Fatalf("of %d loans only %d have a name of their own", len(m.names), n)
		}
	})
}

// booked is a store beside the Book and the log that it should keep.
type booked struct {
	store  store.Store
	now    func(us int64)
	tenant string
	limits *Question
	us     int64
	book   *loan.Book
	log    []int64  // a stamp for each unit
	names  []string // of the loans that were granted
	maxTTL time.Duration
	holds  []bookedHold // not settled
	made   int64        // reservations so far
	final  int64        // when the last of them ends at the latest
}

// bookedHold is a reservation that was not settled.
type bookedHold struct {
	id, units, ends, last int64
	epoch                 uint32
}

var maxTTLs = []time.Duration{time.Second, 4 * time.Second, 30 * time.Second}

func newBooked(s store.Store, now func(us int64), tenant string, reserves bool) *booked {
	m := &booked{
		store: s, now: now, tenant: tenant, us: Epoch + 260_197,
		book: &loan.Book{Bound: quota.Bound{Epoch: 7, Share: 5}},
	}
	if reserves {
		m.maxTTL = maxTTLs[1]
	}
	m.per(time.Second)
	return m
}

// per has the limit have another window.
func (m *booked) per(window time.Duration) {
	l := &quota.Limit{Name: "g", Units: 5, Window: window, Scope: quota.ScopeGlobal, MaxOvershoot: quota.MaxOvershoot, HeldFor: m.maxTTL}
	if m.maxTTL > 0 {
		l.Counts = quota.CountsTokens
	}
	m.limits = Ask(l, &quota.Limit{Name: "wide", Units: 1000, Window: time.Hour, Counts: l.Counts})
	m.book.Terms = loan.TermsOfLimit(l)
}

func (m *booked) wait(t *rapid.T) {
	terms := m.book.Terms
	m.us += rapid.OneOf(rapid.Int64Range(1, 300_000), rapid.SampledFrom([]int64{terms.Window, terms.Length, 10 * terms.Length, terms.Keep()})).Draw(t, "µs")
}

// used is what the window and open reservations hold, and has the book know of the latter.
func (m *booked) used() int64 {
	m.book.Holds = loan.Holds{}
	if held := m.held(); held > 0 {
		m.book.Holds = loan.Holds{Units: held, Until: max(m.us, m.final)}
	}
	return m.logged() + m.book.Holds.Units
}

func (m *booked) held() (n int64) {
	for _, h := range m.holds {
		if h.ends > m.us {
			n += h.units
		}
	}
	return n
}

func (m *booked) logged() (n int64) {
	from := m.book.CountsFrom(m.us)
	for _, at := range m.log {
		if at > m.us-m.book.WindowUS(m.limits.Limits[m.limits.places[0]]) && at >= from {
			n++
		}
	}
	return n
}

// bounds is what calls are given.
func (m *booked) bounds() []quota.Bound {
	return []quota.Bound{m.book.Bound}
}

// check has one to three calls of the tenant decided. A ceiling that is lower than the bound binds instead of it.
func (m *booked) check(t *rapid.T) {
	var calls []store.Call
	for range rapid.IntRange(1, 3).Draw(t, "batch") {
		op := rapid.SampledFrom([]store.Op{store.OpCheck, store.OpCheck, store.OpPeek, store.OpReport}).Draw(t, "op")
		ceiling := rapid.SampledFrom([]int64{55, 55, 3}).Draw(t, "ceiling")
		c := m.limits.Call(m.tenant, op, rapid.SampledFrom([]int64{1, 1, 1, 2}).Draw(t, "cost"), []int64{ceiling, 1000})
		c.Bounds = m.bounds()
		calls = append(calls, c)
	}
	m.now(m.us)
	for i, v := range decide(m.store, calls...) {
		c, bound := &calls[i], m.book.Room(m.us, 0)
		ceiling, used := min(c.Ceilings[m.limits.places[0]], bound), m.used()
		want, over := byte(store.Admitted), int64(0)
		switch {
		case c.Op == store.OpReport:
			over = min(c.Cost, max(0, used+c.Cost-ceiling))
		case used+c.Cost > ceiling:
			want, over = store.Denied, max(0, min(m.logged(), 5)-(ceiling-m.held()))
		}
		left := max(0, ceiling-used)
		if c.Op != store.OpPeek && want == store.Admitted {
			left = max(0, left-c.Cost)
			m.log = append(m.log, slices.Repeat([]int64{m.us}, int(c.Cost))...)
		}
		got := fmt.Sprintf("%c", v.Outcome)
		if len(v.Limits) > 0 {
			l := v.Limits[m.limits.places[0]]
			got = fmt.Sprintf("%c %d of %d, %d over", v.Outcome, l.Remaining, l.Bounded, l.Over)
		}
		if w := fmt.Sprintf("%c %d of %d, %d over", want, left, bound, over); got != w || v.Err != nil {
			t.Fatalf("%c %d with %d used: store %s (%v), book %s", c.Op, c.Cost, used, got, v.Err, w)
		}
	}
}

// ask has one call about a reservation decided.
func (m *booked) ask(t *rapid.T, op store.Op, id, cost, ttl int64) store.Verdict {
	c := m.limits.Call(m.tenant, op, cost, []int64{55, 1000})
	c.Bounds, c.Hold = m.bounds(), store.Hold{ID: id, TTLUS: ttl, KeepUS: 1 << 50, GoneUS: m.us + 1}
	m.now(m.us)
	v, err := DecideOne(m.store, c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// ttl draws how long a reservation is to last.
func (m *booked) ttl(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{1, m.book.Terms.MaxTTL / 2, m.book.Terms.MaxTTL}).Draw(t, "ttl")
}

// reserve holds units, and so long that each loan allows it.
func (m *booked) reserve(t *rapid.T) {
	if m.maxTTL == 0 {
		return
	}
	m.made++
	h := bookedHold{id: m.made, units: rapid.Int64Range(1, 3).Draw(t, "units"), epoch: m.book.Bound.Epoch}
	ttl := m.ttl(t)
	room := m.book.Room(m.us, m.used())
	h.last = m.us + m.book.MaxTTL(m.us)
	h.ends = min(m.us+ttl, h.last)
	v := m.ask(t, store.OpReserve, h.id, h.units, ttl)
	want := "d 0"
	if h.units <= room {
		want = fmt.Sprint("a ", h.ends)
		if m.held() == 0 {
			m.final = 0
		}
		m.holds, m.final = append(m.holds, h), max(m.final, h.last)
	}
	if got := fmt.Sprintf("%c %d", v.Outcome, v.Hold.ExpiresUS); got != want {
		t.Fatalf("a reserve of %d for %d µs with room for %d: store %s, book %s", h.units, ttl, room, got, want)
	}
}

// settle charges what a reservation has used: it is released if its hold is open and of this epoch.
func (m *booked) settle(t *rapid.T) {
	if len(m.holds) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.holds)-1).Draw(t, "reservation")
	h := m.holds[i]
	m.holds = slices.Delete(m.holds, i, i+1)
	cost := rapid.Int64Range(0, h.units+1).Draw(t, "used")
	ceiling := min(55, m.book.Room(m.us, 0))
	want := fmt.Sprintf("s %v %d over", h.ends > m.us && h.epoch == m.book.Bound.Epoch, min(cost, max(0, m.used()+cost-ceiling)))
	m.log = append(m.log, slices.Repeat([]int64{m.us}, int(cost))...)
	v := m.ask(t, store.OpSettle, h.id, cost, 0)
	if got := fmt.Sprintf("%c %v %d over", v.Outcome, v.Hold.Released, v.Limits[m.limits.places[0]].Over); got != want {
		t.Fatalf("%d of %+v at %d in epoch %d: store %s, book %s", cost, h, m.us, m.book.Bound.Epoch, got, want)
	}
}

// extend has a reservation last longer, but not beyond what was allowed when it was made.
func (m *booked) extend(t *rapid.T) {
	if len(m.holds) == 0 {
		return
	}
	h, want := &m.holds[rapid.IntRange(0, len(m.holds)-1).Draw(t, "reservation")], "g 0"
	ttl := m.ttl(t)
	if h.ends > m.us {
		h.ends = m.us + min(ttl, h.last-m.us)
		want = fmt.Sprint("a ", h.ends)
	}
	v := m.ask(t, store.OpExtend, h.id, 0, ttl)
	if got := fmt.Sprintf("%c %d", v.Outcome, v.Hold.ExpiresUS); got != want {
		t.Fatalf("%+v for %d at %d: store %s, book %s", h, ttl, m.us, got, want)
	}
}

// ops has one to three operations carried out.
func (m *booked) ops(t *rapid.T) {
	peer := rapid.SampledFrom([]string{"b", "eu-west"})
	named := func(loans []loan.Loan) loan.ID {
		ids := []loan.ID{{}, {Epoch: 7, Stamp: 3}}
		for _, l := range loans {
			ids = append(ids, l.ID)
		}
		return rapid.SampledFrom(ids).Draw(t, "id")
	}
	m.book.Ceiling(m.us)
	var ops []store.LoanOp
	var want []store.LoanResult
	used := m.used()
	for range rapid.IntRange(1, 3).Draw(t, "ops") {
		o := store.LoanOp{Kind: rapid.SampledFrom([]store.LoanKind{store.LoanLend, store.LoanAccept, store.LoanReturn, store.LoanReturned, store.LoanRecall}).Draw(t, "kind")}
		o.Units = rapid.Int64Range(0, 6).Draw(t, "units")
		var r store.LoanResult
		switch o.Kind {
		case store.LoanLend:
			o.Request = loan.Request{From: peer.Draw(t, "peer"), Epoch: 9, Time: 44, ID: named(m.book.Lent)}
			if r.Grant, _ = m.book.Lend(m.us, used, o.Units, o.Request); r.Grant.New {
				m.names = append(m.names, fmt.Sprint(r.Grant.ID))
			}
		case store.LoanAccept:
			o.Grant = loan.Grant{
				From: peer.Draw(t, "peer"), ID: named(m.book.Held), Units: o.Units + 1, New: rapid.Bool().Draw(t, "new"),
				Epoch: m.book.Bound.Epoch - rapid.SampledFrom([]uint32{0, 0, 0, 1}).Draw(t, "behind"),
				Time:  m.us - rapid.Int64Range(-1, m.book.Terms.Length+1).Draw(t, "age"), MaxTTL: m.allows(t),
			}
			r.Changed = m.book.Accept(m.us, o.Grant)
		case store.LoanReturn:
			o.Peer, o.ID = peer.Draw(t, "peer"), named(m.book.Held)
			r.Back = m.book.Return(m.us, used, o.Units, o.Peer, o.ID)
		case store.LoanReturned:
			o.Peer, o.ID = peer.Draw(t, "peer"), named(m.book.Lent)
			m.book.Returned(m.us, o.Peer, o.ID, o.Units)
		case store.LoanRecall:
			o.Until = m.us + rapid.Int64Range(0, 1_000_000).Draw(t, "µs")
			m.book.SetRecall(m.us, o.Units, o.Until)
		}
		ops, want = append(ops, o), append(want, r)
	}
	got := m.loans(t, ops...)
	if g, w := fmt.Sprintf("%+v", got.Results), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%+v:\nstore %s\nbook  %s", ops, g, w)
	}
}

// allows draws the max_ttl of a lender.
func (m *booked) allows(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{m.book.Terms.MaxTTL, m.book.Terms.MaxTTL / 2, 500_000, 0}).Draw(t, "max_ttl")
}

// cycle has the region borrow and return all, once or twice, and waits for as long as that is then remembered, or not quite.
func (m *booked) cycle(t *rapid.T) {
	length := m.book.Terms.Length
	for range rapid.IntRange(1, 2).Draw(t, "loans") {
		g := loan.Grant{From: "b", ID: loan.ID{Epoch: 8, Stamp: m.us}, Units: 4, New: true, Epoch: m.book.Bound.Epoch, Time: m.us, MaxTTL: m.book.Terms.MaxTTL}
		m.book.Accept(m.us, g)
		m.book.Return(m.us, m.used(), 4, g.From, g.ID)
		m.loans(t, store.LoanOp{Kind: store.LoanAccept, Grant: g}, store.LoanOp{Kind: store.LoanReturn, Units: 4, Peer: g.From, ID: g.ID})
		m.us += length + rapid.Int64Range(0, 1).Draw(t, "later")
	}
	m.us += 9*length + rapid.Int64Range(-2, 2).Draw(t, "µs")
	m.loans(t)
}

// rests has reservations rest on loans of regions with other max_ttl, one after the other, and then units asked for.
func (m *booked) rests(t *rapid.T) {
	for range rapid.IntRange(1, 2).Draw(t, "reservations") {
		m.reserve(t)
		g := loan.Grant{From: "b", ID: loan.ID{Epoch: 8, Stamp: m.us}, Units: 4, New: true, Epoch: m.book.Bound.Epoch, Time: m.us, MaxTTL: m.allows(t)}
		m.book.Accept(m.us, g)
		m.loans(t, store.LoanOp{Kind: store.LoanAccept, Grant: g})
		m.us += rapid.Int64Range(0, 2).Draw(t, "µs")
	}
	o := store.LoanOp{Kind: store.LoanLend, Units: 6, Request: loan.Request{From: "eu-west", Epoch: 9, Time: 44}}
	m.book.Ceiling(m.us)
	if g, lent := m.book.Lend(m.us, m.used(), o.Units, o.Request); lent {
		m.names = append(m.names, fmt.Sprint(g.ID))
	}
	m.loans(t, o)
}

// cameBack has all of a loan to a peer come back, and then another max_ttl, and waits for as long as the record stays, or not quite.
func (m *booked) cameBack(t *rapid.T) {
	o := store.LoanOp{Kind: store.LoanLend, Units: 1, Request: loan.Request{From: "b", Epoch: 9, Time: 44}}
	m.book.Ceiling(m.us)
	g, lent := m.book.Lend(m.us, m.used(), o.Units, o.Request)
	if lent {
		m.names = append(m.names, fmt.Sprint(g.ID))
	}
	if !lent || m.maxTTL == 0 {
		m.loans(t, o)
		return
	}
	m.book.Returned(m.us, "b", g.ID, g.Units)
	m.loans(t, o, store.LoanOp{Kind: store.LoanReturned, Units: g.Units, Peer: "b", ID: g.ID})
	m.maxTTL = rapid.SampledFrom(maxTTLs).Draw(t, "of reservations")
	m.per(m.limits.Limits[m.limits.places[0]].Window)
	m.us += rapid.Int64Range(0, m.book.Terms.Length+m.book.Terms.Slack).Draw(t, "µs")
	m.loans(t)
}

// burnt has the region lose its data, and return some of what it is then lent, which is all that it has.
func (m *booked) burnt(t *rapid.T) {
	m.book.Bound.Epoch, m.book.BurntUntilUS, m.book.SinceUS = m.book.Bound.Epoch+1, m.us+m.book.Terms.Keep(), m.us
	g := loan.Grant{From: "b", ID: loan.ID{Epoch: 9, Stamp: m.us}, Units: 4, New: true, Epoch: m.book.Bound.Epoch, Time: m.us, MaxTTL: m.book.Terms.MaxTTL}
	m.book.Accept(m.us, g)
	m.book.Return(m.us, m.used(), 3, g.From, g.ID)
	m.loans(t, store.LoanOp{Kind: store.LoanAccept, Grant: g}, store.LoanOp{Kind: store.LoanReturn, Units: 3, Peer: g.From, ID: g.ID})
}

// outside has a call carried out before or after its fence: it changes nothing.
func (m *booked) outside(t *rapid.T) {
	c := m.loansCall(store.LoanOp{Kind: store.LoanLend, Units: 1, Request: loan.Request{From: "b", Epoch: 9, Time: 44}})
	c.Bounds[0].FromUS, c.Bounds[0].ToUS = m.us+1, m.us+2
	if rapid.Bool().Draw(t, "after") {
		c.Bounds[0].FromUS, c.Bounds[0].ToUS = m.us-2, m.us-1
	}
	m.now(m.us)
	if v, err := DecideOne(m.store, c); !errors.Is(err, store.ErrPartition) {
		t.Fatalf("a loan outside the fence of its call: %+v, %v", v, err)
	}
}

// loans runs operations, and compares what is then kept.
func (m *booked) loans(t *rapid.T, ops ...store.LoanOp) *store.Loans {
	m.now(m.us)
	v, err := DecideOne(m.store, m.loansCall(ops...))
	if err != nil || v.Loans == nil {
		t.Fatalf("%+v: %v, %v", ops, v, err)
	}
	m.book.Ceiling(m.us)
	text := func(s *loan.State) string {
		until := int64(0)
		if s.Recall > 0 {
			until = s.RecallUntil
		}
		return fmt.Sprintf("%d lent %v held %v recall %d until %d", s.Epoch, s.Lent, s.Held, s.Recall, until)
	}
	if g, w := text(&v.Loans.State), text(&m.book.State); g != w || v.Loans.Used != m.used() {
		t.Fatalf("after %+v:\nstore %d used, %s\nbook  %d used, %s", ops, v.Loans.Used, g, m.used(), w)
	}
	return v.Loans
}

func (m *booked) loansCall(ops ...store.LoanOp) store.Call {
	c := Ask(m.limits.Limits[m.limits.places[0]]).Call(m.tenant, store.OpLoans, 0, nil)
	c.Bounds, c.Loans = m.bounds(), ops
	return c
}

// same compares what is kept. The peek brings it to this moment, as any check does.
func (m *booked) same(t *rapid.T) {
	c := m.limits.Call(m.tenant, store.OpPeek, 1, nil)
	c.Bounds = m.bounds()
	m.now(m.us)
	v, err := DecideOne(m.store, c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := v.Limits[m.limits.places[0]].Bounded, m.book.Room(m.us, 0); got != want {
		t.Fatalf("store %d under the bound, book %d", got, want)
	}
	m.loans(t)
}
