package limitertest

import (
	"context"
	"slices"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// Watched is a memory store on a clock that may step back, as one process sees it: what that clock has shown closes
// bounds, as limiter/redisstore has it for a server. Each process has a Watched of its own.
type Watched struct {
	store.Store
	Clock *clock.Clock
}

// NewWatched returns s as a process sees it that has a monotonic clock.
func NewWatched(s store.Store, passed func() time.Duration) Watched {
	seen, _ := clock.New(clock.Options{Now: passed}) // fails only with a Meter
	return Watched{s, seen}
}

// Decide implements store.Store.
func (w Watched) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	asked := make([][]quota.Bound, len(calls))
	for i := range calls {
		asked[i] = slices.Clone(calls[i].Bounds)
		for n := range asked[i] {
			b := &asked[i][n]
			b.FromUS = max(b.FromUS, w.Clock.Least(b.Epoch))
		}
		calls[i].Bounds = asked[i]
	}
	w.Store.Decide(ctx, calls, verdicts)
	for i := range calls {
		for _, b := range asked[i] {
			if verdicts[i].Err == nil {
				w.Clock.Saw(b.Epoch, verdicts[i].StoreUS)
			}
		}
	}
}
