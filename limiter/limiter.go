package limiter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// Limiter answers requests: it finds the policy, asks the store, and falls back
// to the policy's fail mode when the store is away. Safe for concurrent use.
type Limiter struct {
	store     store.Store
	rules     atomic.Pointer[rules]
	denyCache *denyCache
	local     *memstore.Store // what this process has admitted; decides while the store is away
	overflow  *overflow
	log       *slog.Logger
	metrics   *metrics
	now       func() time.Time
	localUS   func() int64 // now in µs, monotonic: a step of the host's wall clock does not change it

	loggedUnreadable atomic.Int64 // when an unreadable partition was logged last, µs
	scratches        sync.Pool    // of *scratch
}

// Options are what New needs: a store, a configuration and a logger.
type Options struct {
	Store  store.Store
	Config Config
	Logger *slog.Logger
	Meter  metric.Meter // nil makes no metrics
	// Now is this process's monotonic clock, for the life of cached denials and
	// the age of what memory records. nil means time.Now.
	Now func() time.Time
}

// localPartitions bounds what is recorded beside the store, see "Measured" in DESIGN.md.
const localPartitions = 1 << 19

// New returns a Limiter that enforces o.Config. Nothing runs in the background.
func New(o Options) (*Limiter, error) {
	if o.Store == nil || o.Logger == nil {
		return nil, errors.New("limiter: needs a store and a logger")
	}
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	start := o.Now()
	base := start.UnixMicro()
	localUS := func() int64 { return base + o.Now().Sub(start).Microseconds() }
	resets := func() int64 { return 0 }
	if s, shared := o.Store.(interface{ Resets() int64 }); shared { // by several processes
		resets = s.Resets
	}
	l := &Limiter{
		store:     o.Store,
		denyCache: newDenyCache(start, resets),
		local:     memstore.New(memstore.Options{Now: localUS, Partitions: localPartitions, Coarse: true}),
		overflow:  newOverflow(localUS),
		log:       o.Logger,
		now:       o.Now,
		localUS:   localUS,
	}
	var err error
	if l.metrics, err = newMetrics(o.Meter, l.overflow.size, func() int { return l.denyCache.size(o.Now()) }); err != nil {
		return nil, fmt.Errorf("limiter: %w", err)
	}
	return l, l.Configure(o.Config)
}

// Configure replaces what is enforced, at once and for all tenants. On an error
// the old configuration stays.
func (l *Limiter) Configure(c Config) error {
	r, err := compile(c)
	if err != nil {
		return fmt.Errorf("configure limiter: %w", err)
	}
	l.overflow.places.Bound(c.MaxUnknown)
	l.rules.Store(r)
	l.metrics.labels.forget()
	return nil
}

// Check charges the request's cost if every limit that applies has room for it.
// The error is *quota.Invalid and means that nothing was decided or charged.
func (l *Limiter) Check(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.check(ctx, r, store.OpCheck)
}

// Peek returns what Check would, and spends nothing.
func (l *Limiter) Peek(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.check(ctx, r, store.OpPeek)
}

// Report charges the cost whatever is left, for work whose cost is known only
// afterwards. It may go past the limits.
func (l *Limiter) Report(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return l.check(ctx, r, store.OpReport)
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
		q, err := rules.resolve(&rs[i], store.OpCheck, l.overflow, s)
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
	if err := errors.Join(err, l.local.Reset(ctx, tenant)); err != nil {
		return fmt.Errorf("reset usage: %w", err)
	}
	return nil
}
