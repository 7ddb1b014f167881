package loans

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota/loan"
	"github.com/regiond/regiond/sync/wire"
)

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

// whole reports whether the store still has what it had of the loans in this epoch.
func (t *Tender) whole(p *tended, v *store.Verdict) bool {
	if p.book.Lost(v.StoreUS, &v.Loans.State) {
		t.o.Lost()
		return false
	}
	return true
}

// look takes in what the store replied, and reports whether it still has what it had.
func (t *Tender) look(p *tended, b *Bound, v *store.Verdict) bool {
	s := b.store()
	whole := p.book.Store.Epoch != s.Epoch || p.book.Terms != p.plan.Terms || t.whole(p, v)
	if n := len(p.book.Held); n > 0 && p.book.Store.Epoch != s.Epoch && t.metrics != nil {
		reason := voidClock
		if p.book.Store.Lost != s.Lost {
			reason = voidLost
		}
		t.metrics.voided.Add(int64(n), "reason", reason)
	}
	p.at = v.StoreUS
	p.book = loan.Book{Region: t.o.Self.Region, Terms: p.plan.Terms, Store: s, Share: b.Share, State: v.Loans.State}
	return whole
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
	out := outbox{}
	for i, x := range of {
		if v := &verdicts[i]; v.Err == nil && v.Loans != nil {
			t.carriedOut(x, v, out)
		}
	}
	for _, x := range plans {
		for _, o := range x.send {
			out.to(o.To).Grants = append(out.to(o.To).Grants, wire.Grant{PartitionID: x.p.id, Grant: o.Grant})
		}
		if x.want != nil {
			out.to("").Wants = append(out.to("").Wants, t.wantOf(x))
		}
	}
	t.publish(out)
}

// carriedOut takes in what came of a plan.
func (t *Tender) carriedOut(x *planned, v *store.Verdict, out outbox) {
	p, l := x.p, v.Loans
	if !t.whole(p, v) {
		return
	}
	p.book.State = l.State
	for n, o := range x.ops {
		r := l.Results[n]
		switch {
		case o.Kind == loan.OpLend && r.Grant.ID != loan.ID{}:
			r.Grant.From = t.o.Self.Region
			p.plan.Granted(x.now, o.To, r.Grant)
			out.to(o.To).Grants = append(out.to(o.To).Grants, wire.Grant{PartitionID: p.id, Grant: r.Grant})
		case o.Kind == loan.OpReturn && r.Back > 0:
			out.to(o.To).Returns = append(out.to(o.To).Returns, wire.Return{PartitionID: p.id, Loan: o.ID, Back: r.Back})
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

// outbox is what one step publishes, by recipient; "" is every region.
type outbox map[string]*wire.Loans

func (o outbox) to(region string) *wire.Loans {
	if o[region] == nil {
		o[region] = &wire.Loans{}
	}
	return o[region]
}

func (t *Tender) publish(o outbox) {
	for _, to := range slices.Sorted(maps.Keys(o)) {
		t.o.Send(to, o[to])
		if t.metrics != nil {
			t.metrics.sent(o[to])
		}
	}
}
