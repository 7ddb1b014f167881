package loansim

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// Periodic is a world of a limit with a calendar, small enough to visit every state of it: the last moment of one period and the
// first of the next, which the clock of each region shows by itself. Units count in the period that is shown when they are admitted.
type Periodic struct {
	Shares  []int64
	Steps   int  // how often the clock of each region is set back over the end at most; it goes on by itself
	Unseen  bool // a new epoch does not begin then: the step is too small to be noticed
	Losses  int  // how often the store of each region is rolled back at most, to where it was saved once, or was empty
	Epochs  int  // how many epochs begin for each region at most in which nothing is lost
	Holds   bool // reservations, which may be settled in another period
	Flights int  // messages that may be in flight at once
	Mutant  string
	Most    int // states after which Visit gives up; 0 for never
}

// PeriodMutants names each rule of periods that Visit can leave out.
var PeriodMutants = map[string]string{
	"accept-any":   "a grant of any period is accepted",
	"answer-any":   "a request of any period is answered, out of the one that counts",
	"use-any":      "a loan is used in any period",
	"return-any":   "of a loan of another period is returned what this one leaves",
	"past":         "a record ends with its period",
	"amnesia":      "a store that lost its data is used at once",
	"no-void":      "what was borrowed survives a loss",
	"late-void":    "what was borrowed survives a loss that another epoch follows",
	"unknown-loss": "a process that does not know of a loss accepts what is void",
	"same-loan":    "a borrower that has lost a loan has the same again",
	"same-returns": "a return of the loan that was lost counts for the next one",
	"hold-on":      "a reservation that may rest on a loan goes on in the next period",
	"hold-used":    "a reservation goes on in a period that was used before it",
	"hold-lent":    "a reservation goes on in a period that was lent before it",
	"hold-back":    "a reservation is settled as one in a period before its own",
}

// The numbers of the two periods, the end of each and what a clock shows in it, µs.
var (
	periodNumbers = [2]int64{10, 11}
	periodEnds    = [2]int64{1_000_000, 2_000_000}
	periodTimes   = [2]int64{999_000, 1_000_000}
)

// periodUnits bounds the count of a loan: units that are lent and returned again and again would make it grow for ever.
const periodUnits = 2

type periodHold struct {
	shows int // the period that it was made in
	ends  bool
	epoch uint32
}

// periodStore is what a store keeps.
type periodStore struct {
	state loan.State
	used  [2]int64
	begun bool // something was charged in the second period
	holds []periodHold
}

type periodRegion struct {
	periodStore
	shows, most   int
	bound, before quota.Bound // before is what a process has that does not know of a loss yet
	saved         periodStore
	saves         int
	steps, losses int
	epochs        int
}

type periodWorld struct {
	regions []periodRegion
	truth   [2]int64
	msgs    []smallMsg
	trace   *step
}

func (s periodStore) clone() periodStore {
	s.state.Lent, s.state.Held, s.holds = slices.Clone(s.state.Lent), slices.Clone(s.state.Held), slices.Clone(s.holds)
	return s
}

func (w *periodWorld) clone(what string, args ...int64) *periodWorld {
	c := &periodWorld{regions: slices.Clone(w.regions), truth: w.truth, msgs: slices.Clone(w.msgs), trace: &step{before: w.trace, what: what}}
	for i := range c.regions {
		c.regions[i].periodStore = c.regions[i].clone()
	}
	copy(c.trace.args[:], args)
	return c
}

func (o Periodic) terms() loan.Terms {
	t := loan.Terms{Window: 1_000_000, Length: 2_000, Past: 3_000_000}
	if o.Holds {
		t.MaxTTL = 5_000
	}
	return t
}

// book is that of a region in the period that its clock shows, by a bound, and what was used and is held there.
func (o Periodic) book(r *periodRegion, i int, bound quota.Bound) (b *loan.Book, now, used int64) {
	n := periodNumbers[r.shows]
	b = &loan.Book{Region: name(i), Terms: o.terms(), Bound: bound.In(n), Begun: r.begun && r.shows == 0}
	b.Period = quota.PeriodUnits{Number: n, End: periodEnds[r.shows]}
	switch b.State = r.clone().state; o.Mutant {
	case "use-any":
		for k := range b.Held {
			b.Held[k].Period = n
		}
	case "no-void":
		b.State.Epoch = max(b.State.Epoch, bound.Epoch)
	case "late-void":
		if bound.Epoch > bound.LostIn {
			b.State.Epoch = max(b.State.Epoch, bound.LostIn)
		}
	}
	for _, h := range r.holds {
		if r.open(h) {
			b.Holds.Units++
		}
	}
	return b, periodTimes[r.shows], r.used[r.shows] + b.Holds.Units
}

