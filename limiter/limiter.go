package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
)

// Limiter answers requests: it finds the policy, asks the store, and falls back
// to the policy's fail mode when the store is away. Safe for concurrent use.
type Limiter struct {
	store     store.Store
	rules     atomic.Pointer[rules]
	denyCache *denyCache
	local     *memstore.Store // what this process has admitted; decides while the store is away
	own       own             // what of it the store does not know yet
	pending   *pending        // settles that the store did not take
	open      *openReservations
	seal      *Seal
	overrides Overrides // nil without any
	overflow  *overflow
	log       *slog.Logger
	metrics   *metrics
	top       *top.Recorder // nil counts nothing
	now       func() time.Time
	localUS   func() int64 // now in µs, monotonic: a step of the host's wall clock does not change it
	timeUS    func() int64 // Options.TimeUS

	unreadable *loglimit.Rate // lines about partitions that cannot be read
	nears      *nears
	usage      chan struct{}  // has an element while Usage reads a page
	unclaimed  *loglimit.Rate // lines about values of Request.TenantPolicy that no policy has, by value
}

// Options are what New needs: a store, a configuration and a logger.
type Options struct {
	Store  store.Store
	Config Config
	Logger *slog.Logger
	Meter  metric.Meter // nil makes no metrics
	// Top counts what is denied and used, by partition; nil for nobody.
	Top *top.Recorder
	// Seal makes the ids of reservations; nil is one that no other process has.
	Seal *Seal
	// Overrides are those of tenants; nil for none.
	Overrides Overrides
	// Now is this process's monotonic clock, for the life of cached denials and
	// the age of what memory records. nil means time.Now.
	Now func() time.Time
	// TimeUS is the store's clock as far as it is known, µs since the epoch; nil means Now.
	TimeUS func() int64
}

// localPartitions bounds what is recorded beside the store, see "Measured" in DESIGN.md.
const localPartitions = 1 << 19

// localRecords bounds the admissions with an Idempotency-Key that a process remembers, see
// "Measured" in DESIGN.md. Beyond it new ones are known to the store alone.
const localRecords = 1 << 16

// unclaimedEvery is how often a value of Request.TenantPolicy that no policy has is logged.
const unclaimedEvery = time.Hour

