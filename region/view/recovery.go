package view

import (
	"context"
	"log/slog"
	"time"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/quota"
)

const (
	// RecoverEvery is the least time between the beginnings of two recoveries: each
	// walks over the whole store.
	RecoverEvery = 5 * time.Second
	// retryRecoveryAfter is how soon a recovery that failed is tried again.
	retryRecoveryAfter = time.Second
)

// StoreCounters walks over the live usage counters of a region's store: each key, its
// buckets, and the store's clock.
type StoreCounters func(ctx context.Context, yield func(key quota.CounterKey, buckets []quota.Counter, storeUS int64)) error

// CounterRecovery reads the usage counters of the region's store back into the ledger:
// at the start, for what an earlier run of this process or a sibling has admitted, and
// on Request, because a sibling is silent. What is new goes out to the peers like any
// other change. Request may be called from anywhere.
type CounterRecovery struct {
	counters StoreCounters
	ceilings *Ceilings
	log      *slog.Logger
	requests chan struct{} // capacity 1
}

// NewCounterRecovery returns a CounterRecovery; Run starts it.
func NewCounterRecovery(counters StoreCounters, c *Ceilings, log *slog.Logger) *CounterRecovery {
	return &CounterRecovery{counters: counters, ceilings: c, log: log, requests: make(chan struct{}, 1)}
}

// Request requests another recovery. It never blocks.
func (r *CounterRecovery) Request() { signal.Send(r.requests) }

// Requested consumes a request and reports whether there was one. It is for callers of
// Recover.
func (r *CounterRecovery) Requested() bool { return signal.Taken(r.requests) }

// Run recovers at once and on each request, until ctx ends.
func (r *CounterRecovery) Run(ctx context.Context) error {
	for {
		pause := r.Recover(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.requests:
		}
	}
}

// Recover reads all counters once and returns how long to pause before the next time.
// After a failure it requests another.
func (r *CounterRecovery) Recover(ctx context.Context) (pause time.Duration) {
	limits := r.ceilings.limits.Load()
	err := r.counters(ctx, func(key quota.CounterKey, buckets []quota.Counter, storeUS int64) {
		s, ok := limits.series(r.ceilings.o.Key, &key)
		if !ok {
			return
		}
		for _, t := range buckets {
			r.ceilings.ledger.Record(&s, t, storeUS)
		}
	})
	if err != nil {
		r.log.Debug("usage counters will be read again", "error", err)
		r.Request()
		return retryRecoveryAfter
	}
	return RecoverEvery
}
