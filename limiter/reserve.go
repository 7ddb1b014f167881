package limiter

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// A reservation, from its request to its end:
//
//	Reserve ─▶ resolve, planHold ─▶ decide as a check ─▶ reservation: an id, which is a sealed ticket
//	Settle, Extend ─▶ resolveClaim opens it ─▶ decide ─┬─ claimed: the store has carried it out
//	                                                   └─ claimLater: it is away, and a settle is kept (pending.go)
//
// The memory of this process mirrors what the store holds, as it does usage.

// keepReservation is for how long beyond the longest reservation the outcome of a settle is kept, so that it can be repeated.
const keepReservation = 10 * time.Minute

// holding is what a query has to do with a reservation.
type holding struct {
	claim     *quota.Claim // nil for a reserve
	ticket    *ticket      // of the claim
	shared    uint64       // ticket.shared of a reserve
	clamped   bool
	shortened bool  // by a bound
	stored    bool  // the store holds what is replayed while it is away
	nowUS     int64 // when the reserve was allowed, by the clock of the store that decided; or when a settle was kept
	expiresUS int64 // when what is held ends, 0 where nothing is
}

// Reserve decides the requests as Decide does, and holds their amounts: those that are allowed have a reservation.
func (l *Limiter) Reserve(ctx context.Context, rs []quota.Request) []quota.Outcome {
	return l.check(ctx, len(rs), func(i int) (*quota.Request, store.Op) { return &rs[i], store.OpReserve })
}

// Settle charges what reservations have used and frees the rest. A decision has a Settlement, but where the store was too busy
// and this process has no place to keep it: then nothing was charged.
func (l *Limiter) Settle(ctx context.Context, cs []quota.Claim) []quota.Outcome {
	return l.claims(ctx, cs, store.OpSettle)
}

// Extend has reservations last for so long from now.
func (l *Limiter) Extend(ctx context.Context, cs []quota.Claim) []quota.Outcome {
	return l.claims(ctx, cs, store.OpExtend)
}

func (l *Limiter) claims(ctx context.Context, cs []quota.Claim, op store.Op) []quota.Outcome {
	return l.run(ctx, len(cs), func(i int, q *query, rules *rules) error {
		err := q.resolveClaim(ctx, l, rules, &cs[i], op)
		if t := q.hold.ticket; t != nil {
			t.span.link(ctx)
		}
		return err
	})
}

func refusedClaim(fault quota.Fault, detail string) error {
	return invalid(fault, "/reservation", detail)
}

func errOver() error { return refusedClaim(quota.FaultOver, "is over, or was settled") }

func errNoHolds(policy, lacks string) error {
	return invalid(quota.FaultNoHolds, "/policy", fmt.Sprintf("%s takes no reservations: it has no %s", policy, lacks))
}

// planHold completes the call of a reserve. Where none of the limits that apply holds anything, it is a check of cost 1.
func (q *query) planHold() {
	if q.limits.keys.Holding == 0 {
		q.call.Op = store.OpCheck
		if q.call.Cost == 0 {
			q.call.Op = store.OpPeek
		}
		q.call.Cost = 1
		return
	}
	// An odd number is of the partition that unlisted tenants share, so that a replay by a process with a place for them knows.
	number := 2 * (rand.Int64N(store.MaxHoldID/2) + 1)
	if q.overflow {
		number--
	}
	q.call.Hold = store.Hold{
		ID: number, TTLUS: q.lasts(q.request.TTL).Microseconds(), KeepUS: q.plan.keepUS(),
	}
}

// keepUS is store.Hold.KeepUS.
func (p *policyPlan) keepUS() int64 { return (p.policy.MaxTTL + keepReservation).Microseconds() }

// lasts is how long a reservation is given that asks for so long; 0 leaves it to the policy.
func (q *query) lasts(ttl time.Duration) time.Duration {
	most := q.plan.policy.MaxTTL
	if ttl == 0 {
		ttl = min(most, quota.DefaultTTL)
		if q.limits != nil {
			ttl = q.limits.lease(ttl)
		}
	}
	q.hold.clamped = ttl > most
	return min(ttl, most)
}

// lease is the least that concurrent limits say; ttl without any.
func (s *limitPlan) lease(ttl time.Duration) time.Duration {
	least := time.Duration(0)
	for _, limit := range s.limits {
		if limit.Algorithm == quota.Concurrent && (least == 0 || limit.Window < least) {
			least = limit.Window
		}
	}
	return cmp.Or(least, ttl)
}

// holds takes note of what the store that decided a reserve holds for it.
func (q *query) holds(v *store.Verdict, d *quota.Decision) {
	if v.Outcome == store.Replayed {
		q.call.Hold.ID = v.Hold.ID
	}
	if d.Allowed && v.Hold.ExpiresUS > 0 {
		q.hold.nowUS, q.hold.expiresUS = v.StoreUS, v.Hold.ExpiresUS
		if v.Outcome == store.Admitted {
			q.shorten(v)
		}
	}
	if v.Hold.TooMany {
		d.Reason = quota.ReasonTooManyHolds
	}
}