// New returns a Limiter that enforces o.Config. Nothing runs in the background.
func New(o Options) (*Limiter, error) {
	if o.Store == nil || o.Logger == nil {
		return nil, errors.New("limiter: needs a store and a logger")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Seal == nil {
		o.Seal = NewSeal()
	}
	start := o.Now()
	base := start.UnixMicro()
	localUS := func() int64 { return base + o.Now().Sub(start).Microseconds() }
	if o.TimeUS == nil {
		o.TimeUS = localUS
	}
	resets := func() int64 { return 0 }
	if s, shared := o.Store.(interface{ Resets() int64 }); shared { // by several processes
		resets = s.Resets
	}
	l := &Limiter{
		store:     o.Store,
		denyCache: newDenyCache(start, resets),
		local:     memstore.New(memstore.Options{Now: localUS, Partitions: localPartitions, Records: localRecords, Coarse: true}),
		own:       own{added: make(chan struct{}, 1), queue: make(chan *store.Admission, localRecords)},
		pending:   newPending(),
		open:      newOpenReservations(),
		seal:      o.Seal,
		overrides: o.Overrides,
		overflow:  newOverflow(localUS),
		log:       o.Logger,
		top:       o.Top,
		now:       o.Now,
		localUS:   localUS,
		timeUS:    o.TimeUS,

		unreadable: loglimit.NewRate(1, time.Second),
		nears:      newNears(),
		usage:      make(chan struct{}, 1),
		unclaimed:  loglimit.NewRate(1, unclaimedEvery),
	}
	var err error
	if l.metrics, err = newMetrics(o.Meter, l); err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	if err := l.Configure(o.Config); err != nil {
		return nil, err
	}
	return l, nil
}

// Configure replaces what is enforced, at once and for all tenants. On an error
// the old configuration stays.
func (l *Limiter) Configure(c Config) error {
	r, err := compile(c, l.rules.Load())
	if err != nil {
		return fmt.Errorf("configure limiter: %w", err)
	}
	l.overflow.places.Bound(c.MaxUnknown)
	l.overflow.forget()
	l.rules.Store(r)
	l.unclaimed.Forget()
	l.metrics.begin(r)
	return nil
}

// HasPolicy reports whether a policy, or that of a domain, is in force.
func (l *Limiter) HasPolicy(name string) bool {
	r := l.rules.Load()
	return r.plans[name] != nil || r.domains[name] != nil
}

// Outcomes is how many requests of a policy were decided, reports among those allowed. What
// was shed is neither.
type Outcomes struct{ Allowed, Denied int64 }

// Outcomes are those of each policy that decided something since the limiter was made.
func (l *Limiter) Outcomes() map[string]Outcomes {
	all := map[string]Outcomes{}
	for labels, n := range l.metrics.decisions.All() {
		if labels.policy == "" { // Shed
			continue
		}
		o := all[labels.policy]
		switch labels.decision {
		case "allowed", "would_deny", "reported":
			o.Allowed += n
		case "denied":
			o.Denied += n
		}
		all[labels.policy] = o
	}
	return all
}

// Check charges the request's cost if every limit that applies has room for it.
// The error is *quota.Invalid and means that nothing was decided or charged.
func (l *Limiter) Check(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.one(ctx, r, store.OpCheck)
}

// Peek returns what Check would, and spends nothing.
func (l *Limiter) Peek(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.one(ctx, r, store.OpPeek)
}

// Report charges the cost whatever is left, for work whose cost is known only
// afterwards. It may go past the limits.
func (l *Limiter) Report(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.one(ctx, r, store.OpReport)
}

// Decide answers the questions one after the other, each on its own: outcome i
// is that of question i, and a later one sees the charges of an earlier one.
func (l *Limiter) Decide(ctx context.Context, qs []quota.Question) []quota.Outcome {
	ops := [...]store.Op{quota.AskCheck: store.OpCheck, quota.AskPeek: store.OpPeek, quota.AskReport: store.OpReport, quota.AskRefund: store.OpRefund}
	if len(qs) == 1 {
		d, err := l.one(ctx, qs[0].Request, ops[qs[0].Ask])
		return []quota.Outcome{{Decision: d, Err: err}}
	}
	return l.check(ctx, len(qs), func(i int) (*quota.Request, store.Op) { return &qs[i].Request, ops[qs[i].Ask] })
}

// Shed counts a request that was turned away unread, as overload, and returns the decision about it. What it asks for is not
// known: it has no tenant and no policy, and its mode is global, as where no global limit applies.
func (l *Limiter) Shed(ctx context.Context) quota.Decision {
	d := quota.Decision{Basis: quota.BasisShed, Reason: quota.ReasonOverloaded}
	l.metrics.decided(ctx, &d, &query{call: store.Call{Op: store.OpCheck}}, 0)
	return d
}

// Reset forgets what a tenant has used in this region, under all policies.
func (l *Limiter) Reset(ctx context.Context, tenant string) error { return l.ResetAll(ctx, tenant, 0) }

// ResetAll is Reset that also deletes usage counters of generations up to upTo, which
// peers then must count no more.
func (l *Limiter) ResetAll(ctx context.Context, tenant string, upTo int64) error {
	if err := quota.ValidID(tenant); err != nil {
		return invalid(quota.FaultInput, "/tenant", err.Error())
	}
	err := l.store.ResetAll(ctx, tenant, upTo)
	// Memory goes last, so that nothing decided meanwhile brings the old usage back.
	l.denyCache.forget()
	if err := errors.Join(err, l.local.ResetAll(ctx, tenant, 0)); err != nil {
		return fmt.Errorf("reset usage: %w", err)
	}
	return nil
}