func (r *periodRegion) open(h periodHold) bool { return !h.ends || h.shows >= r.shows }

func (r *periodRegion) charge() {
	r.used[r.shows]++
	r.begun = r.begun || r.shows == 1
}

// Visit visits every reachable state, as Small's.
func (o Periodic) Visit() (states int, found *Found, whole bool) {
	first, bound := &periodWorld{}, int64(0)
	for _, s := range o.Shares {
		first.regions = append(first.regions, periodRegion{bound: quota.Bound{Share: s, Epoch: 1}})
		bound += s
	}
	return visit(first, o.Most, o.after, func(w *periodWorld) *Found {
		if max(w.truth[0], w.truth[1]) > bound {
			return &Found{w.trace.list()}
		}
		return nil
	})
}

// after returns what may happen next, one thing each.
func (o Periodic) after(w *periodWorld) (l []*periodWorld) {
	for i := range w.regions {
		r := &w.regions[i]
		b, now, used := o.book(r, i, r.bound)
		if b.Room(now, used) > 0 {
			x := w.clone("%c admits in period %d", letter(i), int64(r.shows))
			x.regions[i].charge()
			x.regions[i].state = b.State
			x.truth[r.shows]++
			l = append(l, x)
			if o.Holds && len(r.holds) < 2 {
				l = append(l, o.reserve(w, b, i))
			}
		}
		for k := range r.holds {
			l = append(l, o.settle(w, i, k))
		}
		if len(w.msgs) < o.Flights {
			l = o.returns(o.lends(l, w, i), w, i)
		}
		l = o.faults(l, w, i)
	}
	for k, m := range w.msgs {
		x := w.clone("message %d is lost", int64(k))
		x.msgs = slices.Delete(x.msgs, k, k+1)
		l = append(l, x, o.receive(w, m, w.regions[m.to].bound, "%c"))
		if before := w.regions[m.to].before; m.isGrant && before.Epoch > 0 {
			l = append(l, o.receive(w, m, before, "a process of %c that knows of no loss"))
		}
	}
	return l
}

// faults has what may happen to a region.
func (o Periodic) faults(l []*periodWorld, w *periodWorld, i int) []*periodWorld {
	r := &w.regions[i]
	if r.shows == 0 {
		x := w.clone("the next period begins for %c", letter(i))
		x.regions[i].shows, x.regions[i].most = 1, 1
		l = append(l, x)
	} else if r.steps < o.Steps {
		x := w.clone("the clock of %c is set back", letter(i))
		y := &x.regions[i]
		if y.shows, y.steps = 0, y.steps+1; !o.Unseen {
			y.bound.Epoch++
		}
		l = append(l, x)
	}
	if r.epochs < o.Epochs {
		x := w.clone("an epoch begins for %c", letter(i))
		x.regions[i].epochs++
		x.regions[i].bound.Epoch++
		l = append(l, x)
	}
	if r.losses < o.Losses {
		if r.saves == 0 {
			x := w.clone("the store of %c is saved", letter(i))
			x.regions[i].saved, x.regions[i].saves = r.clone(), 1
			l = append(l, x)
		}
		x := w.clone("the store of %c is rolled back", letter(i))
		y := &x.regions[i]
		y.periodStore, y.losses, y.before = y.saved.clone(), y.losses+1, y.bound
		y.bound.Epoch++
		y.bound.LostIn = y.bound.Epoch
		if y.bound.BurntThrough = periodNumbers[y.most]; o.Holds {
			y.bound.BurntThrough = periodNumbers[1] // reservations that are lost could have been settled there
		}
		if o.Mutant == "amnesia" {
			y.bound.BurntThrough = 0
		}
		l = append(l, x)
	}
	return l
}

// reserve has region i, whose book has room for it, hold a unit.
func (o Periodic) reserve(w *periodWorld, b *loan.Book, i int) *periodWorld {
	x := w.clone("%c holds a unit in period %d", letter(i), int64(w.regions[i].shows))
	y := &x.regions[i]
	y.state = b.State
	probe := *b
	switch o.Mutant {
	case "hold-on":
		probe.Held = nil
	case "hold-used":
		probe.Begun = false
	case "hold-lent":
		probe.Lent = nil
	}
	ends := probe.MaxTTL(periodTimes[y.shows]) < b.Terms.MaxTTL
	y.holds = append(y.holds, periodHold{y.shows, ends, y.bound.Epoch})
	return x
}

