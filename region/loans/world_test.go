package loans_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/loans"
	"github.com/regiond/regiond/sync/wire"
)

const step = 5 * time.Millisecond

// world is some regions in virtual time. Their stores keep loan.Book and a log for each
// partition; messages take time, and get lost where a link is cut.
type world struct {
	t       *testing.T
	units   int64         // B
	window  time.Duration // that is judged
	delay   time.Duration
	rng     *rand.Rand
	now     time.Duration // true time
	regions []*region
	cut     map[[2]int]bool
	flying  []flight
	log     map[string][]entry // of all regions, by partition, in true time
	worst   int64              // window of any partition
	calls   int
	most    int // partitions that a process tends; 0 for the usual
	step    time.Duration
}

type flight struct {
	at    time.Duration
	to    int
	loans wire.Loans
}

type entry struct {
	at    time.Duration
	units int64
}

type region struct {
	w     *world
	i     int
	name  string
	ahead time.Duration // of its clock
	share int64
	limit *quota.Limit // of its file
	store loan.Store
	books map[string]*kept
	nodes []*node
	away  bool
	blind bool // overrides cannot be read
}

type kept struct {
	loan.Book
	log []entry // by the region's clock
}

type node struct {
	*loans.Tender
	self quota.Process
}

func newWorld(t *testing.T, seed uint64, regions int, units int64, window time.Duration) *world {
	w := &world{t: t, units: units, window: window, step: step, delay: 80 * time.Millisecond, rng: rand.New(rand.NewPCG(seed, 1)), cut: map[[2]int]bool{}, log: map[string][]entry{}}
	n := int64(regions)
	for i := range n {
		r := &region{w: w, i: int(i), name: string(rune('a' + i)), ahead: time.Hour + time.Duration(w.rng.Int64N(int64(time.Hour)))}
		r.share, r.store = units*(i+1)/n-units*i/n, loan.Store{Epoch: 1}
		r.books = map[string]*kept{}
		r.per(window)
		w.regions = append(w.regions, r)
		r.start()
	}
	return w
}

// per has the region's file have a window.
func (r *region) per(window time.Duration) {
	r.limit = &quota.Limit{Name: "strict", Units: r.w.units, Window: window, Scope: quota.ScopeGlobal, MaxOvershoot: quota.Strict}
}

// holds has the region's file have a max_ttl.
func (r *region) holds(maxTTL time.Duration) {
	l := *r.limit
	l.Counts, l.HeldFor = quota.CountsTokens, maxTTL
	r.limit = &l
}

