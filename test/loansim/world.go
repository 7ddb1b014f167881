package loansim

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/regiond/regiond/quota/loan"
)

// Options of a World. Times are in µs.
type Options struct {
	Seed    int64
	Regions int
	Bound   int64 // B
	Window  int64
	Delay   int64   // one way, ±10 %
	Loss    float64 // of messages
	Repeat  float64
	Late    float64 // late by up to four loans
	Faults  bool    // cuts, frozen regions, restarts, stores that lose or roll back, clocks that step, shares that change
}

const ms = 1000

// World plays one partition and limit in steps of a millisecond of true time.
type World struct {
	Options
	terms   loan.Terms
	rng     *rand.Rand // of the network and the faults
	now     int64      // true
	regions []*region
	queue   map[int64][]envelope
	cut     [][]bool
	moved   int64 // true time since when all have confirmed the shares to come, 0 for not yet
	next    []int64

	Oracle Oracle
	// Messages published, by kind: a want once for all regions.
	Wants, Grants, Returns        int64
	Lost, Rolled, Stepped, Frozen int64
}

type envelope struct {
	from, to int
	want     *loan.Want
	grant    *loan.Grant
	id       loan.ID // of a return
	back     int64
}

type entry struct{ at, units int64 }

// region is one region: its store, whose clock shows anything, and the planner of its process.
type region struct {
	w       *World
	i       int
	book    loan.Book
	log     []entry
	used    int64
	offset  int64       // of its clock
	stepped int64       // by how much its clock was stepped since, which the log does not follow
	wants   []loan.Want // the newest of each other region, for what no policy would do
	ppm     float64
	plan    *loan.Planner
	asked   int64
	denied  bool
	tick    int64 // µs between plans
	frozen  int64 // until
	inbox   []envelope
	replica []snapshot
	phase   int
}

type snapshot struct {
	state loan.State
	log   []entry
	used  int64
}

// NewWorld returns a world at its beginning.
func NewWorld(o Options) *World {
	w := &World{Options: o, terms: loan.TermsOf(o.Window), rng: rand.New(rand.NewPCG(uint64(o.Seed), 1)), queue: map[int64][]envelope{}, now: ms}
	w.Oracle = Oracle{window: o.Window - o.Window*loan.RatePPM/1_000_000, bound: o.Bound}
	for i := range o.Regions {
		r := &region{w: w, i: i, offset: w.rng.Int64N(1e12) + 1e12, ppm: (w.rng.Float64()*2 - 1) * loan.RatePPM}
		n := int64(o.Regions)
		r.book = loan.Book{Region: name(i), Terms: w.terms, Store: loan.Store{Epoch: 1}, Share: o.Bound*int64(i+1)/n - o.Bound*int64(i)/n}
		r.tick = min(max(o.Window/200, 5*ms), 50*ms)
		r.start()
		w.regions = append(w.regions, r)
		w.cut = append(w.cut, make([]bool, o.Regions))
	}
	return w
}

func (r *region) start() {
	r.plan = &loan.Planner{Terms: r.w.terms, Bound: r.w.Bound, Regions: r.w.Regions, Trip: r.w.Delay + r.tick, Tick: r.tick}
}

// clock is what the log goes by, time what loans go by.
func (r *region) clock() int64 { return r.w.now + int64(float64(r.w.now)*r.ppm*1e-6) + r.offset }
func (r *region) time() int64  { return r.clock() + r.stepped }

// inWindow is what the log holds of the window.
func (r *region) inWindow() int64 {
	edge, n := r.clock()-r.w.Window, 0
	for n < len(r.log) && r.log[n].at <= edge {
		r.used -= r.log[n].units
		n++
	}
	r.log = r.log[n:]
	return r.used
}

// Check asks region i for units.
func (w *World) Check(i int, units int64) bool {
	r := w.regions[i]
	if r.frozen > w.now {
		return false
	}
	r.asked += units
	t := r.clock()
	if used := r.inWindow(); units > r.book.Room(r.time(), used) {
		r.denied = true
		return false
	}
	if n := len(r.log); n > 0 && r.log[n-1].at == t {
		r.log[n-1].units += units
	} else {
		r.log = append(r.log, entry{t, units})
	}
	r.used += units
	w.Oracle.admit(w.now, units)
	return true
}

