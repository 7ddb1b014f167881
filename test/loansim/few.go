package loansim

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
)

// Few is a strict limit of few or large units, or of a short window: what fixed shares do worse than one would think, and
// loans must not do worse than those. It has books and planners alone, in virtual time. Each region that is asked gets
// requests at random, the same number on average.
type Few struct {
	Regions     int
	Units, Cost int64
	Window      time.Duration
	Times       float64 // what is asked for, as multiples of Units per window
	Asking      int     // how many of the regions are asked
}

// Fews are the limits that are compared.
func Fews() (all []Few) {
	for _, window := range []time.Duration{time.Second, time.Minute} {
		for _, units := range []int64{3, 10, 30, 100} {
			cost := int64(1)
			if units == 100 {
				cost = 25
			}
			for _, regions := range []int{3, 10} {
				for _, times := range []float64{1.2, 1.3, 3} {
					all = append(all, Few{regions, units, cost, window, times, regions})
				}
			}
		}
	}
	return append(all, Few{3, 100, 100, time.Second, 30, 3}, Few{10, 100, 25, time.Second, 1.5, 3}, Few{10, 3, 1, 10 * time.Second, 23, 10}, Few{10, 600, 1, time.Minute, 1.2, 10})
}

// A limit is asked for fewBefore windows, so that each region has met its demand, and is then measured for fewWindows.
const (
	fewBefore  = 4
	fewWindows = 20
	fewDelayUS = 40_000 // one way
)

func (f Few) String() string {
	return fmt.Sprintf("%d units of %v, cost %d, %v×, %d of %d regions ask", f.Units, f.Window, f.Cost, f.Times, f.Asking, f.Regions)
}

// Played is what came of a Few, in units, of one world or the sum of several.
type Played struct {
	Admitted int64
	Fixed    int64 // by shares that are not lent
	Knowing  int64 // by one limiter that sees all
	// Least is the fewest admissions of a region that was asked, and Starved how many of them had none.
	Least, Starved int64
}

// Used is the part of what a limiter that sees all admits, that loans and fixed shares admit, in percent.
func (p *Played) Used() (loans, fixed float64) {
	return 100 * float64(p.Admitted) / float64(p.Knowing), 100 * float64(p.Fixed) / float64(p.Knowing)
}

// ReportFew plays those of Fews whose description contains a text, in that many worlds, and prints them.
func ReportFew(out io.Writer, contains string, worlds int) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "strict limit\tloans\tfixed shares\tleast of a region\tgot nothing\t\n")
	for _, f := range Fews() {
		if strings.Contains(f.String(), contains) {
			p := f.Play(worlds)
			loans, fixed := p.Used()
			fmt.Fprintf(t, "%v\t%.1f %%\t%.1f %%\t%d\t%d of %d\t\n", f, loans, fixed, p.Least, p.Starved, worlds*f.Asking)
		}
	}
	return t.Flush()
}

// Play plays that many worlds, from seeds of their own.
func (f Few) Play(worlds int) (sum Played) {
	for i := range worlds {
		p := f.play(uint64(i) + 1)
		if i == 0 || p.Least < sum.Least {
			sum.Least = p.Least
		}
		sum.Admitted += p.Admitted
		sum.Fixed += p.Fixed
		sum.Knowing += p.Knowing
		sum.Starved += p.Starved
	}
	return sum
}

// counted is a log of what was admitted, as far as it is in the window.
type counted struct {
	window int64
	log    []charge
	used   int64
}

type charge struct{ at, units int64 }

func (c *counted) at(us int64) int64 {
	for len(c.log) > 0 && c.log[0].at <= us-c.window {
		c.used -= c.log[0].units
		c.log = c.log[1:]
	}
	return c.used
}

func (c *counted) admit(us, units, room int64) bool {
	if c.at(us)+units > room {
		return false
	}
	c.log, c.used = append(c.log, charge{us, units}), c.used+units
	return true
}

type fewWorld struct {
	now     int64
	tick    int64
	regions []*fewRegion
	flying  []fewMessage // in the order of their arrival
	dice    *rand.Rand   // of the policy
}

type fewRegion struct {
	w       *fewWorld
	book    loan.Book
	planner loan.Planner
	counted
	due, stepped int64
	tended       bool  // as region/loans does: from when it is short or wanted,
	useful       int64 // until nothing was asked or wanted for a while
	asked, cost  int64
	denied       bool
}

// fewMessage is a want for all, or a grant or return for one.
type fewMessage struct {
	at    int64
	from  string
	to    *fewRegion
	want  loan.Want
	grant loan.Grant
	back  int64 // of a return
}