// shorten takes note of a reservation that lasts for less than the call has asked for, since a bound allows no more.
func (q *query) shorten(v *store.Verdict) {
	if lasts := v.Hold.ExpiresUS - v.StoreUS; lasts < q.call.Hold.TTLUS {
		q.call.Hold.TTLUS, q.hold.shortened = lasts, true
	}
}

// looks reports whether a query spends nothing.
func (q *query) looks() bool {
	return q.call.Op == store.OpPeek || q.call.Op == store.OpReserve && q.call.Cost == 0
}

// reservation makes the id of a reserve that is allowed.
func (l *Limiter) reservation(ctx context.Context, q *query, d *quota.Decision) {
	r := q.request
	if !r.Reserve || !d.Allowed || r.Cost == 0 {
		return
	}
	t := &ticket{
		number: q.call.Hold.ID, amount: r.Cost, overflow: q.call.Hold.ID%2 == 1, shared: q.hold.shared, span: spanOf(ctx),
		region: q.rules.Region, tenant: r.Tenant, policy: d.Policy,
	}
	p := q.plan
	if d.Policy != p.policy.Name { // a replay of what another one admitted
		p, t.shared = q.rules.plans[d.Policy], 0
	}
	if r.Charges == nil && p != nil { // whose dimensions come with the claim
		for _, name := range p.policy.Dimensions() {
			if value, ok := r.Dimensions.Value(name); ok {
				t.dims = append(t.dims, quota.Dimension{Name: name, Value: value})
			}
		}
	}
	switch {
	case t.number == 0, !d.Replayed && (q.limits == nil || q.limits.keys.Holding == 0 || d.WouldDeny):
		t.heldBy = heldForNothing
	case d.Basis == quota.BasisLocal && !q.hold.stored:
		t.heldBy = heldByMemory
	case q.hold.expiresUS == 0:
		t.heldBy = heldByNobody
	}
	lasts := q.lasts(r.TTL)
	if q.hold.expiresUS == 0 {
		q.hold.nowUS = l.localUS()
		q.hold.expiresUS = q.hold.nowUS + lasts.Microseconds()
	}
	t.goneUS = q.hold.expiresUS + cmp.Or(p, q.plan).keepUS()
	if t.heldBy != heldByStore { // it ends by our clock; in minutes, so that a replay has the same id
		t.goneUS += time.Duration((l.timeUS() - l.localUS()) * 1000).Round(time.Minute).Microseconds()
	}
	left := min(max(0, time.Duration(q.hold.expiresUS-q.hold.nowUS)*time.Microsecond), lasts) // of a replay the store's clock may be set back
	d.Reservation = &quota.Reservation{ID: l.seal.seal(t), Amount: r.Cost, ExpiresIn: left, Clamped: q.hold.clamped || q.hold.shortened}
	if t.heldBy != heldForNothing && !d.Replayed {
		l.metrics.reserved.Add(d.Policy, r.Cost)
		now := l.localUS()
		l.open.add(t.number, openReservation{d.Policy, r.Cost, now + d.Reservation.ExpiresIn.Microseconds()}, now, l.metrics.ended)
	}
}

// resolveClaim makes the query of a claim: it opens the id, and plans its call under the keys that the reserve had.
func (q *query) resolveClaim(ctx context.Context, l *Limiter, r *rules, c *quota.Claim, op store.Op) error {
	q.rules, q.hold.claim = r, c
	if ms := c.Validate(op == store.OpExtend); len(ms) > 0 {
		return &quota.Invalid{Fields: ms}
	}
	t, ok := l.seal.open(c.Reservation)
	if !ok || c.May != nil && !c.May(t.tenant) {
		return refusedClaim(quota.FaultUnknown, "is not the id of a reservation that the caller may name")
	}
	q.hold.ticket = t
	if d := r.domains[t.policy]; d != nil || c.Of != nil {
		return q.resolveDomainClaim(d, c, op)
	}
	q.request = &quota.Request{Tenant: t.tenant, Policy: t.policy, Dimensions: t.dims, Cost: c.Actual}
	if q.plan = r.plans[t.policy]; q.plan == nil {
		return refusedClaim(quota.FaultOver, fmt.Sprintf("is of policy %s, which is no longer there: it ends by itself", t.policy))
	}
	if op == store.OpExtend && t.region != r.Region {
		return refusedClaim(quota.FaultOver, fmt.Sprintf("is held in region %s: extend it there", t.region))
	}
	q.takeOverride(ctx, l.overrides)
	tenant, _ := q.tenantOf()
	q.enforcement = enforcement(q.plan.policy, tenant.Enforcement, t.tenant)
	if q.limits = q.plan.planFor(t.dims, op); q.limits != nil {
		q.applyUnits(tenant.Policy, op)
		q.planClaim(op, t)
	}
	return nil
}

