package sim

import (
	"slices"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region"
)

// bounds is what a region's store keeps of the limits that have a bound, beside memstore:
// a log of each and its loans, and the store's life. A clock that steps has the log go on
// as before, but for what whoever watches it is unsure of.
type bounds struct {
	s      *simRegion
	life   loan.Store
	unsure time.Duration // by which the log's clock was set back so far
	books  map[string]*book
	order  []*book
}

// book is one partition of a bounded limit.
type book struct {
	loan.Book
	bounds *bounds
	policy string
	log    []booked // oldest first
	first  int      // that is inside the window
	used   int64
	states []kept // of the last while, for a store that is rolled back
}

type booked struct {
	at    time.Duration // true
	us    int64         // by the log's clock
	units int64
}

type kept struct {
	at time.Duration // until when
	loan.State
}

// keptFor is how far back a store is rolled back at most.
const keptFor = 10 * time.Second

func newBounds(s *simRegion) *bounds {
	return &bounds{s: s, life: loan.Store{Epoch: 1}, books: map[string]*book{}}
}

// logUS is the clock of logs.
func (b *bounds) logUS() int64 { return b.s.nowUS() - (b.s.stepped + b.unsure).Microseconds() }

// of returns the book of a tenant as the store holds it now, nil if its limit has no bound.
func (b *bounds) of(tenant, policy string) *book {
	w := b.s.w
	k := b.books[tenant]
	if k == nil {
		if !w.bounded(policy) {
			return nil
		}
		k = &book{bounds: b, policy: policy}
		k.Region = b.s.name
		k.Terms = loan.TermsOf(w.o.policy(policy).Limits[0].WindowUS())
		b.books[tenant], b.order = k, append(b.order, k)
	}
	k.Store, k.Share = b.life, w.shares.of(b.s.place, policy)
	return k
}

// inWindow is what the log holds of the window.
func (k *book) inWindow() int64 {
	edge := k.bounds.logUS() - k.Terms.Window
	for k.first < len(k.log) && k.log[k.first].us <= edge {
		k.used -= k.log[k.first].units
		k.first++
	}
	if k.first > 4096 && k.log[k.first-1].at < k.bounds.s.w.now-keptFor {
		k.log, k.first = append(k.log[:0], k.log[k.first:]...), 0
	}
	return k.used
}

// changes has what the book was until now remembered, before a change of its loans.
func (k *book) changes() {
	now := k.bounds.s.w.now
	for len(k.states) > 0 && k.states[0].at < now-keptFor {
		k.states = k.states[1:]
	}
	s := k.State
	s.Lent, s.Held = slices.Clone(s.Lent), slices.Clone(s.Held)
	k.states = append(k.states, kept{now, s})
}

// back has the book be as it was.
func (k *book) back(to time.Duration) {
	for len(k.states) > 0 && k.states[len(k.states)-1].at > to {
		k.State = k.states[len(k.states)-1].State
		k.states = k.states[:len(k.states)-1]
	}
	for n := len(k.log); n > 0 && k.log[n-1].at > to; n-- {
		k.log = k.log[:n-1]
	}
	k.first, k.used = 0, 0
	for i := range k.log {
		k.used += k.log[i].units
	}
}

// lost begins another life of the store: it holds nothing, or what it held at a moment.
func (b *bounds) lost(to time.Duration) {
	for _, k := range b.order {
		k.back(to)
	}
	b.life = loan.Store{Epoch: b.life.Epoch + 1, Lost: b.s.nowUS()}
}

// stepped notes a step of the clock. Where the log's clock goes on is not known exactly;
// it errs towards the past.
func (b *bounds) stepped() {
	if b.s.w.bound != nil {
		b.unsure += time.Duration(b.s.w.dice.Int64N(int64(20 * time.Millisecond)))
	}
	if len(b.s.processes) > 0 { // else whoever starts next does not know what happened
		b.unwatched()
	}
}

// unwatched begins another epoch: the clock stepped, or nobody watched it.
func (b *bounds) unwatched() {
	b.life.Epoch++
	if b.life.Lost > 0 { // by a clock that is no more
		b.life.Lost = b.s.nowUS()
	}
}

// admits decides what loans allow of a check; b is nil if they have no say.
func (t *regionStore) admits(c *store.Call) (k *book, room int64) {
	if t.s.w.bound == nil || len(c.Counters) != 1 || c.Op != store.OpCheck {
		return nil, 0
	}
	if k = t.bounds.of(c.Counters[0].Tenant, c.Counters[0].Policy); k == nil {
		return nil, 0
	}
	return k, k.Room(t.s.nowUS(), k.inWindow())
}

// strict reports whether only the bound counts, and not the estimate.
func (k *book) strict() bool {
	return k.bounds.s.w.o.policy(k.policy).Limits[0].MaxOvershoot == quota.Strict
}

// charge adds an admission to the log.
func (k *book) charge(units int64) {
	k.log = append(k.log, booked{k.bounds.s.w.now, k.bounds.logUS(), units})
	k.used += units
}

// tender plans the loans of one process.
type tender struct {
	p       *process
	tenants []*tended
	queued  bool // a tick is
}

