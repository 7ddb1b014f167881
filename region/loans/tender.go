package loans

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/expiring"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire"
)

const (
	// MaxActive is how many partitions are known that were asked for lately.
	MaxActive = 1_000_000
	// MaxTended is how many are tended at once; beyond it the one that was least recently
	// short, wanted or lent is left to itself.
	MaxTended = 8_192
	// stepEvery is the least time between two steps.
	stepEvery = 5 * time.Millisecond
	// callsPerSecond bounds the calls of one process for partitions, which take Redis about
	// 30 µs each.
	callsPerSecond = 4_000
	// restAfter is for how long a partition is planned for after it was asked for or wanted last.
	// Then what it borrows is returned as it comes free, every restTick.
	restAfter = 2 * time.Second
	restTick  = time.Second
	// coverAfter is for how long the process that should tend a short partition has to be
	// silent until another one does.
	coverAfter = time.Second
	// keyEvery is how often a want names the partition itself, for regions that never met it.
	keyEvery = time.Minute
	// mostOthers bounds how many times as much is asked for in the region as here.
	mostOthers = 16
	// maxWaiting bounds what was received for a partition and was not carried out yet, and
	// maxReceived what was received for any.
	maxWaiting  = 64
	maxReceived = 16_384
	// returnTimeout bounds the last returns when the region's last process stops.
	returnTimeout = 500 * time.Millisecond
)

// Bound is what holds for a bounded limit in this region now.
type Bound struct {
	quota.Bound
	Limit   *quota.Limit
	Regions int // of the topology
}

// units is B.
func (b *Bound) units() int64 {
	units, _ := b.Limit.Bound()
	return units
}

// store is what the region's loans go by.
func (b *Bound) store() loan.Store {
	s := loan.Store{Epoch: b.Epoch}
	if b.OpenFromUS > 0 {
		s.Lost = b.OpenFromUS - loan.TermsOf(b.Limit.WindowUS()).Keep()
	}
	return s
}

// Store carries out calls of store.OpLoans, as store.Store has it.
type Store interface {
	Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict)
}

// Network publishes, as *sync.Mesh, which documents the methods.
type Network interface {
	SendWants(wants ...wire.Want)
	SendGrants(to string, grants ...wire.Grant)
	SendReturns(to string, returns ...wire.Return)
}

// Options are what New needs. Meter may be nil.
type Options struct {
	Self    quota.Process
	Now     func() time.Duration // this process's monotonic clock
	Store   Store
	Network Network
	// Bound is what holds for a limit of the configuration in force; false: it has no bound.
	Bound func(policy, limit string) (Bound, bool)
	// Processes are the live processes of our region, ourselves included or not.
	Processes func() []quota.Process
	// Trip is how long a message to another region takes.
	Trip func() time.Duration
	// MaxActive and MaxTended are these constants where 0.
	MaxActive, MaxTended int
	// Random draws from [0, 1); nil: at random.
	Random func() float64
	Meter  metric.Meter
}

// Tender lends and borrows for all partitions of a region that need it, as one of the
// region's processes. Asked and Receive may be called from anywhere and never wait; Step
// is for Run, or for a simulation instead of it.
type Tender struct {
	o      Options
	active partitions
	wake   chan struct{} // capacity 1

	mu       sync.Mutex // guards what follows
	woken    []uint64
	received []received

	tended   map[uint64]*tended // Step's own, as all below
	stepped  time.Duration
	credit   float64
	observed time.Duration
	metrics  *metrics // nil without a meter
}

// tended is a partition that is short, wanted, or has loans.
type tended struct {
	id      uint64
	key     quota.CounterKey
	plan    *loan.Planner
	due     time.Duration
	useful  time.Duration // when it was short, wanted or lent last
	sibling time.Duration // when another process of ours wanted last
	named   time.Duration // when a want named the partition last
	asked   int64         // since the last plan
	denied  bool
	mine    float64 // what this process charged, fading over a window
	folded  time.Duration
	limit   *quota.Limit
	keys    *store.KeyPlan // of limit alone
	log     []string       // key of
	inbox   []store.LoanOp
	wants   []loan.Want
	book    loan.Book // as the store kept it at its TIME at
	at      int64
}

// received is one message, or a part of one.
type received struct {
	want  *wire.Want
	grant *wire.Grant
	back  *wire.Return
	from  string // of back
}