// Step plays one millisecond.
func (w *World) Step() {
	w.now += ms
	for _, m := range w.queue[w.now] {
		w.regions[m.to].inbox = append(w.regions[m.to].inbox, m)
	}
	delete(w.queue, w.now)
	if w.Faults {
		w.faults()
	}
	for _, r := range w.regions {
		if r.frozen > w.now {
			continue
		}
		for _, m := range r.inbox {
			r.receive(m)
		}
		r.inbox = r.inbox[:0]
		if (w.now+int64(r.i)*7*ms)%r.tick == 0 {
			r.tend()
		}
	}
}

func (r *region) receive(m envelope) {
	t := r.time()
	switch {
	case m.want != nil:
		r.wants = append(slices.DeleteFunc(r.wants, func(w loan.Want) bool { return w.From == m.want.From }), *m.want)
		for _, h := range m.want.Held {
			if h.Peer == r.book.Region {
				r.book.Returned(t, m.want.From, h.ID, h.Back)
			}
		}
		r.plan.Receive(t, *m.want)
	case m.grant != nil:
		r.book.Accept(t, *m.grant)
	default:
		r.book.Returned(t, name(m.from), m.id, m.back)
	}
}

func (r *region) tend() {
	w, t, used := r.w, r.time(), r.inWindow()
	if r.plan.Idle(used, r.asked) && r.book.Empty() {
		return
	}
	asked, denied := r.asked, r.denied
	r.asked, r.denied = 0, false
	ops, want := r.plan.Plan(&r.book, t, used, asked, denied, w.rng.Float64)
	if w.Faults && w.Seed%2 == 0 && w.rng.Float64() < 0.3 {
		ops = append(ops, r.folly()...)
	}
	for _, o := range ops {
		switch o.Kind {
		case loan.OpLend:
			if g, ok := r.book.Lend(t, used, o.Units, o.Want.Request(o.ID)); ok {
				r.plan.Granted(t, o.To, g)
				w.send(envelope{from: r.i, to: index(o.To), grant: &g})
			}
		case loan.OpSend:
			w.send(envelope{from: r.i, to: index(o.To), grant: &o.Grant})
		case loan.OpReturn:
			if back := r.book.Return(t, used, o.Units, o.To, o.ID); back > 0 {
				w.send(envelope{from: r.i, to: index(o.To), id: o.ID, back: back})
			}
		case loan.OpRecall:
			r.book.SetRecall(t, o.Units, o.Until)
		}
	}
	if want != nil {
		want.Held = slices.Clone(want.Held)
		w.Wants++
		for j := range w.regions {
			if j != r.i {
				w.send(envelope{from: r.i, to: j, want: want})
			}
		}
	}
}

// folly is what no policy would do, and any may: as much as the rules allow, for no reason.
func (r *region) folly() (ops []loan.Op) {
	rng := r.w.rng
	if len(r.wants) > 0 {
		w := r.wants[rng.IntN(len(r.wants))]
		o := loan.Op{Kind: loan.OpLend, To: w.From, Units: rng.Int64N(r.w.Bound + 1), Want: &w}
		for _, l := range r.book.Lent {
			if l.Peer == w.From && rng.IntN(2) == 0 {
				o.ID = l.ID
			}
		}
		ops = append(ops, o)
	}
	if n := len(r.book.Held); n > 0 && rng.IntN(2) == 0 {
		h := r.book.Held[rng.IntN(n)]
		ops = append(ops, loan.Op{Kind: loan.OpReturn, To: h.Peer, ID: h.ID, Units: rng.Int64N(h.Units + 1)})
	}
	return ops
}

func index(name string) int { return int(name[0] - 'a') }

func (w *World) send(m envelope) {
	switch {
	case m.grant != nil:
		w.Grants++
	case m.want == nil:
		w.Returns++
	}
	if w.cut[m.from][m.to] || w.rng.Float64() < w.Loss {
		return
	}
	for range 1 + bit(w.rng.Float64() < w.Repeat) {
		d := int64(float64(w.Delay) * (0.9 + 0.2*w.rng.Float64()))
		if w.rng.Float64() < w.Late {
			d += w.rng.Int64N(4 * w.terms.Length)
		}
		at := (w.now+d)/ms*ms + ms
		w.queue[at] = append(w.queue[at], m)
	}
}