type tended struct {
	tenant, policy string
	planner        *loan.Planner
	asked          int64
	denied         bool
	wants          []loan.Want // the newest of each region, for what no policy would do
}

// loanMessage is one of them: a want, a grant, or a return of what has that ID.
type loanMessage struct {
	tenant, policy string
	want           *loan.Want
	grant          *loan.Grant
	id             loan.ID
	back           int64
}

const (
	tickMost  = 50 * time.Millisecond
	tickLeast = 5 * time.Millisecond
	tickParts = 200
)

func (d *tender) of(tenant, policy string) *tended {
	for _, t := range d.tenants {
		if t.tenant == tenant {
			return t
		}
	}
	w := d.p.region.w
	window := w.o.policy(policy).Limits[0].Window
	tick := min(max(window/tickParts, tickLeast, w.o.LoanTick), tickMost).Microseconds()
	way := w.o.delay(0, len(w.regions)-1).Microseconds()
	t := &tended{tenant: tenant, policy: policy, planner: &loan.Planner{
		Terms: loan.TermsOf(window.Microseconds()), Bound: w.shares.bound(policy), Regions: len(w.regions), Trip: way + tick, Tick: tick,
	}}
	d.tenants = append(d.tenants, t)
	return t
}

// asks notes what was asked for.
func (d *tender) asks(tenant string, cost int64, denied bool) {
	policy := d.p.region.w.o.policyOf(tenant).Name
	if !d.p.region.w.bounded(policy) {
		return
	}
	t := d.of(tenant, policy)
	t.asked += cost
	t.denied = t.denied || denied
	d.queue()
}

// queue has the next tick come, if none is to.
func (d *tender) queue() {
	if d.queued || len(d.tenants) == 0 {
		return
	}
	d.queued = true
	w, tick := d.p.region.w, time.Hour
	for _, t := range d.tenants {
		tick = min(tick, time.Duration(t.planner.Tick)*time.Microsecond)
	}
	shift := time.Duration(d.p.number) * 7 * time.Millisecond % tick
	w.queue.add(event{at: (w.now-shift)/tick*tick + tick + shift, kind: kindTick, p: d.p})
}

// tick plans what is active. Of the processes of a region one tends, or all in a world in
// which they do not agree on which.
func (d *tender) tick() {
	d.queued = false
	p := d.p
	if p.gone || p.frozen {
		return
	}
	active := false
	for _, t := range d.tenants {
		active = d.tend(t) || active
	}
	if active {
		d.queue()
	}
}

func (d *tender) tend(t *tended) (active bool) {
	s := d.p.region
	if s.store.away {
		return true
	}
	k := s.store.bounds.of(t.tenant, t.policy)
	now, used := s.nowUS(), k.inWindow()
	if t.planner.Idle(used, t.asked) && k.Empty() {
		return false
	}
	if !s.w.o.AllTend && s.processes[0] != d.p {
		t.asked, t.denied = 0, false
		return true
	}
	t.planner.Bound = s.w.shares.bound(t.policy)
	ops, want := t.planner.Plan(&k.Book, now, used, t.asked, t.denied, s.w.dice.Float64)
	if s.w.o.Folly && t.asked > 0 {
		ops = append(ops, d.folly(t, k)...)
	}
	t.asked, t.denied = 0, false
	for i := range ops {
		d.do(t, k, &ops[i])
	}
	if want != nil {
		want.Held = slices.Clone(want.Held)
		for _, to := range s.w.regions {
			if to != s {
				d.send(to, &loanMessage{tenant: t.tenant, policy: t.policy, want: want})
			}
		}
	}
	return true
}

func (d *tender) do(t *tended, k *book, o *loan.Op) {
	s := d.p.region
	now, used := s.nowUS(), k.inWindow()
	k.changes()
	m := &loanMessage{tenant: t.tenant, policy: t.policy}
	switch o.Kind {
	case loan.OpLend:
		g, ok := k.Lend(now, used, o.Units, o.Want.Request(o.ID))
		if !ok {
			return
		}
		t.planner.Granted(now, o.To, g)
		m.grant = &g
		s.w.stats.Grants++
	case loan.OpSend:
		g := o.Grant
		m.grant = &g
	case loan.OpReturn:
		if m.id, m.back = o.ID, k.Return(now, used, o.Units, o.To, o.ID); m.back == 0 {
			return
		}
	case loan.OpRecall:
		k.SetRecall(now, o.Units, o.Until)
		return
	}
	d.send(s.w.region(o.To), m)
}

// follyIn is of how many ticks in which something was asked for one has folly.
const follyIn = 100

// folly is what no policy would do, and any may: as much as the rules allow, for no reason.
func (d *tender) folly(t *tended, k *book) (ops []loan.Op) {
	dice := d.p.region.w.dice
	if dice.IntN(follyIn) > 0 {
		return nil
	}
	if len(t.wants) > 0 {
		want := t.wants[dice.IntN(len(t.wants))]
		o := loan.Op{Kind: loan.OpLend, To: want.From, Units: dice.Int64N(t.planner.Bound + 1), Want: &want}
		for _, l := range k.Lent {
			if l.Peer == want.From && dice.IntN(2) == 0 {
				o.ID = l.ID
			}
		}
		ops = append(ops, o)
	}
	if n := len(k.Held); n > 0 && dice.IntN(2) == 0 {
		h := k.Held[dice.IntN(n)]
		ops = append(ops, loan.Op{Kind: loan.OpReturn, To: h.Peer, ID: h.ID, Units: dice.Int64N(h.Units + 1)})
	}
	return ops
}