// start has one process more serve the region.
func (r *region) start() *node {
	w := r.w
	n := &node{self: quota.Process{Region: r.name, Instance: fmt.Sprint(len(r.nodes)), Boot: int64(w.now) + 1}}
	var err error
	n.Tender, err = loans.New(loans.Options{
		Self: n.self, Now: func() time.Duration { return w.now }, Store: r, Send: (&network{r, n.self}).send,
		Bound: func(_ context.Context, key *quota.CounterKey) (loans.Bound, bool, error) {
			if r.blind {
				return loans.Bound{}, false, context.DeadlineExceeded
			}
			return loans.Bound{Bound: r.bound(), Limit: r.limit, Regions: len(w.regions)}, key.Limit == "strict", nil
		},
		Processes: func() (all []quota.Process) {
			for _, n := range r.nodes {
				all = append(all, n.self)
			}
			return all
		},
		Lost: func(int64) { r.lose() },
		Trip: func() time.Duration { return w.delay }, Random: w.rng.Float64,
		MaxActive: w.most, MaxTended: w.most,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	r.nodes = append(r.nodes, n)
	return n
}

func (r *region) bound() quota.Bound {
	b := quota.Bound{Share: r.share, Epoch: r.store.Epoch, SinceUS: r.store.Since}
	if r.store.Lost > 0 {
		b.BurntUntilUS = r.store.Lost + loan.TermsOfLimit(r.limit).Keep()
	}
	return b
}

// lose begins another epoch, since the store has lost data.
func (r *region) lose() {
	r.store = loan.Store{Epoch: r.store.Epoch + 1, Since: r.us(), Lost: r.us()}
}

func (r *region) us() int64 { return (r.w.now + r.ahead).Microseconds() }

func (r *region) book(key *quota.CounterKey) *kept {
	b := r.books[key.Tenant]
	if b == nil {
		b = &kept{Book: loan.Book{Region: r.name}}
		r.books[key.Tenant] = b
	}
	b.Terms, b.Bound = loan.TermsOfLimit(r.limit), r.bound()
	if c := r.limit.Calendar; c != nil {
		now := c.At(r.us())
		b.Period = quota.PeriodUnits{Number: now.Number, End: now.End}
	}
	return b
}

// span is for how long usage counts now: for a window, or since the period began.
func (r *region) span() time.Duration {
	if c := r.limit.Calendar; c != nil {
		return time.Duration(r.us()-c.At(r.us()).Begin) * time.Microsecond
	}
	return r.limit.Window
}

func (b *kept) used(at, window time.Duration) (n int64) {
	b.log = slices.DeleteFunc(b.log, func(e entry) bool { return e.at <= at-window })
	from := b.CountsFrom(at.Microseconds())
	for _, e := range b.log {
		if e.at.Microseconds() >= from {
			n += e.units
		}
	}
	return n
}

// Decide implements loans.Store.
func (r *region) Decide(_ context.Context, calls []store.Call, verdicts []store.Verdict) {
	r.w.calls++
	for i := range calls {
		if r.away {
			verdicts[i].Err = context.DeadlineExceeded
			continue
		}
		verdicts[i] = r.carryOut(&calls[i])
	}
}

func (r *region) carryOut(c *store.Call) store.Verdict {
	b, now := r.book(&c.Counters[0]), r.us()
	used := b.used(r.w.now+r.ahead, r.span())
	l := &store.Loans{Used: used, Period: b.Period, Results: make([]store.LoanResult, len(c.Loans))}
	for i, o := range c.Loans {
		switch o.Kind {
		case store.LoanLend:
			l.Results[i].Grant, _ = b.Lend(now, used, o.Units, o.Request)
		case store.LoanAccept:
			l.Results[i].Changed = b.Accept(now, o.Grant)
		case store.LoanReturn:
			l.Results[i].Back = b.Return(now, used, o.Units, o.Peer, o.ID)
		case store.LoanReturned:
			b.Returned(now, o.Peer, o.ID, o.Units)
		case store.LoanRecall:
			b.SetRecall(now, o.Units, o.Until)
		}
	}
	b.Ceiling(now) // settles
	l.State = b.State
	l.State.Lent, l.State.Held = slices.Clone(b.Lent), slices.Clone(b.Held)
	return store.Verdict{Outcome: store.Admitted, StoreUS: now, Loans: l}
}

type network struct {
	r    *region
	self quota.Process
}

func (n *network) send(to string, l *wire.Loans) {
	l.From = n.self
	if to != "" {
		n.r.w.send(n.r.i, int(to[0]-'a'), flight{loans: *l})
		return
	}
	for j := range n.r.w.regions {
		n.r.w.send(n.r.i, j, flight{loans: *l})
	}
}

func (w *world) send(from, to int, f flight) {
	f.to, f.at = to, w.now+w.delay
	if from == to {
		f.at = w.now + time.Millisecond
	}
	if !w.cut[[2]int{from, to}] {
		w.flying = append(w.flying, f)
	}
}

// advance plays some virtual time.
func (w *world) advance(d time.Duration, each func()) {
	for until := w.now + d; w.now < until; {
		w.now += w.step
		arrived := w.flying[:0:0]
		w.flying = slices.DeleteFunc(w.flying, func(f flight) bool {
			if f.at <= w.now {
				arrived = append(arrived, f)
			}
			return f.at <= w.now
		})
		for _, f := range arrived {
			for _, n := range w.regions[f.to].nodes {
				if n.self != f.loans.From {
					n.Receive(&f.loans)
				}
			}
		}
		if each != nil {
			each()
		}
		for _, r := range w.regions {
			for _, n := range r.nodes {
				n.Step(context.Background())
			}
		}
	}
}

// ask asks region i for one unit, through any of its processes.
func (w *world) ask(i int, tenant string) bool {
	r := w.regions[i]
	return r.ask(r.nodes[w.rng.IntN(len(r.nodes))], tenant, 1)
}

// partition is a tenant's, and id its name between regions.
func (r *region) partition(tenant string) quota.CounterKey {
	return quota.CounterKey{Tenant: tenant, Policy: "p", Limit: "strict", WindowUS: r.limit.WindowUS(), Calendar: r.limit.Calendar.ID()}
}

func id(key *quota.CounterKey) uint64 { return wire.NewKey(nil, "").LoansID(key) }

func (r *region) ask(n *node, tenant string, units int64) bool {
	w := r.w
	key := r.partition(tenant)
	b := r.book(&key)
	used, at := b.used(w.now+r.ahead, r.span()), w.now+r.ahead
	ok := units <= b.Room(r.us(), used)
	if ok {
		b.log = append(b.log, entry{at, units})
		w.admit(tenant, units)
		used += units
	}
	c := b.Ceiling(r.us())
	n.Asked(id(&key), &key, loan.Ask{Units: units, Denied: !ok, Charged: ok, Remaining: max(0, c-used), Ceiling: c, Share: r.share})
	return ok
}

// admit is what a judge in true time knows.
func (w *world) admit(tenant string, units int64) {
	l := append(w.log[tenant], entry{w.now, units})
	l = slices.DeleteFunc(l, func(e entry) bool { return e.at <= w.now-w.window })
	w.log[tenant] = l
	sum := int64(0)
	for _, e := range l {
		sum += e.units
	}
	w.worst = max(w.worst, sum)
}
