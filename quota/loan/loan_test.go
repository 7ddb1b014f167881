package loan_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// twoBooks are of a region that lends and one that borrows; their clocks show other things.
func twoBooks() (lender, borrower *loan.Book) {
	terms := loan.TermsOf(10_000_000)
	lender = &loan.Book{Region: "a", Terms: terms, Bound: quota.Bound{Epoch: 7, Share: 10}}
	borrower = &loan.Book{Region: "b", Terms: terms, Bound: quota.Bound{Epoch: 8, Share: 10}}
	return lender, borrower
}

const clockA, clockB = 1_795_198_405_260_197, 1_700_000_000_000_000

func TestALoanFromBeginningToEnd(t *testing.T) {
	a, b := twoBooks()
	room := func(what string, now, wantA, wantB int64) {
		t.Helper()
		if gotA, gotB := a.Room(clockA+now, 0), b.Room(clockB+now, 0); gotA != wantA || gotB != wantB {
			t.Errorf("%s: room for %d and %d, want %d and %d", what, gotA, gotB, wantA, wantB)
		}
	}
	room("before", 0, 10, 10)
	g, _ := a.Lend(clockA, 2, 100, loan.Request{From: "b", Epoch: 8, Time: clockB})
	room("lent, all but what is used", 0, 2, 10)
	b.Accept(clockB, g)
	room("accepted", 0, 2, 18)
	if back := b.Return(clockB, 15, 8, "a", g.ID); back != 3 {
		t.Errorf("returned %d, want the 3 that are not used", back)
	}
	room("on the way back", 0, 2, 15)
	a.Returned(clockA, "b", g.ID, 3)
	room("returned", 0, 5, 15)

	half := a.Terms.Length / 2
	g, ok := a.Lend(clockA+half, 0, 1, loan.Request{From: "b", Epoch: 8, Time: clockB + half, ID: g.ID})
	if !ok || g.New || g.Units != 9 {
		t.Errorf("extended and grown by 1: %+v", g)
	}
	b.Accept(clockB+half, g)
	room("grown", half, 4, 16)
	room("longer than the first grant", a.Terms.Length+1, 4, 16)
	room("over for the borrower", half+a.Terms.Length, 4, 10)
	room("over for the lender", half+a.Terms.Keep(), 10, 10)
	if !a.Empty() || !b.Empty() {
		t.Errorf("something is left: %+v, %+v", a.State, b.State)
	}
}

// TestOver: a loan that is over is not used. What was not used of it is returned, and what was can be extended, until it
// is out of the window.
func TestOver(t *testing.T) {
	a, b := twoBooks()
	g, _ := a.Lend(clockA, 0, 6, loan.Request{From: "b", Epoch: 8, Time: clockB})
	b.Accept(clockB, g)
	over := b.Terms.Length
	if room, slack := b.Room(clockB+over, 12), b.Slack(clockB+over, 12); room != 0 || slack != -2 {
		t.Errorf("with 12 used: room for %d, slack %d", room, slack)
	}
	back := b.Return(clockB+over, 12, 9, "a", g.ID)
	a.Returned(clockA+over, "b", g.ID, back)
	if back != 4 || a.Room(clockA+over, 0) != 8 {
		t.Errorf("with 2 of 6 borrowed units used %d are returned, and the lender has room for %d", back, a.Room(clockA+over, 0))
	}
	late := over + b.Terms.Window - 1
	g, ok := a.Lend(clockA+late, 0, 0, loan.Request{From: "b", Epoch: 8, Time: clockB + late, ID: g.ID})
	if !ok || g.New || !b.Accept(clockB+late, g) || b.Room(clockB+late, 0) != 12 {
		t.Errorf("extended by %+v there is room for %d, want 10 and the 2 that were not returned", g, b.Room(clockB+late, 0))
	}
	gone := late + b.Terms.Length + b.Terms.Window
	if g, _ = a.Lend(clockA+gone-1, 0, 0, loan.Request{From: "b", Epoch: 8, Time: clockB + gone - 1, ID: g.ID}); b.Accept(clockB+gone, g) {
		t.Errorf("a window after its end %+v extends a loan", g)
	}
}

