package limiter_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// Two stores decide in turn: Redis, and this process's memory while Redis is away. What
// holds across every handover: memory admits nothing beyond its ceiling, counting all
// that memory has admitted and all whose answers from Redis had come in before it
// decided. What Redis has admitted and not yet answered it cannot know. Redis in turn
// knows nothing of what memory admitted; that a window of a regional limit may hold L
// from each is documented.

// handover is a limiter whose store fails the calls that a test picks. The clock stands
// still: nothing ages out, and what memory records is exact.
type handover struct {
	*rig
	*memstore.Store
	fails func(c *store.Call) bool
}

func newHandover(t testing.TB, units int64, fails func(*store.Call) bool) *handover {
	t.Helper()
	h := &handover{Store: memstore.New(memstore.Options{Now: atRest().UnixMicro}), fails: fails}
	h.rig = newRig(t, limiter.Options{Store: h, Config: onePolicy(quota.Policy{Limits: perMinute(units)}), Now: atRest})
	return h
}

func (h *handover) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	if h.fails(&calls[0]) {
		store.Fail(verdicts, &store.Error{Reason: quota.ReasonRedisTimeout, Err: context.DeadlineExceeded})
		return
	}
	h.Store.Decide(ctx, calls, verdicts)
}

// Left to the scheduler: whichever store decided what, and whatever came in
// between, in the end memory knows of every unit.
func TestHandoverAtRandom(t *testing.T) {
	t.Parallel() // it measures no time
	const callers, each, units = 4, 25, 400
	for run := range 100 {
		var calls, admitted atomic.Int64
		var away atomic.Bool
		h := newHandover(t, units, func(*store.Call) bool { return away.Load() || calls.Add(1)%3 == 0 })
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range each {
					if h.check(t, "acme", 1).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		away.Store(true)
		if got := int64(h.admits(t, "acme", units)); got != units-admitted.Load() {
			t.Fatalf("run %d: memory admits %d after %d of %d, want %d", run, got, admitted.Load(), units, units-admitted.Load())
		}
	}
}