// settle has region i use a unit that it holds. It counts under the bound if it was held there until now.
func (o Periodic) settle(w *periodWorld, i, k int) *periodWorld {
	x := w.clone("%c settles a reservation in period %d", letter(i), int64(w.regions[i].shows))
	y := &x.regions[i]
	h := y.holds[k]
	y.holds = slices.Delete(y.holds, k, k+1)
	if y.charge(); h.epoch == y.bound.Epoch && y.open(h) && (h.shows <= y.shows || o.Mutant == "hold-back") {
		x.truth[y.shows]++
	}
	return x
}

// lends: any request of any epoch so far and of either period may arrive now, whatever loan it names.
func (o Periodic) lends(l []*periodWorld, w *periodWorld, i int) []*periodWorld {
	r := &w.regions[i]
	for j := range w.regions {
		if i == j {
			continue
		}
		ids := []loan.ID{{}}
		for _, lent := range r.state.Lent {
			if lent.Peer == name(j) {
				ids = append(ids, lent.ID)
			}
		}
		for _, id := range ids {
			for epoch := uint32(1); epoch <= w.regions[j].bound.Epoch; epoch++ {
				for shows := 0; shows <= w.regions[j].most; shows++ {
					for n := int64(0); n <= 2; n++ {
						q := loan.Request{From: name(j), Epoch: epoch, Time: periodTimes[shows], ID: id, Period: periodNumbers[shows]}
						if x := o.lend(w, i, j, n, q); x != nil {
							l = append(l, x)
						}
					}
				}
			}
		}
	}
	return l
}

// lend has region i lend exactly n units to region j, or what a mutant makes of it; nil if it does not.
func (o Periodic) lend(w *periodWorld, i, j int, n int64, q loan.Request) *periodWorld {
	x := w.clone("%c lends %d to %c by a request of epoch %d", letter(i), n, letter(j), int64(q.Epoch))
	y := &x.regions[i]
	b, now, used := o.book(y, i, y.bound)
	asked := q
	if o.Mutant == "answer-any" {
		q.Period = b.Period.Number
	}
	if o.Mutant == "same-loan" {
		for k := range b.Lent {
			if b.Lent[k].Peer == q.From && b.Lent[k].Period == q.Period {
				q.Epoch = b.Lent[k].Borrower
			}
		}
	}
	was := loan.Left(b.Lent, q.Period)
	g, ok := b.Lend(now, used, n, q)
	if !ok || loan.Left(b.Lent, q.Period)-was != n || g.Units > periodUnits {
		return nil
	}
	if o.Mutant == "past" {
		for k := range b.Lent {
			b.Lent[k].Until = periodEnds[b.Lent[k].Period-periodNumbers[0]]
		}
	}
	g.Period, g.Epoch = asked.Period, asked.Epoch
	y.state = b.State
	x.msgs = append(x.msgs, smallMsg{from: i, to: j, isGrant: true, grant: g})
	return x
}

func (o Periodic) returns(l []*periodWorld, w *periodWorld, i int) []*periodWorld {
	for _, h := range w.regions[i].state.Held {
		for n := int64(0); n <= h.Left(); n++ {
			x := w.clone("%c returns %d to %c", letter(i), n, int64(h.Peer[0]))
			y := &x.regions[i]
			b, now, used := o.book(y, i, y.bound)
			if o.Mutant == "return-any" {
				for k := range b.Held {
					b.Held[k].Period = b.Period.Number
				}
			}
			if back := b.Return(now, used, n, h.Peer, h.ID); back > 0 && (n == 0 || back == h.Back+n) {
				for k := range b.Held {
					b.Held[k].Period = periodOf(w.regions[i].state.Held, &b.Held[k])
				}
				y.state = b.State
				x.msgs = append(x.msgs, smallMsg{from: i, to: int(h.Peer[0] - 'a'), grant: loan.Grant{ID: h.ID, Units: back}})
				l = append(l, x)
			}
		}
	}
	return l
}

func periodOf(loans []loan.Loan, l *loan.Loan) int64 {
	at, _ := slices.BinarySearchFunc(loans, *l, loan.Compare)
	return loans[at].Period
}