// TestOverAlone: of two loans that are over, the record of one may be over too. What was used is then the other's, so each is
// returned as if there were no other.
func TestOverAlone(t *testing.T) {
	_, b := twoBooks()
	ids := [2]loan.ID{{Epoch: 7, Stamp: 1}, {Epoch: 7, Stamp: 2}}
	for _, id := range ids {
		b.Accept(clockB, loan.Grant{From: "a", ID: id, Units: 5, New: true, Epoch: 8, Time: clockB})
	}
	for _, id := range ids {
		if back := b.Return(clockB+b.Terms.Length, 13, 5, "a", id); back != 2 {
			t.Errorf("with 13 used of a share of 10, %d of 5 are returned", back)
		}
	}
}

// TestGrantsThatChangeNothing: repeated, late, reordered, of another epoch, from nowhere.
func TestGrantsThatChangeNothing(t *testing.T) {
	a, b := twoBooks()
	first, _ := a.Lend(clockA, 0, 4, loan.Request{From: "b", Epoch: 8, Time: clockB})
	b.Accept(clockB, first)
	second, _ := a.Lend(clockA+1000, 0, 2, loan.Request{From: "b", Epoch: 8, Time: clockB + 1000, ID: first.ID})
	b.Accept(clockB+1000, second)
	before := append([]loan.Loan(nil), b.Held...)
	unknown := second
	unknown.ID.Stamp++
	other := first
	other.ID.Stamp, other.Epoch = 1, 7
	early := first
	early.ID.Stamp, early.Time = 2, clockB+5000
	for what, g := range map[string]loan.Grant{
		"again": second, "an older one": first, "an extension of a loan that is not held": unknown, "of another epoch": other, "from the future": early,
	} {
		if b.Accept(clockB+2000, g) || !cmp.Equal(before, b.Held) {
			t.Errorf("%s: %+v became %+v", what, before, b.Held)
		}
	}
	if late := clockB + 2*b.Terms.Length; b.Accept(late, first) || b.Accept(late, second) {
		t.Error("a loan that ran out came back")
	}
}

// TestNewEpoch: loans held are void, what is lent stands for as long as it can matter, and nothing is admitted after
// a loss until then.
func TestNewEpoch(t *testing.T) {
	a, b := twoBooks()
	g, _ := a.Lend(clockA, 0, 4, loan.Request{From: "b", Epoch: 8, Time: clockB})
	b.Accept(clockB, g)
	b.Bound.Epoch = 9
	if got := b.Room(clockB, 0); got != 10 {
		t.Errorf("the borrower's clock stepped: room for %d, want 10", got)
	}
	a.Bound.Epoch = 6
	back := int64(clockA - 3_600_000_000)
	if got := a.Room(back, 0); got != 6 {
		t.Errorf("the lender's clock stepped back: room for %d, want 6", got)
	}
	if got := a.Room(back+a.Terms.Keep()+26_020_409, 0); got != 10 {
		t.Errorf("when the loans of any window are over: room for %d, want 10", got)
	}
	a.BurntUntilUS = clockA + a.Terms.Keep()
	if got := a.Room(clockA+a.Terms.Keep()-1, 0); got != 0 {
		t.Errorf("after a loss: room for %d, want none", got)
	}
	if _, ok := a.Lend(clockA, 0, 1, loan.Request{From: "b"}); ok {
		t.Error("lent after a loss")
	}
	if got := a.Room(clockA+a.Terms.Keep(), 0); got != 10 {
		t.Errorf("when all is over: room for %d, want 10", got)
	}
}

