package loans

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/internal/base/signal"
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
	// StepEvery is the least time between two steps.
	StepEvery = 5 * time.Millisecond
	// callsPerSecond bounds the calls of one process for partitions, which take Redis about 30 µs each.
	callsPerSecond = 4_000
	// restAfter is the least time for which a partition is planned for after it was asked for or wanted last. From then on it is
	// due every restTick. When all that it borrows is returned, as it comes free, tended.rests says: after W/8 if that is longer.
	restAfter = 2 * time.Second
	restTick  = time.Second
	// coverAfter is for how long the process that should tend a short partition is silent until another one does.
	coverAfter = time.Second
	// keyEvery is how often a want names the partition itself, for regions that never met it or did not hear so.
	keyEvery = time.Second
	// mostOthers bounds how many times as much is asked for in the region as here.
	mostOthers = 16
	// maxWaiting bounds what was received for a partition and was not carried out yet, and
	// maxReceived what was received for any.
	maxWaiting  = 64
	maxReceived = 16_384
	// returnTimeout bounds the last returns when the region's last process stops.
	returnTimeout = 500 * time.Millisecond
)

// Bound is what holds for a partition of a bounded limit in this region now.
type Bound struct {
	quota.Bound
	Limit   *quota.Limit // with the units of the tenant's override
	Regions int          // of the topology
}

// Store carries out calls of store.OpLoans, as store.Store has it.
type Store interface {
	Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict)
}

// Options are what New needs. Meter may be nil.
type Options struct {
	Self  quota.Process
	Now   func() time.Duration // this process's monotonic clock
	Store Store
	// Send publishes wants for all regions where to is "", or grants and returns for one, as
	// sync.Mesh.SendLoans.
	Send func(to string, l *wire.Loans)
	// Bound is what holds for a partition under the configuration and the override in force; false: it has no bound. An error
	// is that the override cannot be read now.
	Bound func(ctx context.Context, key *quota.CounterKey) (Bound, bool, error)
	// Processes are the live processes of our region, ourselves included or not.
	Processes func() []quota.Process
	// Lost is called when the store has lost loans that it had shown, last at a TIME of it.
	Lost func(thereUS int64)
	// Seen is called with each epoch of our region that a peer shows to have received; nil: it is not.
	Seen func(epoch uint32)
	// Trip is how long a message to another region takes.
	Trip func() time.Duration
	// MaxActive and MaxTended are these constants where 0.
	MaxActive, MaxTended int
	// Random draws from [0, 1); nil: at random.
	Random func() float64
	Meter  metric.Meter
}

// Tender lends and borrows for all partitions of a region that need it, as one of the region's processes. Asked and
// Receive may be called from anywhere and never wait; Step, Woken and Leave are for Run, or for a simulation instead of it.
type Tender struct {
	o      Options
	active partitions
	wake   chan struct{} // capacity 1

	mu       sync.Mutex // guards what follows
	woken    []uint64
	received []*wire.Loans
	entries  int // of received

	tended   map[uint64]*tended // Step's own, as all below
	stepped  time.Duration
	credit   float64
	observed time.Duration
	metrics  *metrics
}

