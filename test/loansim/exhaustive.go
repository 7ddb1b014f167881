package loansim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// Small is a world small enough to visit every state of it. Time goes in ticks of 1,000 µs; a loan is two of them less ten
// microseconds, so a record stands for two ticks and a window.
type Small struct {
	Shares  []int64 // of each region
	Next    []int64 // the shares of the next topology, nil for none
	Smaller []int64 // the shares of a version of a smaller bound, which each region takes and leaves by itself; nil for none
	Loss    bool    // stores lose all they hold
	Steps   bool    // clocks step by a tick either way
	Window  int     // of the limit, in ticks; 0 is 1
	Loans   int     // records from one region to another at once, those returned included; 0 is 1
	Flights int     // messages that may be in flight at once; 0 for any number
	Mutant  string  // the rule that is left out, one of Mutants
	Most    int     // states after which Visit gives up; 0 for never
}

// Mutants names each rule of safety that Visit can leave out, and the faults it takes to show it.
var Mutants = map[string]string{
	"relend":      "borrowed units are lent on",
	"lend-used":   "units in use are lent",
	"return-used": "units in use are returned",
	"short":       "a record ends with its loan, not a window later",
	"add-twice":   "a grant that comes again is added again",
	"receipt":     "a loan is counted from the receipt of its grant",
	"revive":      "an extension makes a loan anew",
	"amnesia":     "a store that lost its data is used at once",
	"stale":       "a grant for a request of an earlier epoch is accepted",
	"no-void":     "loans survive a step of the clock",
	"early-share": "a larger share holds at once",
	"over-share":  "a loan is extended while more than the share is lent",
	"early-cut":   "a smaller bound holds when all have it",
	"over-cut":    "a loan is extended while more than the share of the smaller bound is lent",
}

const tick = 1000

func (o Small) terms() loan.Terms {
	return loan.Terms{Window: int64(o.Window) * tick, Length: 2*tick - 10}
}

type smallMsg struct {
	from, to int
	isGrant  bool
	grant    loan.Grant // also of a return: the ID, and what was returned as Units
}

type smallRegion struct {
	book  loan.Book
	now   int64 // its clock
	log   []int // what the store knows of admissions, by age in ticks
	phase int   // of the change of shares: before, smaller, done; of a version of the bound: larger, smaller
}

type smallWorld struct {
	regions []smallRegion
	terms   loan.Terms
	truth   []int // admissions of all regions, by age in ticks
	msgs    []smallMsg
	agreed  int64 // µs since all have confirmed the new shares, or taken the smaller bound; at most Keep
	trace   *step
}

type step struct {
	before *step
	what   string // a format
	args   [4]int64
}

// Found is a way above the bound.
type Found struct{ Steps []string }

// Visit visits every reachable state, and returns how many there are, or the shortest way above the bound. whole is
// false if it gave up before.
func (o Small) Visit() (states int, found *Found, whole bool) {
	o.Window, o.Loans = max(1, o.Window), max(1, o.Loans)
	first := &smallWorld{terms: o.terms(), truth: make([]int, o.Window)}
	for i, s := range o.Shares {
		r := smallRegion{now: 1_000_000 * int64(i+1), log: make([]int, o.Window)}
		r.book = loan.Book{Region: name(i), Terms: o.terms(), Bound: quota.Bound{Share: s, Epoch: 1}}
		first.regions = append(first.regions, r)
	}
	return visit(first, o.Most, o.after, func(w *smallWorld) *Found {
		if sum(w.truth) > o.bound(w) {
			return &Found{w.trace.list()}
		}
		o.prune(w)
		return nil
	})
}

// visit visits every state that comes after the first, but none twice, until above finds one. above may bring a state in a simpler
// form.
func visit[W interface{ hash() [16]byte }](first W, most int, after func(W) []W, above func(W) *Found) (states int, found *Found, whole bool) {
	seen := map[[16]byte]struct{}{first.hash(): {}}
	level := []W{first}
	for len(level) > 0 {
		var next []W
		for _, w := range level {
			for _, x := range after(w) {
				if found := above(x); found != nil {
					return len(seen), found, true
				}
				h := x.hash()
				if _, ok := seen[h]; !ok {
					seen[h] = struct{}{}
					next = append(next, x)
				}
			}
			if most > 0 && len(seen) > most {
				return len(seen), nil, false
			}
		}
		level = next
	}
	return len(seen), nil, true
}

// bound is B of all versions that matter.
func (o Small) bound(w *smallWorld) (n int64) {
	of := o.Shares
	if o.Smaller != nil && (w.agreed >= w.terms.Keep() || o.Mutant == "early-cut" && w.all(1)) {
		of = o.Smaller
	}
	for _, s := range of {
		n += s
	}
	return n
}

// all reports whether all regions have come so far.
func (w *smallWorld) all(phase int) bool {
	return !slices.ContainsFunc(w.regions, func(r smallRegion) bool { return r.phase < phase })
}

func name(i int) string  { return string(rune('a' + i)) }
func letter(i int) int64 { return int64('a' + i) }

