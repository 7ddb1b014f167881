package loan

import (
	"cmp"
	"slices"

	"github.com/regiond/regiond/quota"
)

// MaxLoans is how many records, and how many loans held, a book has at most. Peers that ask, return and ask again, or
// grant what nobody asked for, make no more.
const MaxLoans = 512

// longest is the longest that a loan may be used, whatever the window.
const longest = 30_000_000

// Terms of a limit's loans, in µs.
type Terms struct {
	Window int64 // W of the limit
	Length int64 // D: how long a loan may be used, from the request that it answers
	Slack  int64 // by how much clocks may step without being noticed, in all
	MaxTTL int64 // how long a reservation holds units at most, which count in a window when it is settled; 0: none does
	// Longest is D of any window that the limit may have had before; 0 means this one's.
	Longest int64
	// Past is of a limit with a calendar: for how long after the end of a period its loans are kept, since a clock that is set back
	// may have the store count in it again; as long as the store keeps what was used in it, µs.
	Past int64
}

// TermsOf returns the terms for a window: loans of W/2, at least 2 s and at most 30 s. Of two clocks each may step
// by 100 ms within the fence of its calls.
func TermsOf(window int64) Terms {
	return Terms{Window: window, Length: min(longest, max(2_000_000, window/2)), Slack: 200_000, Longest: longest}
}

// TermsOfLimit returns the terms of a limit with a bound. What was used and lent in a period of a calendar counts for as long as
// the period lasts.
func TermsOfLimit(l *quota.Limit) Terms {
	if l.Calendar == nil {
		return TermsOf(l.WindowUS()).Holding(l.HeldFor.Microseconds())
	}
	t := TermsOf(l.Calendar.Unit.Longest().Microseconds()).Holding(l.HeldFor.Microseconds())
	t.Past = 2*l.WindowUS() + pastMargin
	return t
}

// pastMargin is beyond the two periods of Terms.Past, of which loans.lua has the same.
const pastMargin = 60_000_000

// Burns returns the last period in which data counted that were lost at a TIME of the store, or that reservations counted in which
// were lost.
func (t Terms) Burns(c *quota.Calendar, lostUS int64) quota.Period {
	return c.At(lostUS + bySlowest(t.MaxTTL) + t.Slack)
}

// Holding returns the terms where reservations last for so long at most, µs.
func (t Terms) Holding(maxTTL int64) Terms {
	t.MaxTTL = maxTTL
	return t
}

// lingers is for how long what was admitted last under a loan counts in a window after the loan is over.
func (t Terms) lingers() int64 { return t.MaxTTL + t.Window }

// Keep is how long a record stands after a grant, and a share is burnt after a loss: until loans are over by any clock, and
// what was used last under them has left the window.
func (t Terms) Keep() int64 {
	return bySlowest(t.Length+t.lingers()) + t.Slack
}

// bySlowest is what the fastest clock shows at most while the slowest shows us: us·(1 + ρ)/(1 − ρ).
func bySlowest(us int64) int64 {
	const million, percent = 1_000_000, 10_000
	fast, slow := int64(million+quota.RatePPM)/percent, int64(million-quota.RatePPM)/percent
	return (us*fast + slow - 1) / slow
}

// KeepAny is Keep for a loan under any window that the limit may have had before.
func (t Terms) KeepAny() int64 { return t.Keep() + bySlowest(max(0, t.Longest-t.Length)) }

// Store is what holds for all partitions of a region's Redis, written by whoever watches its clock and its data.
type Store struct {
	// Epoch is never 0, and larger than each before it. Another one begins when data was lost or rolled back, when the
	// clock stepped, when the region's first process starts (nobody had watched either), on another server, by regions reopen,
	// and when the limit first has a longer window or a max_ttl.
	Epoch uint32
	Since int64 // the clock when the epoch began
	// Lost is the clock when data was lost last or the clock stepped forward, 0 for never; 0 too when what was lost is known and
	// made good.
	Lost int64
	// DataLost is the largest clock by which anything can have counted that was lost last, as Lost; but a step of the clock, by which no
	// period of a calendar begins anew, is none. 0 too once an operator has reopened the region.
	DataLost int64
	// LostIn is the epoch that such a loss has begun last, 0 for none.
	LostIn uint32
	// Unwatched is for how long no process has watched the clock since then: it may have stepped, so that does not count.
	Unwatched int64
	// FastPPM and Drifting are those of a quota.Bound.
	FastPPM  int64
	Drifting bool
}