// faults are drawn ten times a second.
func (w *World) faults() {
	if w.now%(100*ms) != 0 {
		return
	}
	chance := func(every float64) bool { return w.rng.Float64() < 0.1/every } // seconds
	for i, r := range w.regions {
		for j := range w.regions {
			if chance(20) {
				w.cut[i][j] = w.rng.Float64() < 0.5
			}
		}
		state := loan.State{Epoch: r.book.Epoch, Lent: slices.Clone(r.book.Lent), Held: slices.Clone(r.book.Held)}
		if r.replica = append(r.replica, snapshot{state, slices.Clone(r.log), r.used}); len(r.replica) > 20 {
			r.replica = r.replica[1:]
		}
		if chance(30) {
			r.frozen = w.now + w.rng.Int64N(2*w.terms.Length)
			w.Frozen++
		}
		if chance(30) { // the only process begins anew: nobody watched the clock
			r.start()
			r.book.Store.Epoch++
		}
		if chance(60) {
			w.Lost++
			r.lose(snapshot{})
		}
		if chance(60) && len(r.replica) > 0 {
			w.Rolled++
			r.lose(r.replica[w.rng.IntN(len(r.replica))])
		}
		if chance(30) { // a step of the clock: the log goes on as before, but for what the process is unsure of
			w.Stepped++
			r.offset -= w.rng.Int64N(20 * ms)
			r.stepped += w.rng.Int64N(4*w.terms.Length) - 2*w.terms.Length
			r.book.Store.Epoch++
			if r.book.Store.Lost > 0 {
				r.book.Store.Lost = r.time()
			}
		}
	}
	w.shares(chance(60))
}

func (r *region) lose(s snapshot) {
	r.book.State, r.log, r.used = s.state, s.log, s.used
	r.book.Lent, r.book.Held = slices.Clone(s.state.Lent), slices.Clone(s.state.Held)
	r.replica = nil
	r.book.Store.Epoch++
	r.book.Store.Lost = r.time()
}

// shares moves a change of shares on, or begins one: each region goes to the smaller at its own time, and to the
// larger when all have for as long as a record stands.
func (w *World) shares(begin bool) {
	if w.next == nil {
		if !begin {
			return
		}
		left := w.Bound
		for range w.regions[1:] {
			n := w.rng.Int64N(left + 1)
			w.next, left = append(w.next, n), left-n
		}
		w.next = append(w.next, left)
		for _, r := range w.regions {
			r.phase = 0
		}
		w.moved = 0
	}
	done, all := true, true
	for i, r := range w.regions {
		switch {
		case r.phase == 0 && w.rng.Float64() < 0.02:
			r.phase, r.book.Share = 1, min(r.book.Share, w.next[i])
		case r.phase == 1 && w.moved > 0 && w.now-w.moved > w.terms.Keep()+w.terms.Keep()/1000 && w.rng.Float64() < 0.1:
			r.phase, r.book.Share = 2, w.next[i]
		}
		done, all = done && r.phase == 2, all && r.phase > 0
	}
	if all && w.moved == 0 {
		w.moved = w.now
	}
	if done {
		w.next = nil
	}
}

// Oracle knows all admissions in true time.
type Oracle struct {
	window, bound int64
	log           []entry
	head          int
	sum           int64
	// Worst is by how much a window was above the bound, never below −bound.
	Worst int64
	// Windows is how many windows ended above it.
	Windows int64
}

func (o *Oracle) admit(t, units int64) {
	for o.head < len(o.log) && o.log[o.head].at <= t-o.window {
		o.sum -= o.log[o.head].units
		o.head++
	}
	if o.head > 1<<14 {
		o.log, o.head = slices.Clone(o.log[o.head:]), 0
	}
	o.log = append(o.log, entry{t, units})
	o.sum += units
	if len(o.log) == 1 {
		o.Worst = math.MinInt64
	}
	o.Worst = max(o.Worst, o.sum-o.bound)
	if o.sum > o.bound {
		o.Windows++
	}
}

// fits is what an all-knowing limiter decides; it admits what it can.
func (o *Oracle) fits(t, units int64) bool {
	for o.head < len(o.log) && o.log[o.head].at <= t-o.window {
		o.sum -= o.log[o.head].units
		o.head++
	}
	if o.sum+units > o.bound {
		return false
	}
	o.admit(t, units)
	return true
}