func (s *step) list() (l []string) {
	for ; s != nil; s = s.before {
		args := []any{s.args[0], s.args[1], s.args[2], s.args[3]}
		l = append(l, fmt.Sprintf(s.what, args[:strings.Count(s.what, "%")]...))
	}
	slices.Reverse(l)
	return l
}

func (w *smallWorld) clone(what string, args ...int64) *smallWorld {
	c := &smallWorld{terms: w.terms, truth: slices.Clone(w.truth), msgs: slices.Clone(w.msgs), agreed: w.agreed, regions: slices.Clone(w.regions)}
	for i := range c.regions {
		r := &c.regions[i]
		r.log, r.book.Lent, r.book.Held = slices.Clone(r.log), slices.Clone(r.book.Lent), slices.Clone(r.book.Held)
	}
	c.trace = &step{before: w.trace, what: what}
	copy(c.trace.args[:], args)
	return c
}

func (r *smallRegion) used() int64 { return sum(r.log) }

func sum(by []int) (n int64) {
	for _, u := range by {
		n += int64(u)
	}
	return n
}

// after returns what may happen next, one thing each.
func (o Small) after(w *smallWorld) (l []*smallWorld) {
	add := func(x *smallWorld) { l = append(l, x) }
	room := o.Flights == 0 || len(w.msgs) < o.Flights
	add(w.tick())
	for i := range w.regions {
		r := &w.regions[i]
		probe := r.book
		probe.Lent, probe.Held = slices.Clone(probe.Lent), slices.Clone(probe.Held)
		if probe.Room(r.now, r.used()) > 0 {
			x := w.clone("%c admits", letter(i))
			x.regions[i].log[0]++
			x.truth[0]++
			add(x)
		}
		if room {
			l = o.lends(l, w, i)
			for _, h := range probe.Held {
				for n := int64(1); n <= h.Left(); n++ {
					x := w.clone("%c returns %d to %c", letter(i), n, int64(h.Peer[0]))
					y := &x.regions[i]
					used := y.used()
					if o.Mutant == "return-used" {
						used = 0
					}
					if back := y.book.Return(y.now, used, n, h.Peer, h.ID); back == h.Back+n {
						x.msgs = append(x.msgs, smallMsg{from: i, to: int(h.Peer[0] - 'a'), grant: loan.Grant{ID: h.ID, Units: back}})
						add(x)
					}
				}
			}
		}
		if o.Loss {
			x := w.clone("%c loses its data", letter(i))
			y := &x.regions[i]
			y.log, y.book.State = make([]int, o.Window), loan.State{}
			y.book.Bound.Epoch++
			if y.book.BurntUntilUS = y.now + y.book.Terms.Keep(); o.Mutant == "amnesia" {
				y.book.BurntUntilUS = 0
			}
			add(x)
		}
		if o.Steps {
			for _, by := range []int64{-tick, tick} {
				x := w.clone("the clock of %c steps by %d", letter(i), by)
				y := &x.regions[i]
				if y.now += by; o.Mutant != "no-void" {
					y.book.Bound.Epoch++
				}
				if y.book.BurntUntilUS > 0 {
					y.book.BurntUntilUS = y.now + y.book.Terms.Keep()
				}
				add(x)
			}
		}
		if o.Next != nil {
			l = o.shares(l, w, i)
		}
		if o.Smaller != nil {
			l = append(l, o.version(w, i))
		}
	}
	for k := range w.msgs {
		add(o.receive(w, k))
		if o.Flights > 0 {
			x := w.clone("message %d is lost", int64(k))
			x.msgs = slices.Delete(x.msgs, k, k+1)
			add(x)
		}
	}
	return l
}

func (w *smallWorld) tick() *smallWorld {
	x := w.clone("tick")
	x.truth = aged(x.truth)
	for i := range x.regions {
		r := &x.regions[i]
		r.now += tick
		r.log = aged(r.log)
	}
	if w.all(1) {
		x.agreed = min(x.agreed+tick, w.terms.Keep())
	}
	return x
}

func aged(by []int) []int { return append([]int{0}, by[:len(by)-1]...) }

// lends: any request that a borrower may have sent since the last tick but one may arrive now, whatever loan it names.
func (o Small) lends(l []*smallWorld, w *smallWorld, i int) []*smallWorld {
	for j := range w.regions {
		if i == j {
			continue
		}
		var ids []loan.ID
		for _, r := range w.regions[i].book.Lent {
			if r.Peer == name(j) {
				ids = append(ids, r.ID)
			}
		}
		if len(ids) < o.Loans {
			ids = append(ids, loan.ID{})
		}
		for _, id := range ids {
			for age := int64(0); age <= 1; age++ {
				for n := int64(0); n <= 3; n++ {
					x := w.clone("%c lends %d to %c by a request %d ticks old", letter(i), n, letter(j), age)
					b := &x.regions[j]
					if g, ok := o.lend(&x.regions[i], n, loan.Request{From: name(j), Epoch: b.book.Bound.Epoch, Time: b.now - age*tick, ID: id}); ok {
						x.msgs = append(x.msgs, smallMsg{from: i, to: j, isGrant: true, grant: g})
						l = append(l, x)
					}
				}
			}
		}
	}
	return l
}

