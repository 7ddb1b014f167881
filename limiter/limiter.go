package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/quota"
)

// Limiter answers requests: it finds the policy, asks the store, and falls back
// to the policy's fail mode when the store is away. Safe for concurrent use.
type Limiter struct {
	store    Store
	rules    atomic.Pointer[rules]
	denials  *denials
	mirror   *mirror      // what this process admitted lately
	local    *MemoryStore // decides while the store is away
	overflow *overflow
	log      *slog.Logger
	metrics  *Metrics
	now      func() time.Time
	localUS  func() int64 // now in µs, of which the host's wall clock moves nothing

	complained atomic.Int64 // when an unreadable partition was logged last, µs
	rounds     sync.Pool    // of *round
}

// Options are what New needs; all fields but Now are required.
type Options struct {
	Store   Store
	Config  Config
	Logger  *slog.Logger
	Metrics *Metrics
	// Now is this process's monotonic clock, for how long denials are remembered
	// and how old what it remembers is. nil means time.Now.
	Now func() time.Time
}

func (o *Options) validate() error {
	if o.Store == nil || o.Logger == nil || o.Metrics == nil {
		return errors.New("limiter: needs a store, a logger and metrics")
	}
	return nil
}

// New returns a Limiter that enforces o.Config. Nothing runs in the background.
func New(o Options) (*Limiter, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	start := o.Now()
	base := start.UnixMicro()
	localUS := func() int64 { return base + o.Now().Sub(start).Microseconds() }
	l := &Limiter{
		store:    o.Store,
		denials:  newDenials(),
		mirror:   newMirror(localUS),
		overflow: newOverflow(localUS),
		log:      o.Logger,
		metrics:  o.Metrics,
		now:      o.Now,
		localUS:  localUS,
	}
	l.local = NewMemoryStore(MemoryOptions{Now: localUS, seed: l.mirror.seed, charged: l.mirror.add})
	o.Metrics.watchLimiter(l.overflow.size, l.denials.size)
	return l, l.Configure(o.Config)
}

// Configure replaces what is enforced, at once and for all tenants. On an error
// the old configuration stays.
func (l *Limiter) Configure(c Config) error {
	r, err := compile(c)
	if err != nil {
		return fmt.Errorf("configure limiter: %w", err)
	}
	l.rules.Store(r)
	l.metrics.prepare(c.Policies)
	return nil
}

// Check charges the request's cost if every limit that applies has room for it.
// The error is *quota.Invalid and means that nothing was decided or charged.
func (l *Limiter) Check(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.one(ctx, r, OpCheck)
}

// Peek returns what Check would, and spends nothing.
func (l *Limiter) Peek(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.one(ctx, r, OpPeek)
}

// Report charges the cost whatever is left, for work whose cost is known only
// afterwards. It may go past the limits.
func (l *Limiter) Report(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.one(ctx, r, OpReport)
}

// CheckBatch checks the requests one after the other, each on its own: outcome i
// is that of request i, and a later one sees the charges of an earlier one.
func (l *Limiter) CheckBatch(ctx context.Context, rs []quota.Request) []quota.Outcome {
	out := make([]quota.Outcome, len(rs))
	r := l.begin()
	defer l.end(r)
	places := make([]int, 0, len(rs))
	rules := l.rules.Load()
	for i := range rs {
		q, err := rules.resolve(&rs[i], OpCheck, l.overflow, r)
		if err != nil {
			out[i].Err = err
			continue
		}
		r.queries, places = append(r.queries, q), append(places, i)
	}
	l.decide(ctx, rules, r)
	for i, place := range places {
		out[place] = r.outcomes[i]
	}
	return out
}

// Reset forgets what a tenant has used in this region, under all policies.
func (l *Limiter) Reset(ctx context.Context, tenant string) error {
	if err := quota.ValidID(tenant); err != nil {
		return &quota.Invalid{Fields: []quota.FieldError{{Pointer: "/tenant", Detail: err.Error()}}}
	}
	err := l.store.Reset(ctx, tenant)
	// Memory goes last, so that nothing decided meanwhile brings the old usage back.
	l.denials.forget()
	l.mirror.forget(tenant)
	if err := errors.Join(err, l.local.Reset(ctx, tenant)); err != nil {
		return fmt.Errorf("reset usage: %w", err)
	}
	return nil
}

func (l *Limiter) one(ctx context.Context, request quota.Request, op Op) (quota.Decision, error) {
	r := l.begin()
	defer l.end(r)
	r.request = request
	rules := l.rules.Load()
	q, err := rules.resolve(&r.request, op, l.overflow, r)
	if err != nil {
		return quota.Decision{}, err
	}
	r.queries = append(r.queries, q)
	l.decide(ctx, rules, r)
	return r.outcomes[0].Decision, r.outcomes[0].Err
}

