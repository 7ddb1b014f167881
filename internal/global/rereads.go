package global

import (
	"context"
	"log/slog"
	"time"

	"github.com/regiond/regiond/quota"
)

// RereadEvery is how far apart two readings of all totals begin: each walks over
// the whole of the store.
const RereadEvery = 5 * time.Second

// rereadAgain is how soon a reading that failed is tried again.
const rereadAgain = time.Second

// StoreCounters walks over the live usage counters of a region's store: each key, its
// buckets, and the store's clock.
type StoreCounters func(ctx context.Context, yield func(key quota.CounterKey, buckets []quota.Counter, storeUS int64)) error

// Rereads reads the live totals of the region's store back into the ledger: at the
// start, for what an earlier life of this process or a sibling has admitted, and
// whenever somebody asks because a sibling is unheard. What is new in it goes out
// to the peers like any other change. Ask may be called from anywhere.
type Rereads struct {
	totals   StoreCounters
	ceilings *Ceilings
	log      *slog.Logger
	asked    chan struct{} // capacity 1
}

// NewRereads returns one that begins to read when Run does.
func NewRereads(totals StoreCounters, c *Ceilings, log *slog.Logger) *Rereads {
	return &Rereads{totals: totals, ceilings: c, log: log, asked: make(chan struct{}, 1)}
}

// Ask has a reading begin soon. It never blocks.
func (r *Rereads) Ask() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// Asked takes what Ask has left: whether a reading is due.
func (r *Rereads) Asked() bool {
	select {
	case <-r.asked:
		return true
	default:
		return false
	}
}

// Run reads at once and whenever it is asked, until ctx ends.
func (r *Rereads) Run(ctx context.Context) error {
	for {
		pause := r.Read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.asked:
		}
	}
}

// Read reads everything once and says how long to pause before the next reading. One
// that fails asks for another.
func (r *Rereads) Read(ctx context.Context) (pause time.Duration) {
	if err := r.read(ctx); err != nil {
		r.log.Debug("totals are read again later", "error", err)
		r.Ask()
		return rereadAgain
	}
	return RereadEvery
}

func (r *Rereads) read(ctx context.Context) error {
	known := r.ceilings.book.Load()
	return r.totals(ctx, func(key quota.CounterKey, buckets []quota.Counter, storeUS int64) {
		s, ok := known.series(r.ceilings.o.Key, &key)
		if !ok {
			return
		}
		for _, t := range buckets {
			r.ceilings.ledger.Record(&s, t, storeUS)
		}
	})
}
