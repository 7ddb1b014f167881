package limitertest

import (
	"context"
	"slices"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/limiter/store"
)

// Budget is that of a Watched.
const Budget = 40 * time.Millisecond

// Watched is a memory store on a clock that may step, as one process sees it: calls under a bound have a fence, as those
// of limiter/redisstore have. Each process has a Watched of its own.
type Watched struct {
	store.Store
	Clock *clock.Clock
}

// Decide implements store.Store.
func (w Watched) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	for i := range calls {
		calls[i].Bounds = slices.Clone(calls[i].Bounds)
		for n, b := range calls[i].Bounds {
			calls[i].Bounds[n] = b.Within(w.Clock.Fence(b.Epoch, Budget))
		}
	}
	w.Store.Decide(ctx, calls, verdicts)
}