// decide answers a round's queries in order: from memory where a denial is still in
// force, else from the store, else from the fail mode.
func (l *Limiter) decide(ctx context.Context, rules *rules, r *round) {
	start := l.now()
	r.outcomes = slices.Grow(r.outcomes[:0], len(r.queries))[:len(r.queries)]
	for i := range r.queries {
		q := &r.queries[i]
		if q.overflow {
			l.metrics.overflowed(ctx)
		}
		if q.limits == nil {
			r.outcomes[i].Decision = l.unlimited(rules, q)
			continue
		}
		if q.closed() {
			r.outcomes[i].Decision = l.refuse(rules, q)
			continue
		}
		// Within a batch an earlier check may free nothing, so memory holds there too.
		if d, ok := l.remembered(q, start); ok {
			r.outcomes[i].Decision = d
			continue
		}
		r.calls, r.asked = append(r.calls, q.call), append(r.asked, i)
	}
	if len(r.calls) > 0 {
		l.ask(ctx, rules, r, start)
	}
	took := l.now().Sub(start)
	for i := range r.outcomes {
		if r.outcomes[i].Err == nil {
			l.metrics.decided(ctx, &r.outcomes[i].Decision, r.queries[i].call.Op, took)
		}
	}
}

func (l *Limiter) ask(ctx context.Context, rules *rules, r *round, sent time.Time) {
	r.verdicts = blank(r.verdicts, len(r.calls))
	r.held = true
	err := l.store.Decide(ctx, r.calls, r.verdicts)
	r.held = false
	for n, i := range r.asked {
		q, v, o := &r.queries[i], &r.verdicts[n], &r.outcomes[i]
		failed := err
		if failed == nil {
			failed = v.Err
		}
		switch {
		case failed != nil:
			r.held = true
			o.Decision, o.Err = l.fallback(ctx, rules, q, failed)
		case v.Outcome == reused:
			o.Err = errReused()
		default:
			o.Decision = l.exact(ctx, rules, q, v, sent)
		}
	}
}

func errReused() error {
	return &quota.Invalid{Fault: quota.FaultReuse, Fields: []quota.FieldError{{
		Detail: "this Idempotency-Key came with another request before; use a new key for a new request",
	}}}
}

// exact turns a store's verdict into a decision, and remembers what it is worth
// remembering: admissions for the day that the store is away, denials for as
// long as they last.
func (l *Limiter) exact(ctx context.Context, rules *rules, q *query, v *Verdict, sent time.Time) quota.Decision {
	rules.share(ctx, q, v)
	d := rules.decision(q, v)
	d.StoreUS = v.StoreUS
	switch {
	case v.Outcome == denied && q.call.Op == OpCheck:
		l.denials.remember(&q.call, d.Limits, sent, l.now())
	case v.Outcome == admitted && q.call.Op != OpPeek:
		l.mirror.add(&q.call)
	}
	// Not only when memory was in use: a call that is failing just now may have looked
	// whether it is, and not have decided yet.
	l.local.renew()
	l.explain(rules, q, &d)
	return d
}

// decision is what a verdict means under a query's enforcement and view.
func (r *rules) decision(q *query, v *Verdict) quota.Decision {
	d := quota.Decision{
		Allowed: v.Outcome != denied, Tenant: q.request.Tenant, Policy: q.plan.policy.Name,
		Cost: q.request.Cost, Enforcement: q.enforcement, Replayed: v.Outcome == replayed,
		Limits: make([]quota.LimitState, len(v.Limits)),
	}
	for i, lv := range v.Limits {
		l := q.limits.keys.limits[i]
		s := &d.Limits[q.limits.keys.order[i]]
		*s = quota.LimitState{
			Limit: l, Ceiling: q.call.Ceilings[i], Remaining: lv.Remaining,
			RetryAfter: time.Duration(lv.WaitUS) * time.Microsecond,
			ResetAfter: time.Duration(lv.ResetUS) * time.Microsecond,
		}
		if v.Outcome != denied {
			continue
		}
		s.Denied = lv.WaitUS != 0
		if lv.WaitUS < 0 { // this ceiling never takes the cost; within W it may be another
			s.RetryAfter = l.Window
		}
	}
	r.patience(q, v, &d)
	q.see(&d)
	carryOut(&d)
	return d
}

// see sets mode, reason and basis from the ceilings that the query was asked under.
func (q *query) see(d *quota.Decision) {
	for i := range q.ceilings {
		c := &q.ceilings[i]
		if q.limits.keys.limits[i].Scope != quota.ScopeGlobal {
			continue
		}
		if c.Mode != quota.ModeGlobal {
			d.Mode, d.Reason = c.Mode, c.Reason
		}
		if q.call.Ceilings[i] < q.limits.keys.limits[i].Units {
			d.Basis = quota.BasisEstimate
		}
	}
}

// carryOut turns a denial into an observation where the tenant is only observed.
func carryOut(d *quota.Decision) {
	if !d.Allowed && d.Enforcement == quota.Observe {
		d.Allowed, d.WouldDeny = true, true
	}
}

// unlimited is the decision when no limit of the policy applies.
func (l *Limiter) unlimited(rules *rules, q *query) quota.Decision {
	d := quota.Decision{
		Allowed: true, Tenant: q.request.Tenant, Policy: q.plan.policy.Name,
		Cost: q.request.Cost, Enforcement: q.enforcement,
	}
	l.explain(rules, q, &d)
	return d
}