// New returns a Tender that tends nothing yet.
func New(o Options) (*Tender, error) {
	if o.Now == nil || o.Store == nil || o.Network == nil || o.Bound == nil || o.Processes == nil || o.Trip == nil {
		return nil, errors.New("loans: Now, Store, Network, Bound, Processes and Trip are required")
	}
	o.MaxActive, o.MaxTended = cmp.Or(o.MaxActive, MaxActive), cmp.Or(o.MaxTended, MaxTended)
	if o.Random == nil {
		o.Random = rand.Float64
	}
	t := &Tender{
		o: o, active: partitions{expiring.New[uint64, active](o.MaxActive)},
		wake: make(chan struct{}, 1), tended: map[uint64]*tended{},
	}
	if o.Meter == nil {
		return t, nil
	}
	var err error
	t.metrics, err = newMetrics(o.Meter)
	return t, err
}

// Asked takes note of a decision about the partition of a bounded limit, whose id is that of
// wire.Key. It does not keep the key.
func (t *Tender) Asked(id uint64, key *quota.CounterKey, a loan.Ask) {
	if !t.active.add(id, key, &a, t.o.Now().Microseconds()) {
		return
	}
	t.mu.Lock()
	t.woken = append(t.woken, id)
	t.mu.Unlock()
	t.soon()
}

// Wanted takes wants of other processes, those of our own region too.
func (t *Tender) Wanted(wants []wire.Want) {
	for i := range wants {
		t.receive(received{want: &wants[i]})
	}
	t.soon()
}

// Granted takes what another region has lent to ours.
func (t *Tender) Granted(grants []wire.Grant) {
	for i := range grants {
		t.receive(received{grant: &grants[i]})
	}
	t.soon()
}

// Returned takes what another region has given back to ours.
func (t *Tender) Returned(from string, returns []wire.Return) {
	for i := range returns {
		t.receive(received{from: from, back: &returns[i]})
	}
	t.soon()
}

func (t *Tender) receive(r received) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.received) < maxReceived { // what is lost is repeated
		t.received = append(t.received, r)
	}
}

func (t *Tender) soon() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run steps when something is due, until ctx ends. If no other process of the region is
// alive it then returns what is free of the loans that it knows.
func (t *Tender) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			t.leave()
			return nil
		case <-timer.C:
		case <-t.wake:
		}
		next := t.Step(ctx)
		if next < 0 {
			timer.Stop()
			continue
		}
		timer.Reset(max(next-t.o.Now(), 0))
		select { // not more often, however much arrives
		case <-ctx.Done():
		case <-time.After(stepEvery):
		}
	}
}

// Step does what is due, and returns when it has to be called again; −1: not before
// something is asked for or received.
func (t *Tender) Step(ctx context.Context) time.Duration {
	now := t.o.Now()
	t.credit = min(callsPerSecond/10, t.credit+(now-t.stepped).Seconds()*callsPerSecond)
	t.stepped = now
	t.collect(now)
	due := t.due(now)
	if len(due) > 0 {
		t.credit -= float64(len(due))
		t.tend(ctx, now, due)
	}
	t.observe(now)
	next := time.Duration(-1)
	for _, p := range t.tended {
		if next < 0 || p.due < next {
			next = p.due
		}
	}
	return next
}

// collect takes in what was asked for and received since the last step.
func (t *Tender) collect(now time.Duration) {
	t.mu.Lock()
	woken, messages := t.woken, t.received
	t.woken, t.received = nil, nil
	t.mu.Unlock()
	for _, id := range woken {
		if v, ok := t.active.take(id, now.Microseconds(), false); ok {
			p := t.tendedOf(id, v.key, now)
			p.take(v, now)
			p.due = now
		}
	}
	for _, m := range messages {
		switch {
		case m.want != nil:
			t.wanted(m.want, now)
		case m.grant != nil:
			t.lent(m.grant.PartitionID, store.LoanOp{Kind: store.LoanAccept, Grant: m.grant.Grant}, now)
		default:
			t.lent(m.back.PartitionID, store.LoanOp{Kind: store.LoanReturned, Peer: m.from, ID: m.back.Loan, Units: m.back.Back}, now)
		}
	}
}