// receive delivers a message to a process that goes by a bound. It may come again.
func (o Periodic) receive(w *periodWorld, m smallMsg, bound quota.Bound, who string) *periodWorld {
	what := who + " receives that %c returned %d"
	if m.isGrant {
		what = who + " receives that %c lent %d"
	}
	x := w.clone(what, letter(m.to), letter(m.from), m.grant.Units)
	y := &x.regions[m.to]
	b, now, _ := o.book(y, m.to, bound)
	g := m.grant
	if !m.isGrant {
		if o.Mutant == "same-returns" {
			for _, l := range b.Lent {
				if l.Peer == name(m.from) {
					g.ID = l.ID
				}
			}
		}
		b.Returned(now, name(m.from), g.ID, g.Units)
	} else {
		switch o.Mutant {
		case "accept-any":
			g.Period = b.Period.Number
		case "unknown-loss":
			if kept := b.State.Epoch; kept > b.Bound.Epoch {
				b.State.Epoch = b.Bound.Epoch
				defer func() { y.state.Epoch = kept }()
			}
		}
		b.Accept(now, g)
	}
	y.state = b.State
	return x
}

// hash is that of the state.
func (w *periodWorld) hash() (h [16]byte) {
	b := make([]byte, 0, 256)
	put := func(v ...int64) {
		for _, n := range v {
			b = binary.AppendVarint(b, n)
		}
	}
	keep := func(s *periodStore) {
		put(int64(s.state.Epoch), s.used[0], s.used[1], int64(bit(s.begun)))
		for _, loans := range [][]loan.Loan{s.state.Lent, s.state.Held} {
			for _, l := range loans {
				put(int64(l.Peer[0]), int64(l.ID.Epoch), l.ID.Stamp, l.Units, l.Back, l.Until, l.Period, int64(l.Borrower), l.Base)
			}
			put(-1)
		}
		for _, h := range s.holds {
			put(int64(h.shows), int64(bit(h.ends)), int64(h.epoch))
		}
		put(-1)
	}
	put(w.truth[0], w.truth[1])
	for i := range w.regions {
		r := &w.regions[i]
		put(int64(r.shows), int64(r.most), int64(r.bound.Epoch), int64(r.bound.LostIn), r.bound.BurntThrough, int64(r.steps), int64(r.losses), int64(r.saves))
		put(int64(r.epochs))
		keep(&r.periodStore)
		keep(&r.saved)
	}
	for _, m := range w.msgs {
		g := &m.grant
		put(int64(m.from), int64(m.to), int64(bit(m.isGrant)), int64(g.ID.Epoch), g.ID.Stamp, g.Units, int64(bit(g.New)), int64(g.Epoch), g.Period, g.Time)
	}
	f := fnv.New128a()
	_, _ = f.Write(b)
	f.Sum(h[:0])
	return h
}

// PeriodicFor returns the world that shows what a mutant breaks.
func PeriodicFor(mutant string) Periodic {
	o := Periodic{Shares: []int64{1, 1}, Flights: 1, Mutant: mutant, Most: 1_000_000}
	switch mutant {
	case "return-any", "past", "use-any", "accept-any", "answer-any":
		o.Steps = 1
	case "amnesia", "no-void", "unknown-loss", "same-loan":
		o.Losses = 1
	case "late-void":
		o.Losses, o.Epochs = 1, 1
	case "same-returns":
		o.Shares, o.Losses, o.Flights = []int64{0, 1}, 1, 2
	case "hold-on", "hold-used", "hold-lent":
		o.Holds, o.Steps = true, 1
	case "hold-back":
		o.Holds, o.Steps, o.Unseen = true, 1, true
	}
	return o
}

// String is what the world has.
func (o Periodic) String() string {
	s := fmt.Sprintf("two periods, shares %v, %d messages at once", o.Shares, o.Flights)
	if o.Steps > 0 {
		s += fmt.Sprintf(", each clock set back %d times", o.Steps)
	}
	if o.Unseen {
		s += " unnoticed"
	}
	if o.Losses > 0 {
		s += fmt.Sprintf(", each store rolled back %d times", o.Losses)
	}
	if o.Epochs > 0 {
		s += fmt.Sprintf(", %d other epochs in each region", o.Epochs)
	}
	if o.Holds {
		s += ", reservations"
	}
	return s
}