// ID names a loan for good: the lender's epoch and clock when it was made.
type ID struct {
	Epoch uint32
	Stamp int64
}

func (a ID) compare(b ID) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Stamp, b.Stamp))
}

// Loan is one loan, as its lender or its borrower knows it. Units and Back only grow, and are merged by maximum.
type Loan struct {
	Peer  string // the other region
	ID    ID
	Units int64 // lent so far
	Back  int64 // returned so far; at the lender as far as it was received
	// Until is when it is over: no longer usable at the borrower, who can still return or extend it, and no longer
	// counted at the lender.
	Until int64
	// MaxTTL is how long a reservation may last that rests on the loan, as its lender's record allows for; µs.
	MaxTTL int64
	// Period is the number of the period of a calendar in which alone the loan counts, at the lender and at the borrower; 0 where
	// there is no calendar. Until is then when it is dropped, long after that.
	Period int64
	// Borrower and Base are of a record with a period. Borrower is the epoch of the borrower that the loan was made for, and Base what
	// of Units was lent to earlier epochs of it: they may have used all of that and have lost it, so none of it comes back.
	Borrower uint32
	Base     int64
}

// Left is what has not been returned.
func (l *Loan) Left() int64 { return l.Units - l.Back }

// succeeds reports whether a record has taken in one of the same peer and period.
func (l *Loan) succeeds(o *Loan) bool {
	return l.Peer == o.Peer && l.Period == o.Period && l.ID.compare(o.ID) > 0
}

// Request is what a grant answers. It may be answered more than once.
type Request struct {
	From  string // the borrower
	Epoch uint32 // the borrower's
	Time  int64  // the borrower's clock when it was sent
	ID    ID     // the loan from this lender that the borrower holds, zero for none
	// Period is the number of the period that counts by the borrower's store, 0 without a calendar. A lender in another answers nothing.
	Period int64
}

// Grant is what the lender answers.
type Grant struct {
	From  string // the lender
	ID    ID
	Units int64 // of the loan, in all
	// New says that no earlier grant had this ID. Only such a grant makes a loan: one that extends a loan which
	// ran out, or was lost, would revive units that were returned.
	New   bool
	Epoch uint32 // of the request
	Time  int64  // of the request
	// MaxTTL is the lender's: how long a reservation may last that rests on the loan, µs.
	MaxTTL int64
	Period int64 // of the loan
}

// Book is one region's loans of one partition and limit. The zero State is that of a partition that nobody ever lent.
// All transitions are of one script call each, together with the log: `used` is what the window (now−W, now] of the
// log holds, as far as it counts (quota.Bound.CountsFrom).
type Book struct {
	Region string // whose book it is
	Terms  Terms
	Holds  Holds
	// Period is the one that counts under a limit with a calendar, and used is what was used in it: the loans of others change nothing.
	// It is zero without a calendar.
	//
	//	a lends b 4 in October               a's record of October stands until it is past by a's clock, unless b returns some
	//	b's clock shows November first       the 4 are none of November, and the grant is refused there
	//	b is set back to October             its 4 are there again
	Period quota.PeriodUnits
	// Begun says that a later period has begun and counts for some of the partition: the clock was set back.
	Begun bool
	quota.Bound
	State
}

// Holds is what open reservations hold of the partition, as a part of what is used.
type Holds struct {
	Units int64
	// Until is when the last of them ends at the latest, however often it is extended; µs of the store's clock.
	Until int64
}

// State is what Redis keeps of a Book.
type State struct {
	Epoch uint32 // of the store when this was written last, 0 for never
	Lent  []Loan // sorted by peer and ID, as Held
	Held  []Loan // also those that are over, until they are forgotten
	// Recall is how much admissions leave unused until RecallUntil, so that it can be returned. For utilisation only.
	Recall, RecallUntil int64
}

// Lost reports whether the store, which kept b in this epoch, has lost some of it by now, when it keeps s. A record
// that is missing although its loan may no longer be used may have been returned, whatever max_ttl the process had that dropped it.
func (b *Book) Lost(now int64, s *State) bool {
	lent := func(l *Loan) bool { return b.Terms.Holding(l.MaxTTL).usable(l) > now }
	return lacks(s.Lent, b.Lent, lent) || lacks(s.Held, b.Held, func(l *Loan) bool { return l.Until > now })
}

func lacks(has, had []Loan, needs func(*Loan) bool) bool {
	return slices.ContainsFunc(had, func(l Loan) bool {
		i, found := slices.BinarySearchFunc(has, l, Compare)
		if !found {
			return needs(&l) && !slices.ContainsFunc(has, func(o Loan) bool { return l.Period != 0 && o.succeeds(&l) })
		}
		h := &has[i]
		return h.Units < l.Units || h.Back < l.Back || h.Until < l.Until
	})
}