// TestLost: whatever a store shows of loans later in the same epoch, it has lost something exactly if a loan that is not
// over is missing or less.
func TestLost(t *testing.T) {
	terms := loan.TermsOf(10_000_000)
	had := func(until int64) *loan.Book {
		l := loan.Loan{Peer: "b", ID: loan.ID{Epoch: 7, Stamp: 1}, Units: 5, Back: 2, Until: until}
		return &loan.Book{Terms: terms, State: loan.State{Lent: []loan.Loan{l}, Held: []loan.Loan{l}}}
	}
	const us = 1_000_000
	for _, row := range []struct {
		what    string
		until   int64 // from now
		changes func(s *loan.State)
		lost    bool
	}{
		{"nothing changed", 11 * us, func(*loan.State) {}, false},
		{"all grew", 11 * us, func(s *loan.State) { s.Lent[0].Units, s.Lent[0].Back, s.Lent[0].Until = 9, 9, s.Lent[0].Until+1 }, false},
		{"another loan", 11 * us, func(s *loan.State) {
			s.Lent = append([]loan.Loan{{Peer: "a", ID: loan.ID{Epoch: 7, Stamp: 2}}}, s.Lent...)
		}, false},
		{"no record", 10*us + 1, func(s *loan.State) { s.Lent = nil }, true},
		{"no record, which may have been returned", 10 * us, func(s *loan.State) { s.Lent = nil }, false},
		{"no loan held", 1, func(s *loan.State) { s.Held = nil }, true},
		{"no loan held, which is over", 0, func(s *loan.State) { s.Held = nil }, false},
		{"fewer units lent", 11 * us, func(s *loan.State) { s.Lent[0].Units-- }, true},
		{"less returned", 11 * us, func(s *loan.State) { s.Held[0].Back-- }, true},
		{"an earlier end", 11 * us, func(s *loan.State) { s.Lent[0].Until-- }, true},
	} {
		before, after := had(clockA+row.until), had(clockA+row.until).State
		row.changes(&after)
		if got := before.Lost(clockA, &after); got != row.lost {
			t.Errorf("%s: lost %v", row.what, got)
		}
	}
}

// TestPlan: who runs dry sends a want, who has slack lends, and what is borrowed goes home when its lender asks for it.
func TestPlan(t *testing.T) {
	a, b := twoBooks()
	a.Share, b.Share = 100, 100
	planner := func() *loan.Planner {
		return &loan.Planner{Terms: a.Terms, Bound: 200, Regions: 2, Trip: 100_000, Tick: 50_000}
	}
	pa, pb := planner(), planner()
	half := func() float64 { return 0.5 }
	_, want := pb.Plan(b, clockB, 100, 120, 1, true, half)
	if want == nil || want.Lack <= 0 || want.Urgent <= 0 {
		t.Fatalf("who is denied wants %+v", want)
	}
	pa.Receive(clockA, *want)
	ops, _ := pa.Plan(a, clockA, 0, 0, 0, false, half)
	var lent int64
	for _, o := range ops {
		if o.Kind == loan.OpLend {
			g, _ := a.Lend(clockA, 0, o.Units, o.Want.Request(o.ID))
			lent += o.Units
			b.Accept(clockB, g)
		}
	}
	if lent == 0 || b.Room(clockB, 100) != lent {
		t.Fatalf("an idle region lends %d: %+v", lent, ops)
	}
	now := int64(clockA + 1_000_000)
	_, want = pa.Plan(a, now, a.Ceiling(now), 100, 1, true, half)
	if want == nil || want.Urgent <= 0 {
		t.Fatalf("the lender, who is denied now, wants %+v", want)
	}
	pb.Receive(clockB+1_000_000, *want)
	ops, _ = pb.Plan(b, clockB+1_000_000, 100+lent-1, 50, 1, false, half)
	var back, unused int64
	for _, o := range ops {
		switch o.Kind {
		case loan.OpReturn:
			back += o.Units
		case loan.OpRecall:
			unused += o.Units
		}
	}
	if back != 1 || unused == 0 {
		t.Errorf("the borrower returns %d and leaves %d unused; of what it holds 1 is free: %+v", back, unused, ops)
	}
}

// TestPlanAfterALoss: a region that has lost data borrows beyond what it is known to have used of the period, and nothing if that
// is more than its part of what the others have.
func TestPlanAfterALoss(t *testing.T) {
	half := func() float64 { return 0.5 }
	for _, row := range []struct {
		used    int64
		borrows bool
	}{{0, true}, {20, true}, {49, true}, {50, false}, {90, false}} {
		a, b := twoBooks()
		for _, book := range []*loan.Book{a, b} {
			book.Share, book.Period = 100, quota.PeriodUnits{Number: 7, End: 1 << 60}
		}
		b.BurntUntilUS = math.MaxInt64
		pa := loan.Planner{Terms: a.Terms, Bound: 200, Regions: 2, Trip: 100_000, Tick: 50_000}
		pb := pa
		_, want := pb.Plan(b, clockB, row.used, 120, 1, true, half)
		if want != nil {
			pa.Receive(clockA, *want)
		}
		ops, _ := pa.Plan(a, clockA, 0, 0, 0, false, half)
		for _, o := range ops {
			g, _ := a.Lend(clockA, 0, o.Units, o.Want.Request(o.ID))
			b.Accept(clockB, g)
		}
		if room := b.Room(clockB, row.used); (room > 0) != row.borrows || row.borrows != (len(ops) > 0) {
			t.Errorf("with %d units used before it may admit %d, by %+v", row.used, room, ops)
		}
	}
}