// New returns a Tender that tends nothing yet.
func New(o Options) (*Tender, error) {
	o.MaxActive, o.MaxTended = cmp.Or(o.MaxActive, MaxActive), cmp.Or(o.MaxTended, MaxTended)
	if o.Random == nil {
		o.Random = rand.Float64
	}
	t := &Tender{
		o: o, active: partitions{expiring.New[uint64, active](o.MaxActive)},
		wake: make(chan struct{}, 1), tended: map[uint64]*tended{},
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
	signal.Send(t.wake)
}

// Receive takes what a process of another region sends about loans, or the wants of a sibling.
// They are the Tender's from then on.
func (t *Tender) Receive(l *wire.Loans) {
	t.mu.Lock()
	if n := t.entries + l.Len(); n <= maxReceived { // what is lost is repeated
		t.received, t.entries = append(t.received, l), n
	}
	t.mu.Unlock()
	signal.Send(t.wake)
}

// Run steps when something is due, until ctx ends. If no other process of the region is
// alive it then returns what is free of the loans that it knows.
func (t *Tender) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			t.Leave()
			return nil
		case <-timer.C:
		case <-t.Woken():
		}
		next := t.Step(ctx)
		if next < 0 {
			timer.Stop()
			continue
		}
		timer.Reset(max(next-t.o.Now(), 0))
		select { // not more often, however much arrives
		case <-ctx.Done():
		case <-time.After(StepEvery):
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

// Woken receives when Step has something to do before it is due.
func (t *Tender) Woken() <-chan struct{} { return t.wake }

// collect takes in what was asked for and received since the last step.
func (t *Tender) collect(now time.Duration) {
	t.mu.Lock()
	woken, messages := t.woken, t.received
	t.woken, t.received, t.entries = nil, nil, 0
	t.mu.Unlock()
	for _, id := range woken {
		if v, ok := t.active.take(id, now.Microseconds(), false); ok {
			p := t.tendedOf(id, v.key, now)
			p.take(v, now)
			p.due = now
		}
	}
	for _, l := range messages {
		for i := range l.Wants {
			for _, h := range l.Wants[i].Held {
				t.seen(l, h.Peer, h.ID.Epoch)
			}
			t.wanted(&l.Wants[i], now)
		}
		for _, g := range l.Grants {
			t.seen(l, t.o.Self.Region, g.Epoch)
			t.lent(g.PartitionID, store.LoanOp{Kind: store.LoanAccept, Grant: g.Grant}, now)
		}
		for _, r := range l.Returns {
			t.seen(l, t.o.Self.Region, r.Loan.Epoch)
			t.lent(r.PartitionID, store.LoanOp{Kind: store.LoanReturned, Peer: l.From.Region, ID: r.Loan, Units: r.Back}, now)
		}
	}
}

// seen notes the epoch of a region in a message of a peer, if it is ours.
func (t *Tender) seen(l *wire.Loans, region string, epoch uint32) {
	if t.o.Seen != nil && region == t.o.Self.Region && l.From.Region != region {
		t.o.Seen(epoch)
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

func (t *Tender) tendedOf(id uint64, key quota.CounterKey, now time.Duration) *tended {
	p := t.tended[id]
	if p == nil {
		if len(t.tended) >= t.o.MaxTended {
			t.dropOldest(now)
		}
		p = &tended{id: id, key: key, log: []string{store.UsageKey(&key)}, due: now, useful: now, sibling: -coverAfter, named: -keyEvery, folded: now}
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
		b, ok, err := t.o.Bound(ctx, &p.key)
		if err != nil { // as while the store is away
			p.due = now + restTick
			continue
		}
		if !ok || b.Epoch == 0 || b.Regions < 2 || !p.key.Of(b.Limit) { // under another window it has another id
			t.rest(p, now)
			continue
		}
		if v, ok := t.active.take(p.id, now.Microseconds(), false); ok {
			p.take(v, now)
		}
		tick := p.configure(&b, trip)
		p.due = now + tick
		if !t.ours(p.id) && now-p.sibling < coverAfter && len(p.inbox) == 0 {
			p.asked, p.cost, p.denied = 0, 0, false // the one whose turn it is does that
			if now-p.useful > p.rests() {
				t.rest(p, now)
			}
			continue
		}
		calls, bounds, at = append(calls, p.call(&b, p.inbox)), append(bounds, b), append(at, p)
		p.inbox = nil
	}
	verdicts := t.ask(ctx, calls)
	var plans []*planned
	out := outbox{}
	for i, p := range at {
		v, b := &verdicts[i], &bounds[i]
		if v.Err != nil || v.Loans == nil {
			continue // away, or busy
		}
		switch whole := t.look(p, b, v); {
		case !whole: // the bound closes
		case now-p.useful <= p.rests():
			patient := p.book.Period.Number != 0 && p.plan.Patience(p.at) > restTick.Microseconds()
			if now-p.useful > restAfter || patient {
				p.due = now + restTick
			}
			plans = append(plans, t.plan(p, b, v, now, out))
		case p.book.Borrows() || p.lent() > 0:
			// In a period nothing that is in use comes free.
			if p.due = now + restTick; p.book.Period.Number != 0 || p.lent() == 0 && p.borrowed() == 0 {
				p.due = max(p.due, now+(now-p.useful)/2)
			}
			plans = append(plans, p.returnAll(b))
		case now-p.useful < p.remembers():
			t.active.take(p.id, now.Microseconds(), true)
			p.due = p.useful + p.remembers()
		default:
			t.rest(p, now)
		}
	}
	t.carryOut(ctx, plans, out)
}

// ask has the store carry out calls, and returns its verdicts.
func (t *Tender) ask(ctx context.Context, calls []store.Call) []store.Verdict {
	verdicts := make([]store.Verdict, len(calls))
	if len(calls) > 0 {
		t.o.Store.Decide(ctx, calls, verdicts)
	}
	return verdicts
}

// ours reports whether it is this process that tends a partition: of the region's live
// processes that with the highest hash. Two at once are safe.
func (t *Tender) ours(id uint64) bool {
	own := weight(id, &t.o.Self)
	return !slices.ContainsFunc(t.o.Processes(), func(p quota.Process) bool { return p != t.o.Self && weight(id, &p) > own })
}

func weight(id uint64, p *quota.Process) uint64 {
	var array [128]byte
	b := strconv.AppendUint(array[:0], id, 16)
	b = append(append(b, ' '), p.Instance...)
	b = strconv.AppendInt(append(b, ' '), p.Boot, 16)
	return xxhash.Sum64(b)
}

// Leave returns what is free of the loans, if nobody else of the region can. It is the last step.
func (t *Tender) Leave() {
	if slices.ContainsFunc(t.o.Processes(), func(p quota.Process) bool { return p != t.o.Self }) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), returnTimeout)
	defer cancel()
	var plans []*planned
	out := outbox{}
	for _, p := range t.tended {
		b, ok, err := t.o.Bound(ctx, &p.key)
		if !ok || err != nil || !p.book.Borrows() {
			continue
		}
		// A want for nothing more. It is newer than the last one, which may have had the same time.
		t.want(p, loan.Want{Epoch: b.Epoch, Time: p.at + 1, Share: b.Share, Ceil: b.Share, Period: p.book.Period.Number}, out)
		plans = append(plans, p.returnAll(&b))
	}
	t.carryOut(ctx, plans, out)
}
