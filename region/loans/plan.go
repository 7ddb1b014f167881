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

// planned is what a plan wants the store to do.
type planned struct {
	p   *tended
	b   *Bound
	now int64 // the store's TIME by which it was planned
	ops []store.LoanOp
}

// whole reports whether the store still has what it had of the loans in this epoch.
func (t *Tender) whole(p *tended, v *store.Verdict) bool {
	if p.book.Lost(v.StoreUS, &v.Loans.State) {
		t.o.Lost(min(p.at, v.StoreUS))
		return false
	}
	return true
}

// look takes in what the store replied, and reports whether it still has what it had.
func (t *Tender) look(p *tended, b *Bound, v *store.Verdict) bool {
	before, voided := p.book.Bound, len(p.book.Held)
	whole := before.Epoch != b.Epoch || t.whole(p, v)
	p.at = v.StoreUS
	p.book = loan.Book{Region: t.o.Self.Region, Terms: p.terms, Bound: b.Bound, Period: v.Loans.Period, State: v.Loans.State}
	if p.book.Period.Number != 0 {
		p.book.Bound = b.In(p.book.Period.Number)
		voided -= len(p.book.Held)
	}
	if voided > 0 && before.Epoch != b.Epoch {
		reason := voidClock
		if before.LostIn != b.LostIn || before.BurntUntilUS != p.book.BurntUntilUS {
			reason = voidLost
		}
		t.metrics.voided.Add(int64(voided), "reason", reason)
	}
	return whole
}

// returnAll returns all that is borrowed, as far as it is free.
func (p *tended) returnAll(b *Bound) *planned {
	x := &planned{p: p, b: b, now: p.at}
	for _, h := range p.book.Held {
		if h.Period != p.book.Period.Number {
			continue
		}
		x.ops = append(x.ops, store.LoanOp{Kind: store.LoanReturn, Peer: h.Peer, ID: h.ID, Units: h.Left()})
	}
	return x
}

// plan plans for one partition. What needs no call is in out.
func (t *Tender) plan(p *tended, b *Bound, v *store.Verdict, now time.Duration, out outbox) *planned {
	for _, w := range p.wants {
		p.plan.Receive(v.StoreUS, w)
	}
	p.wants = nil
	used := v.Loans.Used
	asked := int64(float64(p.asked) * p.others(used, now))
	ops, want := p.plan.Plan(&p.book, v.StoreUS, used, asked, p.cost, p.denied, t.o.Random)
	p.asked, p.cost, p.denied = 0, 0, false
	x := &planned{p: p, b: b, now: v.StoreUS}
	for _, o := range ops {
		switch o.Kind {
		case loan.OpSend:
			out.grant(o.To, p, o.Grant)
		case loan.OpLend:
			x.ops = append(x.ops, store.LoanOp{Kind: store.LoanLend, Units: o.Units, Request: o.Want.Request(o.ID)})
		case loan.OpReturn:
			x.ops = append(x.ops, store.LoanOp{Kind: store.LoanReturn, Peer: o.To, ID: o.ID, Units: o.Units})
		case loan.OpRecall:
			x.ops = append(x.ops, store.LoanOp{Kind: store.LoanRecall, Units: o.Units, Until: o.Until})
		}
	}
	if want != nil {
		t.want(p, *want, out)
	}
	return x
}

// others is how many times as much as here is asked for in the whole region, by what was
// charged: its other processes do not tell what they deny. What was used in a period counts as far as it is new.
func (p *tended) others(used int64, now time.Duration) float64 {
	fades := max(0, 1-float64(now-p.folded)/float64(p.plan.Window*1000))
	p.mine, p.all, p.folded = p.mine*fades, p.all*fades, now
	all := float64(used)
	if p.book.Period.Number != 0 {
		p.all += float64(max(0, used-p.used))
		all, p.used = p.all, used
	}
	if p.mine < 1 {
		return 1
	}
	return min(max(1, all/p.mine), mostOthers)
}

// carryOut carries plans out, and publishes what follows with what is in out.
func (t *Tender) carryOut(ctx context.Context, plans []*planned, out outbox) {
	plans = slices.DeleteFunc(plans, func(x *planned) bool { return len(x.ops) == 0 })
	calls := make([]store.Call, len(plans))
	for i, x := range plans {
		calls[i] = x.p.call(x.b, x.ops)
	}
	verdicts := t.ask(ctx, calls)
	for i, x := range plans {
		if v := &verdicts[i]; v.Err == nil && v.Loans != nil && t.whole(x.p, v) {
			x.carriedOut(t.o.Self.Region, v.Loans, out)
		}
	}
	t.publish(out)
}

// carriedOut takes in what came of a plan of our region.
func (x *planned) carriedOut(self string, l *store.Loans, out outbox) {
	x.p.book.State = l.State
	for n, o := range x.ops {
		r := l.Results[n]
		switch {
		case o.Kind == store.LoanLend && r.Grant.ID != loan.ID{}:
			r.Grant.From = self
			x.p.plan.Granted(x.now, o.Request.From, r.Grant)
			out.grant(o.Request.From, x.p, r.Grant)
		case o.Kind == store.LoanReturn && r.Back > 0:
			m := out.to(o.Peer)
			m.Returns = append(m.Returns, wire.Return{PartitionID: x.p.id, Loan: o.ID, Back: r.Back})
		}
	}
}

// outbox is what one step publishes, by recipient; "" is every region.
type outbox map[string]*wire.Loans

func (o outbox) to(region string) *wire.Loans {
	if o[region] == nil {
		o[region] = &wire.Loans{}
	}
	return o[region]
}

func (o outbox) grant(to string, p *tended, g loan.Grant) {
	m := o.to(to)
	m.Grants = append(m.Grants, wire.Grant{PartitionID: p.id, Grant: g})
}

// want adds a want of ours for a partition, which it names now and then.
func (t *Tender) want(p *tended, n loan.Want, out outbox) {
	w := wire.Want{PartitionID: p.id, Want: n}
	w.From, w.Held = t.o.Self.Region, slices.Clone(w.Held)
	if now := t.o.Now(); now-p.named >= keyEvery {
		p.named = now
		w.Partition = &p.key
	}
	m := out.to("")
	m.Wants = append(m.Wants, w)
}

func (t *Tender) publish(o outbox) {
	for _, to := range slices.Sorted(maps.Keys(o)) {
		t.o.Send(to, o[to])
		t.metrics.sent(o[to])
	}
}
