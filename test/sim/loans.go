package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/region/loans"
	"github.com/regiond/regiond/region/state"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/wire"
)

// lending is what a process has in a world of limits with a bound: its side of the region's
// durable state and its tender, joined as internal/daemon joins them. Their steps come
// with the world's events.
type lending struct {
	p       *process
	state   *state.State
	fenced  limitertest.Watched // the region's store
	late    time.Duration       // how long ago what is carried out now was sent
	turn    time.Duration       // when the next turn of state is due
	since   time.Duration       // when the first one was; never: there was none
	tender  *loans.Tender
	step    time.Duration // when the tender is stepped next
	stepped time.Duration
	seen    string      // of the state, that the view was refreshed by
	wants   []wire.Want // the newest of each region and partition, for folly
}

func newLending(p *process) *lending {
	return &lending{p: p, since: never, step: never, stepped: -time.Second}
}

// open makes the parts. The mesh gives what it receives to lending, and takes from it.
func (d *lending) open() (err error) {
	p, w := d.p, d.p.region.w
	seen, err := clock.New(clock.Options{Now: func() time.Duration { return max(0, p.now()-d.late) }})
	if err != nil {
		return err
	}
	d.fenced = limitertest.Watched{Store: &p.region.store, Clock: seen}
	d.state = state.New(state.Options{
		Members: p.members, Eval: d.eval, Clock: seen, Now: p.now, HostUS: p.hostUS, Logger: w.log,
	})
	d.tender, err = loans.New(loans.Options{
		Self: p.self, Now: p.now, Store: d, Send: d.send, Bound: d.bound, Processes: d.siblings,
		Lost: func(thereUS int64) {
			if !w.heedless {
				d.state.Lose(thereUS)
			}
		},
		Seen:   d.state.Seen,
		Trip:   func() time.Duration { return w.o.delay(0, len(w.regions)-1) },
		Random: w.dice.Float64,
	})
	return err
}

// eval is state.Eval. TIME is read when the answer is there, which is the worst that may be: its offset is then at an end
// of what the time that it took leaves possible.
func (d *lending) eval(ctx context.Context, script, key string, args ...any) (any, error) {
	d.late = 0
	s := d.p.region
	reply, err := s.store.eval(ctx, script, key, args...)
	if err == nil {
		if d.since < s.harmed {
			s.harmed = 0
		}
		d.since = min(d.since, s.w.now)
	}
	return reply, err
}

// Decide implements store.Store. A server that does not know the script yet, since it has taken over, is asked for the state
// first, as by redisstore.Options.Unknown; and each call is carried out some time after it was sent.
func (d *lending) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	if s := &d.p.region.store; s.strange && !s.away {
		s.strange = false
		d.takeTurn()
	}
	d.late = d.p.region.w.late()
	d.fenced.Decide(ctx, calls, verdicts)
	d.late = 0
}

// ResetAll implements store.Store.
func (d *lending) ResetAll(ctx context.Context, prefix string, us int64) error {
	return d.p.region.store.ResetAll(ctx, prefix, us)
}

// late is how long a call is on its way to the store: where that is slow, now and then for longer than it may.
func (w *World) late() time.Duration {
	if !w.o.Slow {
		return 0
	}
	if w.dice.IntN(30) == 0 {
		return time.Duration(w.dice.Int64N(int64(200 * time.Millisecond)))
	}
	return time.Duration(w.dice.Int64N(int64(3 * time.Millisecond)))
}

// bound is what the tender goes by.
func (d *lending) bound(ctx context.Context, key *quota.CounterKey) (b loans.Bound, ok bool, err error) {
	if b.Limit, err = d.p.limiter.LimitOf(ctx, key); b.Limit == nil {
		return b, false, err
	}
	b.Bound, b.Regions, ok = d.p.ceilings.Bound(key.Policy, b.Limit)
	return b, ok, nil
}

// siblings are the live processes of the region, or none in a world in which they do not know
// of each other: then all tend.
func (d *lending) siblings() []quota.Process {
	if d.p.region.w.o.AllTend {
		return nil
	}
	return d.p.members.Siblings()
}

// send is loans.Options.Send.
func (d *lending) send(to string, l *wire.Loans) {
	d.p.region.w.stats.Grants += int64(len(l.Grants))
	d.p.mesh.SendLoans(to, l)
}

// receive is sync.Options.Loans.
func (d *lending) receive(l *wire.Loans) {
	if d.p.region.w.o.Folly {
		for _, n := range l.Wants {
			d.wants = append(slices.DeleteFunc(d.wants, func(o wire.Want) bool { return o.From == n.From && o.PartitionID == n.PartitionID }), n)
		}
	}
	d.tender.Receive(l)
}