// wanted takes in a want, if this process tends the partition or should.
func (t *Tender) wanted(m *wire.Want, now time.Duration) {
	w, p := m.Want, t.tended[m.PartitionID]
	if w.From == t.o.Self.Region {
		if p != nil {
			p.sibling = now
		}
		return
	}
	if !t.ours(m.PartitionID) {
		return
	}
	if p == nil {
		v, asked := t.active.take(m.PartitionID, now.Microseconds(), false)
		switch {
		case asked:
		case m.Partition != nil:
			v.key = *m.Partition
		default:
			return // nobody asked for it here, and a later want names it
		}
		p = t.tendedOf(m.PartitionID, v.key, now)
		p.take(v, now)
	}
	for _, h := range w.Held {
		if h.Peer == t.o.Self.Region && h.Back > 0 {
			p.queue(store.LoanOp{Kind: store.LoanReturned, Peer: w.From, ID: h.ID, Units: h.Back})
		}
	}
	// Of each region the last alone; a clock that went back may make it the older one.
	p.wants = append(slices.DeleteFunc(p.wants, func(o loan.Want) bool { return o.From == w.From }), w)
	p.useful, p.due = now, now
}

// lent takes in a grant or a return.
func (t *Tender) lent(id uint64, op store.LoanOp, now time.Duration) {
	if p := t.tended[id]; p != nil {
		p.queue(op)
		p.due = min(p.due, now)
	}
}

func (p *tended) queue(op store.LoanOp) {
	if len(p.inbox) < maxWaiting { // what is lost is repeated
		p.inbox = append(p.inbox, op)
	}
}

// take adds what was asked for here.
func (p *tended) take(v active, now time.Duration) {
	p.asked += v.asked
	p.denied = p.denied || v.denied
	p.mine += float64(v.charged)
	if v.asked > 0 {
		p.useful = now
	}
}

func (t *Tender) tendedOf(id uint64, key quota.CounterKey, now time.Duration) *tended {
	p := t.tended[id]
	if p == nil {
		if len(t.tended) >= t.o.MaxTended {
			t.dropOldest(now)
		}
		p = &tended{id: id, key: key, log: []string{store.LogKey(&key)}, due: now, useful: now, sibling: -coverAfter, named: -keyEvery, folded: now}
		t.tended[id] = p
	}
	return p
}

// dropOldest leaves one partition to itself: of some, that which was useful least recently.
func (t *Tender) dropOldest(now time.Duration) {
	var oldest *tended
	seen := 0
	for _, p := range t.tended { // begins at random
		if oldest == nil || p.useful < oldest.useful {
			oldest = p
		}
		if seen++; seen == 16 {
			break
		}
	}
	t.rest(oldest, now)
}

func (t *Tender) rest(p *tended, now time.Duration) {
	t.active.take(p.id, now.Microseconds(), true)
	delete(t.tended, p.id)
}

// due returns the partitions whose time has come, as far as calls are left.
func (t *Tender) due(now time.Duration) []*tended {
	var due []*tended
	for _, p := range t.tended {
		if p.due <= now {
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b *tended) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.id, b.id)) })
	return due[:min(len(due), max(0, int(t.credit)))]
}

// tend asks the store about partitions, plans, and carries the plans out.
func (t *Tender) tend(ctx context.Context, now time.Duration, due []*tended) {
	calls, bounds := make([]store.Call, 0, len(due)), make([]Bound, 0, len(due))
	at, trip := due[:0], t.o.Trip()
	for _, p := range due {
		b, ok := t.o.Bound(p.key.Policy, p.key.Limit)
		if !ok || b.Epoch == 0 || b.Regions < 2 {
			t.rest(p, now)
			continue
		}
		if v, ok := t.active.take(p.id, now.Microseconds(), false); ok {
			p.take(v, now)
		}
		tick := p.configure(&b, trip)
		p.due = now + tick
		if !t.ours(p.id) && now-p.sibling < coverAfter && len(p.inbox) == 0 {
			p.asked, p.denied = 0, false // the one whose turn it is does that
			if now-p.useful > restAfter {
				t.rest(p, now)
			}
			continue
		}
		calls, bounds, at = append(calls, p.call(&b, p.inbox)), append(bounds, b), append(at, p)
		p.inbox = nil
	}
	verdicts := t.ask(ctx, calls)
	var plans []*planned
	for i, p := range at {
		v, b := &verdicts[i], &bounds[i]
		if v.Err != nil || v.Loans == nil {
			continue // away, or busy
		}
		t.look(p, b, v)
		switch {
		case now-p.useful <= restAfter:
			plans = append(plans, t.plan(p, b, v, now))
		case left(p.book.Held) > 0 || left(p.book.Lent) > 0:
			p.due = now + restTick
			plans = append(plans, p.returnAll(b))
		default:
			t.rest(p, now)
		}
	}
	t.carryOut(ctx, plans)
}

// ask has the store carry out calls, and returns its verdicts.
func (t *Tender) ask(ctx context.Context, calls []store.Call) []store.Verdict {
	verdicts := make([]store.Verdict, len(calls))
	if len(calls) > 0 {
		t.o.Store.Decide(ctx, calls, verdicts)
	}
	return verdicts
}