// TestBurnt: a region whose share is burnt has what it holds of loans, lends and extends nothing, and returns what is not used.
// Its records stand. When the burn is over they are what is missing of its share.
func TestBurnt(t *testing.T) {
	_, b := twoBooks()
	was, _ := b.Lend(clockB, 0, 3, loan.Request{From: "c", Epoch: 9, Time: 1})
	b.BurntUntilUS = clockB + b.Terms.Keep() - 1
	id := loan.ID{Epoch: 7, Stamp: 1}
	b.Accept(clockB, loan.Grant{From: "a", ID: id, Units: 4, New: true, Epoch: 8, Time: clockB})
	if room, free, slack := b.Room(clockB, 1), b.Free(clockB, 1), b.Slack(clockB, 1); room != 3 || free != 0 || slack != 3 {
		t.Errorf("with 1 of 4 borrowed units used: room for %d, %d may be lent, %d returned", room, free, slack)
	}
	for _, id := range []loan.ID{{}, was.ID} {
		if g, ok := b.Lend(clockB, 0, 1, loan.Request{From: "c", Epoch: 9, Time: 2, ID: id}); ok {
			t.Errorf("a burnt share is lent: %+v", g)
		}
	}
	if back := b.Return(clockB, 1, 4, "a", id); back != 3 {
		t.Errorf("with 1 used %d of 4 are returned", back)
	}
	if room := b.Room(b.BurntUntilUS, 0); room != 7 {
		t.Errorf("when the burn is over there is room for %d of 10, of which 3 are lent", room)
	}
}

// A record of which all was returned goes as soon as its grant can be accepted no more, and a book is bounded.
func TestRecordsEnd(t *testing.T) {
	lender, _ := twoBooks()
	lender.Terms = loan.TermsOf(3_600_000_000)
	const start = 1_000_000_000
	lend := func(now int64) bool {
		g, ok := lender.Lend(now, 0, 1, loan.Request{From: "b", Epoch: 7, Time: now})
		lender.Returned(now, "b", g.ID, 1)
		return ok
	}
	lent := 0
	for lend(start + int64(lent)) {
		if lent++; lent > loan.MaxLoans {
			t.Fatal("more loans than a book may hold")
		}
	}
	if lent != loan.MaxLoans {
		t.Errorf("%d loans in a book, want %d", lent, loan.MaxLoans)
	}
	if lend(start + lender.Terms.Length) {
		t.Error("an id is forgotten while its grant may still be accepted")
	}
	if later := start + 32_000_000 + lender.Terms.Keep() - lender.Terms.Window - lender.Terms.Length; !lend(later) || len(lender.Lent) != 1 {
		t.Errorf("%d records are left of loans that were returned", len(lender.Lent))
	}
}

// TestKeep: a record outlasts its loan, and all that was used under it and held first, when the lender's clock runs 2 % fast and
// the borrower's 2 % slow.
func TestKeep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := loan.TermsOf(rapid.Int64Range(1_000, 31*86_400_000_000).Draw(t, "window"))
		terms.MaxTTL = rapid.Int64Range(0, 86_400_000_000).Draw(t, "max TTL")
		truth := float64(terms.Length+terms.MaxTTL+terms.Window) / 0.98 // until the borrower's clock shows the end
		if kept, least := terms.Keep(), int64(truth*1.02); kept < least+terms.Slack || kept > least+terms.Slack+2 {
			t.Fatalf("kept %d µs of %d", kept, least)
		}
	})
}