// lend is Book.Lend of exactly n units, or the mutant's.
func (o Small) lend(r *smallRegion, n int64, q loan.Request) (loan.Grant, bool) {
	used, share := r.used(), r.book.Share
	was := lentTo(r.book.Lent, q.ID)
	switch o.Mutant {
	case "relend": // as much as the ceiling allows
		r.book.Share, used = share+9, used+9
	case "lend-used":
		used = 0
	case "over-share", "over-cut":
		if n == 0 {
			r.book.Share += 9
		}
	}
	g, ok := r.book.Lend(r.now, used, n, q)
	r.book.Share = share
	if !ok || g.Units-was != n {
		return g, false
	}
	switch o.Mutant {
	case "short":
		for k := range r.book.Lent {
			if r.book.Lent[k].ID == g.ID {
				r.book.Lent[k].Until = r.now + o.terms().Length
			}
		}
	case "revive":
		g.New = true
	}
	return g, true
}

func lentTo(loans []loan.Loan, id loan.ID) int64 {
	for _, l := range loans {
		if l.ID == id {
			return l.Units
		}
	}
	return 0
}

// receive delivers message k, which may come again.
func (o Small) receive(w *smallWorld, k int) *smallWorld {
	m := w.msgs[k]
	what := "%c receives that %c returned %d"
	if m.isGrant {
		what = "%c receives that %c lent %d"
	}
	x := w.clone(what, letter(m.to), letter(m.from), m.grant.Units)
	r := &x.regions[m.to]
	if !m.isGrant {
		r.book.Returned(r.now, name(m.from), m.grant.ID, m.grant.Units)
		return x
	}
	g := m.grant
	switch o.Mutant {
	case "receipt":
		g.Time = r.now
	case "stale":
		g.Epoch = r.book.Bound.Epoch
	case "add-twice":
		if g.New {
			g.Units += lentTo(r.book.Held, g.ID)
		}
	}
	r.book.Accept(r.now, g)
	return x
}

// shares moves region i on in a change of shares: a smaller one holds at once, a larger one when all have confirmed
// the new ones for as long as a record stands.
func (o Small) shares(l []*smallWorld, w *smallWorld, i int) []*smallWorld {
	switch r := &w.regions[i]; {
	case r.phase == 0:
		x := w.clone("%c takes the smaller share", letter(i))
		x.regions[i].phase = 1
		if x.regions[i].book.Share = min(o.Shares[i], o.Next[i]); o.Mutant == "early-share" {
			x.regions[i].book.Share = o.Next[i]
		}
		l = append(l, x)
	case r.phase == 1 && w.agreed >= w.terms.Keep():
		x := w.clone("%c takes the new share", letter(i))
		x.regions[i].phase, x.regions[i].book.Share = 2, o.Next[i]
		l = append(l, x)
	}
	return l
}

// version has region i take the other version of the bound.
func (o Small) version(w *smallWorld, i int) *smallWorld {
	x := w.clone("%c has the smaller bound", letter(i))
	if r := &x.regions[i]; r.phase == 0 {
		r.phase, r.book.Share = 1, o.Smaller[i]
		return x
	}
	x.trace.what, x.agreed = "%c has the larger bound", 0
	x.regions[i].phase, x.regions[i].book.Share = 0, o.Shares[i]
	return x
}

// SmallFor returns the small world that shows what a mutant breaks.
func SmallFor(mutant string) Small {
	o := Small{Shares: []int64{2, 1}, Flights: 2, Mutant: mutant, Most: 2_000_000}
	switch mutant {
	case "relend":
		o.Shares, o.Flights = []int64{1, 1}, 1
	case "amnesia":
		o.Loss = true
	case "short":
		o.Window, o.Flights = 2, 1
	case "no-void", "stale":
		o.Steps, o.Flights = true, 1
	case "early-share", "over-share":
		o.Shares, o.Next, o.Flights = []int64{1, 1}, []int64{0, 2}, 1
	case "early-cut", "over-cut":
		o.Shares, o.Smaller, o.Flights = []int64{1, 1}, []int64{1, 0}, 1
	}
	return o
}

// String is what the world has.
func (o Small) String() string {
	s := fmt.Sprintf("shares %v, %d messages at once", o.Shares, o.Flights)
	if o.Window > 1 {
		s += fmt.Sprintf(", windows of %d ticks", o.Window)
	}
	if o.Loans > 1 {
		s += fmt.Sprintf(", %d loans to a region", o.Loans)
	}
	if o.Loss {
		s += ", stores that lose their data"
	}
	if o.Steps {
		s += ", clocks that step"
	}
	if o.Smaller != nil {
		s += fmt.Sprintf(", now and then %v", o.Smaller)
	}
	if o.Next != nil {
		s += fmt.Sprintf(", then shares %v", o.Next)
	}
	return s
}