func (q *query) planClaim(op store.Op, t *ticket) {
	plan, owner := q.limits.keys, t.tenant
	keys := keysOf(plan, owner, t.policy, q.request)
	if t.overflow {
		owner = ""
		keys = keysOf(plan, owner, t.policy, &quota.Request{})
	}
	for i := range keys {
		if t.shared>>i&1 != 0 {
			keys[i] = plan.Keys[i].Shared(owner, t.policy)
		}
	}
	q.fillCall(op, keys, owner)
	q.call.Hold = store.Hold{ID: t.number, KeepUS: q.plan.keepUS(), GoneUS: t.goneUS}
	if op == store.OpExtend {
		q.call.Hold.TTLUS = q.lasts(q.hold.claim.TTL).Microseconds()
	} else { // a log takes no more units than its limit has, which may have been cut since
		q.call.Plan = q.limits.settling()
	}
}

// claimOfNothing decides a claim on a reservation that holds nothing, or none of whose limits apply any more, and is
// false for any other.
func (q *query) claimOfNothing(d *quota.Decision) bool {
	t := q.hold.ticket
	switch {
	case q.limits != nil && q.limits.keys.Holding > 0 && t.heldBy != heldForNothing && (t.heldBy != heldByNobody || q.call.Op == store.OpSettle):
		return false
	case q.hold.claim.TTL > 0:
		d.Reservation = q.extended(q.lasts(q.hold.claim.TTL))
	default:
		d.Settlement = &quota.Settlement{}
	}
	d.Allowed = true
	return true
}

func (q *query) extended(left time.Duration) *quota.Reservation {
	return &quota.Reservation{ID: q.hold.claim.Reservation, Amount: q.hold.ticket.amount, ExpiresIn: left, Clamped: q.hold.clamped || q.hold.shortened}
}

// claimed is the decision about a claim that the store has carried out.
func (l *Limiter) claimed(ctx context.Context, q *query, v *store.Verdict) (quota.Decision, error) {
	if v.Outcome == store.Gone {
		return quota.Decision{}, errOver()
	}
	q.publishUsage(ctx, v)
	if q.call.Op == store.OpExtend {
		v.Limits = v.Limits[:0] // it says nothing else of them
	}
	l.countExceeded(q, v)
	d := q.decision(v, q.within(v))
	d.StoreUS = v.StoreUS
	if q.call.Op == store.OpExtend {
		if d.Allowed {
			q.shorten(v)
			l.claimLocally(ctx, q)
			l.open.extend(q.call.Hold.ID, l.localUS()+q.call.Hold.TTLUS)
			d.Reservation = q.extended(time.Duration(q.call.Hold.TTLUS) * time.Microsecond)
		}
		return d, nil
	}
	released := v.Hold.Released
	if inMemory := q.hold.ticket.heldBy == heldByMemory; inMemory || !d.Replayed {
		mine := l.claimLocally(ctx, q) // once; afterwards it says again what came of that
		released = released || inMemory && mine.Hold.Released
	}
	d.Settlement = &quota.Settlement{Charged: v.Hold.Charged, Overrun: max(0, v.Hold.Charged-q.hold.ticket.amount), Released: released}
	if !d.Replayed {
		l.open.end(q.call.Hold.ID)
		if !l.pending.drop(q) { // which was counted
			l.metrics.settled(ctx, q, d.Settlement)
		}
	}
	return d, nil
}

// claimLocally does in the memory of this process what is done in the store.
func (l *Limiter) claimLocally(ctx context.Context, q *query) *store.Verdict {
	call := q.localCall(q.call.Op, max(1, q.rules.Processes()))
	call.Hold.GoneUS = l.localUS() + call.Hold.KeepUS
	call.Ceilings = call.Plan.Capacities
	return l.locally(ctx, call)
}

// claimLater decides a claim that the store did not take. A settle is kept until it does. What the store holds cannot get more
// time, what the memory of this process holds can.
func (l *Limiter) claimLater(ctx context.Context, q *query, reason quota.Reason) (quota.Decision, error) {
	d := quota.Decision{Allowed: true, Basis: quota.BasisLocal, Mode: quota.ModeLocal, Reason: reason}
	mine := q.hold.ticket.heldBy == heldByMemory
	if q.call.Op == store.OpExtend {
		var v *store.Verdict
		if mine {
			v = l.claimLocally(ctx, q)
		}
		switch {
		case v == nil, v.Err != nil: // the store holds it
			d = q.failDecision(quota.BasisClosed)
			d.Mode, d.Reason = quota.ModeLocal, reason
		case v.Outcome == store.Gone:
			return quota.Decision{}, errOver()
		default:
			d.Reservation = q.extended(time.Duration(v.Hold.ExpiresUS-v.StoreUS) * time.Microsecond)
		}
		return d, nil
	}
	v := l.claimLocally(ctx, q)
	if v.Outcome == store.Settled && v.Hold.Held > 0 { // it was extended, if its id is not good for so long
		t := q.hold.ticket
		t.goneUS = max(t.goneUS, l.timeUS()+q.call.Hold.KeepUS)
	}
	added, room := l.pending.add(q, l.localUS())
	if !room {
		return quota.Decision{Basis: quota.BasisShed, Reason: reason}, nil
	}
	d.Replayed, d.Settlement = !added, &quota.Settlement{Pending: true, Released: mine && v.Hold.Released}
	if added {
		l.open.end(q.call.Hold.ID)
		l.metrics.settled(ctx, q, d.Settlement)
	}
	return d, nil
}