// Borrows reports whether there are loans held, in the period that counts if there is a calendar.
func (b *Book) Borrows() bool {
	return slices.ContainsFunc(b.Held, func(l Loan) bool { return l.Period == b.Period.Number })
}

// Empty reports whether the region may forget the partition.
func (s *State) Empty() bool { return len(s.Lent) == 0 && len(s.Held) == 0 }

// Borrowed is what may be used of loans held, in a period if it is not 0.
func (s *State) Borrowed(now, period int64) (n int64) {
	for i := range s.Held {
		if l := &s.Held[i]; l.usable(now, period) {
			n += l.Left()
		}
	}
	return n
}

// usable reports whether a loan held may be used at now, in a period if it is not 0.
func (l *Loan) usable(now, period int64) bool { return l.Until > now && l.Period == period }

// MaxTTL is how long a reservation may last that is made at now: as long as each loan allows that it may rest on. One that may rest
// on a loan of a period ends with that: its settle would count in the next one, in which nothing was lent for it. So does one that is
// made after a later period has begun: what was used and lent in that knows nothing of it.
func (b *Book) MaxTTL(now int64) int64 {
	least := b.Terms.MaxTTL
	ends := b.Begun || slices.ContainsFunc(b.Lent, func(l Loan) bool { return l.Period > b.Period.Number })
	for i := range b.Held {
		if l := &b.Held[i]; l.usable(now, b.Period.Number) && l.Left() > 0 {
			least, ends = min(least, l.MaxTTL), ends || l.Period != 0
		}
	}
	if ends {
		least = min(least, b.Period.End-now)
	}
	return least
}

// forgotten is when a loan held is dropped: when what was used under it has left the window. One of which all was
// returned goes sooner if its lender, which gives the next one another ID, has lent since: till then it may be cut off, and the
// return is sent again.
func (t Terms) forgotten(l *Loan, held []Loan) int64 {
	if l.Period != 0 {
		return l.Until
	}
	later := func(o Loan) bool { return o.Peer == l.Peer && o.Until-t.Length > l.Until }
	if l.Left() == 0 && slices.ContainsFunc(held, later) {
		return l.Until + min(t.lingers(), 10*t.Length)
	}
	return l.Until + t.lingers()
}

// usable is until when a grant of a loan to a peer may be accepted, or later. The last may have been made under a shorter
// max_ttl than the loan's longest, and max_ttl may have become longer since.
func (t Terms) usable(l *Loan) int64 {
	if l.Period != 0 {
		return l.Until
	}
	return l.Until - t.Holding(min(t.MaxTTL, l.MaxTTL)).lingers()
}

// settle drops what is over. In a new epoch loans held are void, and records stand for as long as any loan made before
// it can matter: longer than Keep if the window was longer then. A record of which all was returned stays a while too, so
// that its ID is not used again while the grant may be accepted.
//
// Loans of a period end by its number, which no step of a clock changes. So those held are void only if data were lost since the book
// was written: what was returned of them, or used, may be among that.
func (b *Book) settle(now int64) {
	switch {
	case b.Period.Number != 0:
		if b.State.Epoch < b.LostIn {
			b.Held = nil
		}
		b.State.Epoch = max(b.State.Epoch, b.Bound.Epoch)
	case b.State.Epoch != b.Bound.Epoch:
		b.Held = nil
		for i := range b.Lent {
			l := &b.Lent[i]
			terms := b.Terms.Holding(max(b.Terms.MaxTTL, l.MaxTTL))
			l.Until = min(max(l.Until, now+terms.Keep()), now+terms.KeepAny())
		}
		b.State.Epoch, b.Recall = b.Bound.Epoch, 0
	}
	ended := func(l Loan) bool { return l.Until <= now || l.Left() == 0 && b.Terms.usable(&l) <= now }
	b.Lent = slices.DeleteFunc(b.Lent, ended)
	held := slices.Clone(b.Held)
	b.Held = slices.DeleteFunc(b.Held, func(l Loan) bool { return b.Terms.forgotten(&l, held) <= now })
	if b.RecallUntil <= now {
		b.Recall = 0
	}
}

// burnt reports whether loans and usage of which the data is lost may still matter.
func (b *Book) burnt(now int64) bool { return now < b.BurntUntilUS }