// send puts a message on its way to every process of a region. It may come late by four
// loans.
func (d *tender) send(to *simRegion, m *loanMessage) {
	w, b := d.p.region.w, &d.p.bus
	if to == nil || b.down {
		return
	}
	b.published++
	w.stats.Loans++
	w.send(&message{from: d.p, loan: m, hash: b.published}, to.processes...)
}

// receive takes a message in.
func (d *tender) receive(from *process, m *loanMessage) {
	s := d.p.region
	if s.store.away {
		return
	}
	k, t := s.store.bounds.of(m.tenant, m.policy), d.of(m.tenant, m.policy)
	now := s.nowUS()
	k.changes()
	switch {
	case m.want != nil:
		t.wants = append(slices.DeleteFunc(t.wants, func(w loan.Want) bool { return w.From == m.want.From }), *m.want)
		for _, h := range m.want.Held {
			if h.Peer == s.name {
				k.Returned(now, m.want.From, h.ID, h.Back)
			}
		}
		t.planner.Receive(now, *m.want)
	case m.grant != nil:
		k.Accept(now, *m.grant)
	default:
		k.Returned(now, from.self.Region, m.id, m.back)
	}
	d.queue()
}

func (w *World) region(name string) *simRegion {
	for _, s := range w.regions {
		if s.name == name {
			return s
		}
	}
	return nil
}

// shares divides bounds among regions, and goes from one topology to the next: a smaller
// share holds at once, a larger one when every region of both has confirmed the new
// topology for as long as a record stands.
type shares struct {
	w      *World
	now    map[string][]int64 // by policy and region
	next   map[string][]int64 // nil: nothing changes
	phase  []phase            // by region
	agreed time.Duration      // since when all have confirmed; never: not yet
}

type phase uint8

const (
	before phase = iota
	confirmed
	done
)

func newShares(w *World, top *region.Topology) *shares {
	return &shares{w: w, now: w.divide(top), phase: make([]phase, len(w.o.Regions))}
}

// divide is what each region of the world gets under a topology, 0 if that does not have it.
func (w *World) divide(top *region.Topology) map[string][]int64 {
	weights := make([]int64, len(w.o.Regions))
	for i := range w.o.Regions {
		if r, ok := top.Region(w.o.Regions[i].Name); ok {
			weights[i] = r.Weight
		}
	}
	all := map[string][]int64{}
	for i := range top.Policies {
		if units, ok := top.Policies[i].Limits[0].Bound(); ok {
			all[top.Policies[i].Name] = region.Parts(weights, units)
		}
	}
	return all
}

// bounded reports whether the limit of a policy has a bound.
func (w *World) bounded(policy string) bool {
	p := w.o.policy(policy)
	return p != nil && p.Limits[0].MaxOvershoot != 0
}

func total(parts []int64) (n int64) {
	for _, p := range parts {
		n += p
	}
	return n
}

// of is a region's share.
func (h *shares) of(place int, policy string) int64 {
	share := h.now[policy][place]
	switch {
	case h.next == nil || h.phase[place] == before:
	case h.phase[place] == confirmed:
		share = min(share, h.next[policy][place])
	default:
		share = h.next[policy][place]
	}
	return share
}

// bound is B; while it changes the larger.
func (h *shares) bound(policy string) int64 {
	b := total(h.now[policy])
	if h.next != nil {
		b = max(b, total(h.next[policy]))
	}
	return b
}

// begin begins a change, false while another is under way.
func (h *shares) begin(top *region.Topology) bool {
	if h.next != nil {
		return false
	}
	h.next, h.agreed = h.w.divide(top), never
	clear(h.phase)
	return true
}

// confirm notes that a region goes by the next topology too, and that it is durable there.
func (h *shares) confirm(place int) {
	h.phase[place] = max(h.phase[place], confirmed)
	if slices.Contains(h.phase, before) || h.agreed != never {
		return
	}
	h.agreed = h.w.now
	keep := int64(0)
	for policy := range h.next {
		keep = max(keep, loan.TermsOf(h.w.o.policy(policy).Limits[0].WindowUS()).Keep())
	}
	keep += keep * loan.RatePPM / 1_000_000 // by whichever clock
	for i := range h.phase {
		h.w.At(h.w.now+time.Duration(keep)*time.Microsecond+time.Duration(h.w.dice.Int64N(int64(5*time.Second))), func() { h.grow(i) })
	}
}

// grow has a region go by the next topology alone.
func (h *shares) grow(place int) {
	h.phase[place] = done
	if slices.ContainsFunc(h.phase, func(p phase) bool { return p != done }) {
		return
	}
	h.now, h.next = h.next, nil
	clear(h.phase)
}