// configure makes the planner anew if the limit has changed, and returns its tick.
func (p *tended) configure(b *Bound, trip time.Duration) time.Duration {
	tick := min(max(b.Limit.Window/200, stepEvery), 50*time.Millisecond)
	if p.limit != b.Limit {
		p.limit, p.keys = b.Limit, store.NewKeyPlan([]*quota.Limit{b.Limit})
		if terms := loan.TermsOf(b.Limit.WindowUS()); p.plan == nil || p.plan.Terms != terms {
			p.plan = &loan.Planner{Terms: terms}
		}
	}
	p.plan.Bound, p.plan.Regions = b.units(), b.Regions
	p.plan.Tick, p.plan.Trip = tick.Microseconds(), (trip + tick).Microseconds()
	return tick
}

// call is one script call for the partition.
func (p *tended) call(b *Bound, ops []store.LoanOp) store.Call {
	return store.Call{
		Op: store.OpLoans, Plan: p.keys, Keys: p.log, Counters: []quota.CounterKey{p.key}, Ceilings: p.keys.Capacities,
		Bounds: []quota.Bound{b.Bound}, Loans: ops,
	}
}

// planned is what a plan wants carried out.
type planned struct {
	p     *tended
	b     *Bound
	now   int64          // the store's TIME by which it was planned
	ops   []loan.Op      // that need a call, and
	calls []store.LoanOp // what they are there
	send  []loan.Op      // grants once more
	want  *loan.Want
}

func (x *planned) add(o loan.Op, call store.LoanOp) {
	x.ops, x.calls = append(x.ops, o), append(x.calls, call)
}

// look takes in what the store replied.
func (t *Tender) look(p *tended, b *Bound, v *store.Verdict) {
	s := b.store()
	if n := len(p.book.Held); n > 0 && p.book.Store.Epoch != s.Epoch && t.metrics != nil {
		reason := voidClock
		if p.book.Store.Lost != s.Lost {
			reason = voidLost
		}
		t.metrics.voids(reason, n)
	}
	p.at = v.StoreUS
	p.book = loan.Book{Region: t.o.Self.Region, Terms: p.plan.Terms, Store: s, Share: b.Share, State: v.Loans.State}
}

// returnAll returns all that is borrowed, as far as it is free.
func (p *tended) returnAll(b *Bound) *planned {
	x := &planned{p: p, b: b, now: p.at}
	for _, h := range p.book.Held {
		o := loan.Op{Kind: loan.OpReturn, To: h.Peer, ID: h.ID, Units: h.Left()}
		x.add(o, store.LoanOp{Kind: store.LoanReturn, Peer: h.Peer, ID: h.ID, Units: h.Left()})
	}
	return x
}

// plan plans for one partition.
func (t *Tender) plan(p *tended, b *Bound, v *store.Verdict, now time.Duration) *planned {
	for _, w := range p.wants {
		p.plan.Receive(v.StoreUS, w)
	}
	p.wants = nil
	used := v.Loans.Used
	asked := int64(float64(p.asked) * p.others(b.Limit.Window, used, now))
	ops, want := p.plan.Plan(&p.book, v.StoreUS, used, asked, p.denied, t.o.Random)
	p.asked, p.denied = 0, false
	x := &planned{p: p, b: b, want: want, now: v.StoreUS}
	for _, o := range ops {
		switch o.Kind {
		case loan.OpSend:
			x.send = append(x.send, o)
		case loan.OpLend:
			x.add(o, store.LoanOp{Kind: store.LoanLend, Units: o.Units, Request: o.Want.Request(o.ID)})
		case loan.OpReturn:
			x.add(o, store.LoanOp{Kind: store.LoanReturn, Peer: o.To, ID: o.ID, Units: o.Units})
		case loan.OpRecall:
			x.add(o, store.LoanOp{Kind: store.LoanRecall, Units: o.Units, Until: o.Until})
		}
	}
	return x
}

// others is how many times as much as here is asked for in the whole region, by what was
// charged: its other processes do not tell what they deny.
func (p *tended) others(window time.Duration, used int64, now time.Duration) float64 {
	p.mine *= max(0, 1-float64(now-p.folded)/float64(window))
	p.folded = now
	if p.mine < 1 {
		return 1
	}
	return min(max(1, float64(used)/p.mine), mostOthers)
}