// own is what the region has without loans held. Of a burnt share nothing: what was lent of it by this book is a part of that.
func (b *Book) own(now int64) int64 {
	if b.burnt(now) {
		return 0
	}
	return b.Share - Left(b.Lent, b.Period.Number)
}

// Left is what has not been returned of loans, in a period if it is not 0.
func Left(loans []Loan, period int64) (n int64) {
	for i := range loans {
		if loans[i].Period == period {
			n += loans[i].Left()
		}
	}
	return n
}

// Ceiling is C: how much the region's window may hold at now.
func (b *Book) Ceiling(now int64) int64 {
	b.settle(now)
	return max(0, b.own(now)+b.Borrowed(now, b.Period.Number))
}

// Room is the largest cost that may be admitted.
func (b *Book) Room(now, used int64) int64 { return max(0, b.Ceiling(now)-b.Recall-used) }

// Free is how much of the own share may be lent: never what is used, never what was borrowed, since a loan could then
// outlast the one that it rests on, and never what reservations need that outlast loans.
func (b *Book) Free(now, used int64) int64 {
	c := b.Ceiling(now)
	return max(0, min(c-used, b.own(now), b.unheld(now, b.Holds.Until)))
}

// unheld is what reservations leave, until then, of the own share and of loans on which one may last for as long. A reservation
// covers no more than that: a loan that allows less may have come after it.
func (b *Book) unheld(now, until int64) int64 {
	n := b.own(now) - b.Holds.Units
	for i := range b.Held {
		if l := &b.Held[i]; l.usable(now, b.Period.Number) && (l.Period != 0 || l.Until+l.MaxTTL >= until) {
			n += l.Left()
		}
	}
	return n
}

// Slack is how much of loans held may be returned: what the window could hold and does not.
func (b *Book) Slack(now, used int64) int64 { return b.Ceiling(now) - used }

// free is how much of a loan held may be returned. One that is over counts for itself alone: of two, the record of
// one is over before that of the other, which stands for what was used then. What reservations need after its record is not
// its.
func (b *Book) free(now, used int64, l *Loan) int64 {
	n := min(b.own(now)+b.Borrowed(now, b.Period.Number)-used, b.unheld(now, min(b.Holds.Until, l.Until+l.MaxTTL)))
	if l.Until <= now {
		n += l.Left()
	}
	return max(0, min(l.Left(), n))
}

// Lend answers a request with up to units more, and extends the loan that it names. It reports false when there is
// nothing to say: no such loan, and nothing to lend.
func (b *Book) Lend(now, used, units int64, r Request) (Grant, bool) {
	if units = max(0, min(units, b.Free(now, used))); b.burnt(now) || r.Period != b.Period.Number {
		return Grant{}, false
	}
	l := find(b.Lent, r.From, r.ID)
	if r.Period != 0 {
		l = b.lentIn(r.From, r.Period)
	}
	isNew := l == nil
	switch {
	case isNew && (units == 0 || len(b.Lent) >= MaxLoans):
		return Grant{}, false
	case isNew:
		l = insert(&b.Lent, Loan{Peer: r.From, ID: b.newID(now)})
		if r.Period != 0 {
			l.Period, l.Borrower = r.Period, r.Epoch
		}
	case r.Period != 0:
		if l, isNew = b.regrant(now, units, l, r); l == nil {
			return Grant{}, false
		}
	case Left(b.Lent, 0) > b.Share: // the share has become smaller: what is lent beyond it has to end
		return Grant{}, false
	}
	l.Units += units
	l.Until, l.MaxTTL = max(l.Until, b.until(now)), max(l.MaxTTL, b.Terms.MaxTTL)
	return Grant{
		From: b.Region, ID: l.ID, Units: l.Units - l.Base, New: isNew, Epoch: r.Epoch, Time: r.Time, MaxTTL: b.Terms.MaxTTL, Period: r.Period,
	}, true
}

// regrant is the record of a period that a request may grow, and whether the grant makes a loan; nil: none. A loan of a period lives
// as long as that, so grants that were lost come with the next one:
//
//	the borrower names the loan         it grows
//	it does not, in the epoch that the
//	loan was made for                   the same grows and the grant makes it, since what the borrower accepts in an epoch it keeps
//	it does not, in a later one         it has lost the loan: what was lent stays lent, and a new ID keeps its returns apart
//	it does not, in an earlier one      nothing
func (b *Book) regrant(now, units int64, l *Loan, r Request) (_ *Loan, makes bool) {
	switch {
	case l.ID == r.ID:
		return l, false
	case l.Borrower == r.Epoch:
		return l, true
	case l.Borrower > r.Epoch || units == 0:
		return nil, false
	}
	next := *l
	next.ID, next.Units, next.Back, next.Base, next.Borrower = b.newID(now), l.Left(), 0, l.Left(), r.Epoch
	b.Lent = slices.DeleteFunc(b.Lent, func(o Loan) bool { return o.Peer == next.Peer && o.Period == next.Period })
	return insert(&b.Lent, next), true
}

