package loans

import (
	"strings"
	"time"

	"github.com/regiond/regiond/internal/base/expiring"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/quota/loan"
)

// active is what the request path keeps of a partition that was asked for lately.
type active struct {
	key     quota.CounterKey
	asked   int64 // units since they were taken last
	charged int64
	cost    int64 // the largest of one request
	denied  bool
	woken   bool // it is in partitions.woken, or tended
}

// partitions are those that were asked for lately, at most so many; the one that is asked
// for least goes first. Safe for concurrent use.
type partitions struct {
	all *expiring.Map[uint64, active]
}

// keptFor is how long a partition is kept after it was asked for last, µs: what it asked
// before is over for the planner, too.
const keptFor = 10_000_000

// add counts one decision about the partition with an id and a key that is not kept, and reports whether the partition has to be woken.
func (p *partitions) add(id uint64, key *quota.CounterKey, a *loan.Ask, nowUS int64) bool {
	s := p.all.Shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.Get(id, nowUS)
	if e == nil {
		if !s.Take(1, nowUS) && !s.Evict() {
			return false
		}
		e = &expiring.Entry[active]{Value: active{key: cloneKey(key)}}
		s.Put(id, e)
	}
	e.Ends = nowUS + keptFor
	v := &e.Value
	v.asked += a.Units
	v.cost, v.denied = max(v.cost, a.Units), v.denied || a.Denied
	if a.Charged {
		v.charged += a.Units
	}
	if v.woken || !a.Short() {
		return false
	}
	v.woken = true
	return true
}

// take returns what was asked for since it was called last; false when the partition is not
// known. rest says that it is tended no more, and has to be woken again.
func (p *partitions) take(id uint64, nowUS int64, rest bool) (v active, ok bool) {
	s := p.all.Shard(id)
	s.Lock()
	defer s.Unlock()
	e := s.Get(id, nowUS)
	if e == nil {
		return active{}, false
	}
	v = e.Value
	e.Value.asked, e.Value.charged, e.Value.cost, e.Value.denied, e.Value.woken = 0, 0, 0, false, !rest
	return v, true
}

// cloneKey keeps what a request owns. Policy and limit are the configuration's.
func cloneKey(k *quota.CounterKey) quota.CounterKey {
	c := *k
	c.Tenant, c.Partition = strings.Clone(k.Tenant), strings.Clone(k.Partition)
	return c
}

// tended is a partition that is short, wanted, or has loans.
type tended struct {
	id      uint64
	key     quota.CounterKey
	plan    *loan.Planner
	terms   loan.Terms
	due     time.Duration
	useful  time.Duration // when it was short, wanted or lent last
	sibling time.Duration // when another process of ours wanted last
	named   time.Duration // when a want named the partition last
	asked   int64         // since the last plan
	cost    int64         // the largest of one request of them
	denied  bool
	mine    float64 // what this process charged, fading over a window
	all     float64 // of a limit with a calendar, what was charged in the region, fading as mine
	used    int64   // in the period of such a limit, as it was last
	folded  time.Duration
	limit   *quota.Limit
	keys    *store.KeyPlan // of limit alone
	log     []string       // key of
	inbox   []store.LoanOp
	wants   []loan.Want
	book    loan.Book // as the store kept it at its TIME at
	at      int64
}

func (p *tended) queue(op store.LoanOp) {
	if len(p.inbox) < maxWaiting { // what is lost is repeated
		p.inbox = append(p.inbox, op)
	}
}

// rests is how long nothing has to be asked or wanted until all that is borrowed goes
// back. Where a region gets a request every second or two, those of a window are more than that.
func (p *tended) rests() time.Duration {
	if p.limit == nil {
		return restAfter
	}
	return max(restAfter, time.Duration(p.plan.Window)*time.Microsecond/8)
}

// lent and borrowed are how many units are, in the period that counts if there is a calendar.
func (p *tended) lent() int64     { return loan.Left(p.book.Lent, p.book.Period.Number) }
func (p *tended) borrowed() int64 { return p.book.Borrowed(p.at, p.book.Period.Number) }

// remembers is for how long the planner is kept after that, while it plans nothing.
func (p *tended) remembers() time.Duration {
	return time.Duration(p.plan.Remembers(p.book.Share)) * time.Microsecond
}

// take adds what was asked for here.
func (p *tended) take(v active, now time.Duration) {
	p.asked += v.asked
	p.cost, p.denied = max(p.cost, v.cost), p.denied || v.denied
	p.mine += float64(v.charged)
	if v.asked > 0 {
		p.useful = now
	}
}

// configure goes by the limit as it is now, and returns the planner's tick.
func (p *tended) configure(b *Bound, trip time.Duration) time.Duration {
	tick := min(max(b.Limit.Window/200, StepEvery), 50*time.Millisecond)
	if p.limit != b.Limit { // one under an override is another one each time
		p.limit, p.keys = b.Limit, store.NewKeyPlan([]*quota.Limit{b.Limit})
		if p.plan == nil {
			p.plan = &loan.Planner{}
		}
		p.plan.Terms, p.terms = loan.PlanningTerms(b.Limit), loan.TermsOfLimit(b.Limit)
	}
	bound, _ := b.Limit.Bound()
	p.plan.Bound = max(1, bound) // with 0 the share is 0, and nothing is lent
	p.plan.Regions = b.Regions
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