// Of two regions that each hold less than a cost that both are asked for, one leaves the other what that lacks, and
// the other keeps what it has.
func TestOneOfTwoHalvesYields(t *testing.T) {
	now, half := int64(1_000_000_000), func() float64 { return 0.5 }
	books, planners, wants := [2]*loan.Book{}, [2]*loan.Planner{}, [2]*loan.Want{}
	terms := loan.TermsOf(10_000_000)
	for i, name := range []string{"a", "b"} {
		books[i] = &loan.Book{Region: name, Terms: terms, Bound: quota.Bound{Epoch: 1, Share: 20}}
		planners[i] = &loan.Planner{Terms: terms, Bound: 40, Regions: 2, Trip: 50_000, Tick: 10_000}
		_, wants[i] = planners[i].Plan(books[i], now, 0, 25, 25, true, half)
		if wants[i] == nil || wants[i].Urgent < 5 {
			t.Fatalf("%s wants %+v, not the 5 that it lacks of 25", name, wants[i])
		}
	}
	lent := [2]int64{}
	for i := range planners {
		planners[i].Receive(now+1, *wants[1-i])
		ops, _ := planners[i].Plan(books[i], now+1, 0, 0, 0, false, half)
		for _, o := range ops {
			if o.Kind == loan.OpLend {
				lent[i] += o.Units
			}
		}
	}
	if most, least := max(lent[0], lent[1]), min(lent[0], lent[1]); most < 5 || least != 0 {
		t.Errorf("the two lend each other %v; want one to lend 5 or more and the other nothing", lent)
	}
}

// A reservation lasts as long as each loan allows that may be used, by the grant that it goes by: the record of that stands for
// D + W and as much longer.
func TestMaxTTL(t *testing.T) {
	const second = int64(1_000_000)
	terms := loan.TermsOf(10 * second).Holding(60 * second)
	if plain := loan.TermsOf(10 * second); terms.Keep()-plain.Keep() < 60*second || terms.Keep()-plain.Keep() > 63*second {
		t.Errorf("with reservations of a minute a record stands for %d µs, without for %d", terms.Keep(), plain.Keep())
	}
	b := loan.Book{Region: "b", Terms: terms, Bound: quota.Bound{Epoch: 7, Share: 10}}
	lasts := func(when string, now, want int64) {
		t.Helper()
		if got := b.MaxTTL(now); got != want*second {
			t.Errorf("%s a reservation may last %d µs, want %d s", when, got, want)
		}
	}
	now := int64(clockB)
	accept := func(stamp, units, time, maxTTL int64) bool {
		return b.Accept(now, loan.Grant{
			From: "a", ID: loan.ID{Epoch: 3, Stamp: stamp}, Units: units, New: true, Epoch: 7, Time: time, MaxTTL: maxTTL * second,
		})
	}
	lasts("on its own share", now, 60)
	if accept(1, 4, now, 0) {
		t.Error("a loan of a lender that knows of no reservations was accepted")
	}
	accept(1, 4, now-second, 20)
	lasts("on a loan of a lender with 20 s", now, 20)
	accept(1, 4, now-2*second, 5)
	lasts("when an older grant of it comes later", now, 20)
	accept(1, 5, now, 90)
	lasts("when the lender has a longer one", now, 60)
	accept(2, 4, now-second, 30)
	lasts("on another loan with 30 s too", now, 30)
	b.Return(now, 0, 4, "a", loan.ID{Epoch: 3, Stamp: 2})
	lasts("when that is returned", now, 60)
	accept(3, 4, now-second, 10)
	lasts("on one more with 10 s", now, 10)
	lasts("when that is over", now-second+terms.Length, 60)

	// A lender keeps a record for as long as its reservations lasted when it granted, also in an epoch in which they are shorter.
	lender := loan.Book{Region: "a", Terms: terms, Bound: quota.Bound{Epoch: 3, Share: 10}}
	if g, ok := lender.Lend(clockA, 0, 4, loan.Request{From: "b", Epoch: 7, Time: clockB}); !ok || g.MaxTTL != 60*second {
		t.Fatalf("granted %+v", g)
	}
	lender.Terms, lender.Bound.Epoch = terms.Holding(second), 4
	lender.Ceiling(clockA + 5*second)
	if until := lender.Lent[0].Until; until < clockA+5*second+terms.Keep() {
		t.Errorf("in the next epoch it stands until %d µs after the grant, want %d more", until-clockA, terms.Keep())
	}
}