// newID is one that no loan of the book has.
func (b *Book) newID(now int64) ID {
	id := ID{b.State.Epoch, now}
	for i := range b.Lent { // the clock may have stood still, or gone back a little
		if b.Lent[i].ID.Epoch == id.Epoch {
			id.Stamp = max(id.Stamp, b.Lent[i].ID.Stamp+1)
		}
	}
	return id
}

// until is Until of a record that is made or extended now, and of a loan of a period.
func (b *Book) until(now int64) int64 {
	if b.Period.Number != 0 {
		return b.Period.End + b.Terms.Past
	}
	return now + b.Terms.Keep()
}

// lentIn is the record of what was lent to a peer in a period, of which there is one at most; nil: none.
func (b *Book) lentIn(peer string, period int64) *Loan {
	if i := slices.IndexFunc(b.Lent, func(l Loan) bool { return l.Peer == peer && l.Period == period }); i >= 0 {
		return &b.Lent[i]
	}
	return nil
}

// Accept takes a grant. The request was sent before it was granted, so a loan ends here before its record does there,
// whatever the clocks show. One of a lender that knows of no reservations is refused where there are some, and one of another period
// than counts here. So is any while a process does not know of the store's epoch yet: what a loss has voided may come again.
// It reports whether anything changed.
func (b *Book) Accept(now int64, g Grant) bool {
	b.settle(now)
	until := g.Time + b.Terms.Length
	if b.Period.Number != 0 {
		until = b.until(now)
	}
	known := g.Epoch == b.Bound.Epoch && g.Epoch == b.State.Epoch && g.Period == b.Period.Number
	if !known || g.Time > now || until <= now || g.MaxTTL == 0 && b.Terms.MaxTTL > 0 {
		return false
	}
	l := find(b.Held, g.From, g.ID)
	if l == nil {
		if !g.New || len(b.Held) >= MaxLoans {
			return false
		}
		l = insert(&b.Held, Loan{Peer: g.From, ID: g.ID, Period: g.Period})
	}
	changed := g.Units > l.Units || until > l.Until
	if l.Units = max(l.Units, g.Units); until > l.Until {
		l.Until, l.MaxTTL = until, g.MaxTTL
	}
	return changed
}

// Return gives up to units of a loan back, as far as they are not in use, and returns how much of it was given back
// so far, which is what the lender has to be sent. Of a loan of another period than counts nothing more is: what was used of it
// is not known.
func (b *Book) Return(now, used, units int64, lender string, id ID) (back int64) {
	b.settle(now)
	l := find(b.Held, lender, id)
	switch {
	case l == nil:
		return 0
	case l.Period == b.Period.Number:
		l.Back += min(units, b.free(now, used, l))
	}
	return l.Back
}

// Returned takes note of what a borrower gave back. The units may be used at once.
func (b *Book) Returned(now int64, borrower string, id ID, back int64) {
	b.settle(now)
	if l := find(b.Lent, borrower, id); l != nil {
		l.Back = max(l.Back, min(back, l.Units-l.Base))
	}
}

// SetRecall has admissions leave units unused until then; in a period none come free.
func (b *Book) SetRecall(now, units, until int64) {
	if b.settle(now); b.Period.Number == 0 {
		b.Recall, b.RecallUntil = units, until
	}
}

// find returns the loan from or to a peer with an ID, nil for none.
func find(loans []Loan, peer string, id ID) *Loan {
	for i := range loans { // those of a message may have any order
		if l := &loans[i]; l.Peer == peer && l.ID == id {
			return l
		}
	}
	return nil
}

// insert keeps loans sorted, and returns the new one.
func insert(loans *[]Loan, l Loan) *Loan {
	i, _ := slices.BinarySearchFunc(*loans, l, Compare)
	*loans = slices.Insert(*loans, i, l)
	return &(*loans)[i]
}

// Compare orders loans by peer and ID, as a State has them.
func Compare(a, b Loan) int {
	return cmp.Or(cmp.Compare(a.Peer, b.Peer), a.ID.compare(b.ID))
}