// carryOut carries plans out and publishes what follows.
func (t *Tender) carryOut(ctx context.Context, plans []*planned) {
	var calls []store.Call
	var of []*planned
	for _, x := range plans {
		if len(x.ops) > 0 {
			calls, of = append(calls, x.p.call(x.b, x.calls)), append(of, x)
		}
	}
	verdicts := t.ask(ctx, calls)
	out := outbox{lend: map[string]*forOne{}}
	for i, x := range of {
		if v := &verdicts[i]; v.Err == nil && v.Loans != nil {
			t.carriedOut(x, v.Loans, &out)
		}
	}
	for _, x := range plans {
		for _, o := range x.send {
			out.one(o.To).grants = append(out.one(o.To).grants, wire.Grant{PartitionID: x.p.id, Grant: o.Grant})
		}
		if x.want != nil {
			out.wants = append(out.wants, t.wantOf(x))
		}
	}
	t.publish(&out)
}

// carriedOut takes in what came of a plan.
func (t *Tender) carriedOut(x *planned, l *store.Loans, out *outbox) {
	p := x.p
	p.book.State = l.State
	for n, o := range x.ops {
		r := l.Results[n]
		switch {
		case o.Kind == loan.OpLend && r.Grant.ID != loan.ID{}:
			r.Grant.From = t.o.Self.Region
			p.plan.Granted(x.now, o.To, r.Grant)
			out.one(o.To).grants = append(out.one(o.To).grants, wire.Grant{PartitionID: p.id, Grant: r.Grant})
		case o.Kind == loan.OpReturn && r.Back > 0:
			out.one(o.To).returns = append(out.one(o.To).returns, wire.Return{PartitionID: p.id, Loan: o.ID, Back: r.Back})
		}
	}
}

func (t *Tender) wantOf(x *planned) wire.Want {
	w := wire.Want{PartitionID: x.p.id, Want: *x.want}
	w.From, w.Held = t.o.Self.Region, slices.Clone(w.Held)
	if now := t.o.Now(); now-x.p.named >= keyEvery {
		x.p.named = now
		w.Partition = &x.p.key
	}
	return w
}

// outbox is what one step publishes.
type outbox struct {
	wants []wire.Want
	lend  map[string]*forOne
}

// forOne is what of it is for one region.
type forOne struct {
	grants  []wire.Grant
	returns []wire.Return
}

func (o *outbox) one(to string) *forOne {
	if o.lend[to] == nil {
		o.lend[to] = &forOne{}
	}
	return o.lend[to]
}

func (t *Tender) publish(o *outbox) {
	if len(o.wants) > 0 {
		t.o.Network.SendWants(o.wants...)
		t.sent(kindWant, len(o.wants))
	}
	for _, to := range slices.Sorted(maps.Keys(o.lend)) {
		m := o.lend[to]
		if len(m.grants) > 0 {
			t.o.Network.SendGrants(to, m.grants...)
			t.sent(kindGrant, len(m.grants))
		}
		if len(m.returns) > 0 {
			t.o.Network.SendReturns(to, m.returns...)
			t.sent(kindReturn, len(m.returns))
		}
	}
}

func (t *Tender) sent(kind string, n int) {
	if t.metrics != nil {
		t.metrics.sent(kind, n)
	}
}

// ours reports whether it is this process that tends a partition: of the region's live
// processes that with the highest hash. Two at once are safe.
func (t *Tender) ours(id uint64) bool {
	own := weight(id, &t.o.Self)
	for _, p := range t.o.Processes() {
		if p != t.o.Self && weight(id, &p) > own {
			return false
		}
	}
	return true
}

func weight(id uint64, p *quota.Process) uint64 {
	var array [128]byte
	b := strconv.AppendUint(array[:0], id, 16)
	b = append(append(b, ' '), p.Instance...)
	b = strconv.AppendInt(append(b, ' '), p.Boot, 16)
	return xxhash.Sum64(b)
}

// leave returns what is free of the loans, if nobody else of the region can.
func (t *Tender) leave() {
	for _, p := range t.o.Processes() {
		if p != t.o.Self {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnTimeout)
	defer cancel()
	var plans []*planned
	for _, p := range t.tended {
		b, ok := t.o.Bound(p.key.Policy, p.key.Limit)
		if !ok || len(p.book.Held) == 0 {
			continue
		}
		x := p.returnAll(&b)
		// No more, please. It is newer than the last want, which may have had the same time.
		x.want = &loan.Want{Epoch: b.Epoch, Time: p.at + 1, Share: b.Share, Ceil: b.Share}
		plans = append(plans, x)
	}
	t.carryOut(ctx, plans)
}