func (f Few) play(seed uint64) (p Played) {
	window := f.Window.Microseconds()
	w := &fewWorld{tick: min(max(window/200, 5_000), 50_000), dice: rand.New(rand.NewPCG(seed, 3)), now: 3_600_000_000}
	weights := make([]quota.Weight, f.Regions)
	for i := range weights {
		weights[i] = quota.Weight{Region: name(i), Weight: 1}
	}
	knowing, fixed, got := counted{window: window}, make([]counted, f.Regions), make([]int64, f.Regions)
	shares := region.Shares(weights, f.Units)
	for i, share := range shares {
		r := &fewRegion{w: w, counted: counted{window: window}, due: w.now + w.dice.Int64N(w.tick)}
		r.book = loan.Book{Region: name(i), Terms: loan.TermsOf(window), Bound: quota.Bound{Epoch: 1, Share: share}}
		r.planner = loan.Planner{Terms: r.book.Terms, Bound: f.Units, Regions: f.Regions, Tick: w.tick, Trip: fewDelayUS + w.tick}
		w.regions, fixed[i].window = append(w.regions, r), window
	}
	arrivals := rand.New(rand.NewPCG(seed, 2))
	mean := float64(window) * float64(f.Cost) / (f.Times * float64(f.Units))
	from := w.now + fewBefore*window
	end := from + fewWindows*window
	for us := w.now; ; {
		if us += int64(math.Round(-math.Log1p(-arrivals.Float64()) * mean)); us >= end {
			break
		}
		w.runUntil(us)
		i := arrivals.IntN(f.Asking) * f.Regions / f.Asking
		if w.regions[i].ask(us, f.Cost) && us >= from {
			p.Admitted, got[i] = p.Admitted+f.Cost, got[i]+1
		}
		if fixed[i].admit(us, f.Cost, shares[i]) && us >= from {
			p.Fixed += f.Cost
		}
		if knowing.admit(us, f.Cost, f.Units) && us >= from {
			p.Knowing += f.Cost
		}
	}
	p.Least = math.MaxInt64
	for i := range f.Asking {
		n := got[i*f.Regions/f.Asking]
		if p.Least = min(p.Least, n); n == 0 {
			p.Starved++
		}
	}
	return p
}

func (r *fewRegion) ask(us, cost int64) bool {
	ok := r.admit(us, cost, r.used+r.book.Room(us, r.at(us)))
	r.asked, r.cost, r.denied = r.asked+cost, max(r.cost, cost), r.denied || !ok
	ceiling := r.book.Ceiling(us)
	a := loan.Ask{Denied: !ok, Remaining: ceiling - r.used, Ceiling: ceiling, Share: r.book.Share}
	if r.tended = r.tended || a.Short(); r.tended {
		r.useful = us
	}
	return ok
}

// runUntil plays what happens until then: messages arrive, and regions plan, each tick and when one arrives.
func (w *fewWorld) runUntil(us int64) {
	for {
		next := w.regions[0]
		for _, r := range w.regions[1:] {
			if r.due < next.due {
				next = r
			}
		}
		if len(w.flying) > 0 && w.flying[0].at <= min(us, next.due) {
			m := w.flying[0]
			w.flying = w.flying[1:]
			w.now = m.at
			m.to.receive(&m)
			continue
		}
		if next.due > us {
			w.now = us
			return
		}
		w.now = next.due
		next.plan()
	}
}

func (r *fewRegion) receive(m *fewMessage) {
	switch now := r.w.now; {
	case m.want.From != "":
		for _, h := range m.want.Held {
			if h.Peer == r.book.Region && h.Back > 0 {
				r.book.Returned(now, m.from, h.ID, h.Back)
			}
		}
		r.planner.Receive(now, m.want)
		r.tended, r.useful = true, now
	case m.grant.From != "":
		r.book.Accept(now, m.grant)
	default:
		r.book.Returned(now, m.from, m.grant.ID, m.back)
	}
	r.due = min(r.due, max(r.w.now, r.stepped+5_000))
}

func (r *fewRegion) plan() {
	now := r.w.now
	r.stepped, r.due = now, now+r.w.tick
	used := r.at(now)
	if !r.tended {
		return
	}
	if idle := now - r.useful; idle > max(2_000_000, r.window/8) {
		r.rest(idle)
		return
	}
	ops, want := r.planner.Plan(&r.book, now, used, r.asked, r.cost, r.denied, r.w.dice.Float64)
	r.asked, r.cost, r.denied = 0, 0, false
	for _, o := range ops {
		switch o.Kind {
		case loan.OpSend:
			r.send(o.To, fewMessage{grant: o.Grant})
		case loan.OpLend:
			if g, ok := r.book.Lend(now, used, o.Units, o.Want.Request(o.ID)); ok {
				r.planner.Granted(now, o.To, g)
				r.send(o.To, fewMessage{grant: g})
			}
		case loan.OpReturn:
			if back := r.book.Return(now, used, o.Units, o.To, o.ID); back > 0 {
				r.send(o.To, fewMessage{grant: loan.Grant{ID: o.ID}, back: back})
			}
		case loan.OpRecall:
			r.book.SetRecall(now, o.Units, o.Until)
		}
	}
	if want != nil {
		m := fewMessage{want: *want}
		m.want.Held = slices.Clone(want.Held)
		for _, other := range r.w.regions {
			if other != r {
				r.send(other.book.Region, m)
			}
		}
	}
}

// rest returns what is borrowed, as it comes free, and then forgets the partition.
func (r *fewRegion) rest(idle int64) {
	now := r.w.now
	for _, h := range slices.Clone(r.book.Held) {
		if back := r.book.Return(now, r.at(now), h.Left(), h.Peer, h.ID); back > 0 {
			r.send(h.Peer, fewMessage{grant: loan.Grant{ID: h.ID}, back: back})
		}
	}
	r.due = now + 1_000_000
	if !slices.ContainsFunc(r.book.Lent, func(l loan.Loan) bool { return l.Left() > 0 }) && len(r.book.Held) == 0 && idle > r.planner.Remembers(r.book.Share) {
		p := &r.planner
		r.tended, r.planner = false, loan.Planner{Terms: p.Terms, Bound: p.Bound, Regions: p.Regions, Tick: p.Tick, Trip: p.Trip}
	}
}

func (r *fewRegion) send(to string, m fewMessage) {
	m.at, m.from, m.to = r.w.now+fewDelayUS, r.book.Region, r.w.regions[to[0]-'a']
	r.w.flying = append(r.w.flying, m)
}
