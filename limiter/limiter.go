package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/quota"
)

// Limiter answers requests: it finds the policy, asks the store, and falls back
// to the policy's fail mode when the store is away. Safe for concurrent use.
type Limiter struct {
	store     Store
	rules     atomic.Pointer[rules]
	denyCache *denyCache
	recent    *recentUsage // what this process has admitted
	local     *MemoryStore // decides while the store is away
	overflow  *overflow
	log       *slog.Logger
	metrics   *Metrics
	now       func() time.Time
	localUS   func() int64 // now in µs, monotonic: a step of the host's wall clock does not change it

	loggedUnreadable atomic.Int64 // when an unreadable partition was logged last, µs
	scratches        sync.Pool    // of *scratch
}

// Options are what New needs; all fields but Now are required.
type Options struct {
	Store   Store
	Config  Config
	Logger  *slog.Logger
	Metrics *Metrics
	// Now is this process's monotonic clock, for the life of cached denials and
	// the age of recent usage. nil means time.Now.
	Now func() time.Time
}

// New returns a Limiter that enforces o.Config. Nothing runs in the background.
func New(o Options) (*Limiter, error) {
	if o.Store == nil || o.Logger == nil || o.Metrics == nil {
		return nil, errors.New("limiter: needs a store, a logger and metrics")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	start := o.Now()
	base := start.UnixMicro()
	localUS := func() int64 { return base + o.Now().Sub(start).Microseconds() }
	l := &Limiter{
		store:     o.Store,
		denyCache: newDenyCache(),
		recent:    newRecentUsage(localUS),
		overflow:  newOverflow(localUS),
		log:       o.Logger,
		metrics:   o.Metrics,
		now:       o.Now,
		localUS:   localUS,
	}
	l.local = NewMemoryStore(MemoryOptions{Now: localUS, seed: l.recent.seed, charged: l.recent.add})
	o.Metrics.watchLimiter(l.overflow.size, l.denyCache.size)
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
	return l.check(ctx, r, OpCheck)
}

// Peek returns what Check would, and spends nothing.
func (l *Limiter) Peek(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.check(ctx, r, OpPeek)
}

// Report charges the cost whatever is left, for work whose cost is known only
// afterwards. It may go past the limits.
func (l *Limiter) Report(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.check(ctx, r, OpReport)
}

// CheckBatch checks the requests one after the other, each on its own: outcome i
// is that of request i, and a later one sees the charges of an earlier one.
func (l *Limiter) CheckBatch(ctx context.Context, rs []quota.Request) []quota.Outcome {
	out := make([]quota.Outcome, len(rs))
	s := l.scratch()
	defer l.release(s)
	places := make([]int, 0, len(rs))
	rules := l.rules.Load()
	for i := range rs {
		q, err := rules.resolve(&rs[i], OpCheck, l.overflow, s)
		if err != nil {
			out[i].Err = err
			continue
		}
		s.queries, places = append(s.queries, q), append(places, i)
	}
	l.decide(ctx, s)
	for i, place := range places {
		out[place] = s.outcomes[i]
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
	l.denyCache.forget()
	l.recent.forget(tenant)
	if err := errors.Join(err, l.local.Reset(ctx, tenant)); err != nil {
		return fmt.Errorf("reset usage: %w", err)
	}
	return nil
}