// takeTurn has the process take part in the durable state now.
func (d *lending) takeTurn() {
	signal.Taken(d.state.Requested())
	d.late = d.p.region.w.late()
	d.state.Turn(context.Background())
	d.late, d.turn = 0, d.p.region.w.now+d.state.Pause()
	now, before := d.state.Snapshot().Text, d.seen
	for _, m := range d.p.members.Others() {
		if m.Store.Alive {
			now += fmt.Sprint(m.Process, m.Store.Sees)
		}
	}
	if d.seen = now; before != now {
		d.p.look = d.p.region.w.now
	}
}

// advance does what is due.
func (d *lending) advance() {
	w := d.p.region.w
	if w.now >= d.turn || signal.Taken(d.state.Requested()) {
		d.takeTurn()
	}
	if signal.Taken(d.tender.Woken()) {
		d.step = min(d.step, max(w.now, d.stepped+cmp.Or(w.o.LoanStep, loans.StepEvery)))
	}
	if w.now < d.step {
		return
	}
	d.stepped, d.step = w.now, never
	if next := d.tender.Step(context.Background()); next >= 0 {
		d.step = max(d.p.born+next, w.now+cmp.Or(w.o.LoanStep, loans.StepEvery))
	}
}

// due is when advance has something to do.
func (d *lending) due() time.Duration { return min(d.turn, d.step) }

// leave ends what advance did.
func (d *lending) leave() {
	d.tender.Leave()
	d.state.Leave()
}

// follyIn is of how many checks one is followed by folly.
const follyIn = 100

// folly is what no policy would do, and any may: as much as the rules allow, for no reason.
func (d *lending) folly(tenant string) {
	w := d.p.region.w
	if !w.o.Folly || w.dice.IntN(follyIn) > 0 {
		return
	}
	policy := w.o.policyOf(tenant)
	key := quota.CounterKey{Tenant: tenant, Policy: policy.Name, Limit: policy.Limits[0].Name}
	b, ok, err := d.bound(context.Background(), &key)
	if !ok || err != nil || b.Epoch == 0 {
		return
	}
	key.Partition, key.WindowUS, key.Calendar = string(quota.AppendPartition(nil, b.Limit, nil)), b.Limit.WindowUS(), b.Limit.Calendar.ID()
	id := w.key.LoansID(&key)
	held, lent := d.operate(&b, &key, store.LoanOp{Kind: store.LoanRecall})
	if held == nil {
		return
	}
	wants := slices.DeleteFunc(slices.Clone(d.wants), func(n wire.Want) bool { return n.PartitionID != id })
	if len(wants) > 0 {
		n := wants[w.dice.IntN(len(wants))]
		r := n.Request(loan.ID{})
		for _, l := range lent.State.Lent {
			if l.Peer == n.From && w.dice.IntN(2) == 0 {
				r.ID = l.ID
			}
		}
		units, _ := b.Limit.Bound()
		if g, _ := d.operate(&b, &key, store.LoanOp{Kind: store.LoanLend, Units: w.dice.Int64N(units + 1), Request: r}); g != nil && g.Grant.ID != (loan.ID{}) {
			g.Grant.From = d.p.self.Region
			d.send(n.From, &wire.Loans{Grants: []wire.Grant{{PartitionID: id, Grant: g.Grant}}})
		}
	}
	if n := len(lent.State.Held); n > 0 && w.dice.IntN(2) == 0 {
		h := lent.State.Held[w.dice.IntN(n)]
		if r, _ := d.operate(&b, &key, store.LoanOp{Kind: store.LoanReturn, Peer: h.Peer, ID: h.ID, Units: w.dice.Int64N(h.Units + 1)}); r != nil && r.Back > 0 {
			d.send(h.Peer, &wire.Loans{Returns: []wire.Return{{PartitionID: id, Loan: h.ID, Back: r.Back}}})
		}
	}
}

// operate has the store carry out one operation; nil: it did not.
func (d *lending) operate(b *loans.Bound, key *quota.CounterKey, op store.LoanOp) (*store.LoanResult, *store.Loans) {
	plan := store.NewKeyPlan([]*quota.Limit{b.Limit})
	var verdict [1]store.Verdict
	d.Decide(context.Background(), []store.Call{{
		Op: store.OpLoans, Plan: plan, Keys: []string{store.UsageKey(key)}, Counters: []quota.CounterKey{*key}, Ceilings: plan.Capacities,
		Bounds: []quota.Bound{b.Bound}, Loans: []store.LoanOp{op},
	}}, verdict[:])
	if verdict[0].Loans == nil {
		return nil, nil
	}
	return &verdict[0].Loans.Results[0], verdict[0].Loans
}

// mayBeLate is by how much a message may be late: one about loans by four of their lengths.
func (w *World) mayBeLate(subject string) time.Duration {
	if w.bound == nil || !strings.HasPrefix(subject, meshsync.SubjectLoan) {
		return lateBy
	}
	longest := time.Duration(0)
	for i := range w.o.Policies {
		longest = max(longest, w.o.Policies[i].Limits[0].Window)
	}
	return 4 * time.Duration(loan.TermsOf(longest.Microseconds()).Length) * time.Microsecond
}
