package limiter_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// Two stores decide in turn: Redis, and this process's memory while Redis is away. What
// holds across every handover: memory admits nothing beyond its ceiling, counting all
// that memory has admitted and all whose answers from Redis had come in before it
// decided. What Redis has admitted and not yet answered it cannot know. Redis in turn
// knows nothing of what memory admitted; that a window of a regional limit may hold L
// from each is documented.

// handover is a limiter whose store fails the calls that a test picks. The clock stands
// still: nothing ages out, and the buckets of recent usage blur nothing.
type handover struct {
	*rig
	*limiter.MemoryStore
	fails  func(c *limiter.Call) bool
	during func() // run once, between a failed call and what memory makes of it
	armed  bool   // the next to ask for the time is the memory that stands in
}

func newHandover(t testing.TB, units int64, fails func(*limiter.Call) bool) *handover {
	t.Helper()
	at := time.Unix(1_795_198_405, 0)
	h := &handover{MemoryStore: limiter.NewMemoryStore(limiter.MemoryOptions{Now: at.UnixMicro}), fails: fails}
	metrics, reader := readMetrics(t)
	h.rig = storeRig(t, h, onePolicy(quota.Policy{Limits: perMinute(units)}), metrics, reader, func() time.Time {
		if h.armed {
			h.armed = false
			h.during()
		}
		return at
	})
	return h
}

func (h *handover) Decide(ctx context.Context, calls []limiter.Call, verdicts []limiter.Verdict) error {
	if h.fails(&calls[0]) {
		if h.during != nil {
			h.armed = true
		}
		return &limiter.StoreError{Reason: quota.ReasonRedisTimeout, Err: context.DeadlineExceeded}
	}
	return h.MemoryStore.Decide(ctx, calls, verdicts)
}

func (h *handover) Reset(ctx context.Context, prefix string) error {
	return h.MemoryStore.Reset(ctx, prefix)
}

// A call fails, and before memory has decided it Redis answers another. What memory then
// holds of the partition is of that moment; Redis goes on and admits more. When it is
// away again, memory has to count that too.
func TestHandoverWithinAHandover(t *testing.T) {
	down := false
	h := newHandover(t, 20, func(*limiter.Call) bool { return down })
	h.during = func() {
		h.during = nil
		down = false
		h.check(t, "acme", 1)
		down = true
	}
	down = true
	h.check(t, "acme", 1) // by memory, and another by Redis before that
	down = false
	for range 10 {
		h.check(t, "acme", 1)
	}
	down = true
	if got := h.admits(t, "acme", 100); got != 20-1-1-10 {
		t.Errorf("memory admits %d after 12 of 20, want 8", got)
	}
}

// The same, left to the scheduler: whichever store decided what, and whatever came in
// between, in the end memory knows of every unit.
func TestHandoverAtRandom(t *testing.T) {
	const callers, each, units = 4, 25, 400
	for run := range 200 {
		var calls, admitted atomic.Int64
		var away atomic.Bool
		h := newHandover(t, units, func(*limiter.Call) bool { return away.Load() || calls.Add(1)%3 == 0 })
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

// Redis answers now and then while memory decides: each answer has memory begin anew
// from what the process remembers, and a unit that is being admitted is part of that.
func TestHandoverAdmitsNoUnitTwice(t *testing.T) {
	const callers, units = 4, 50
	for run := range 200 {
		h := newHandover(t, units, func(c *limiter.Call) bool { return c.Op == limiter.OpCheck })
		var admitted atomic.Int64
		var asking, answering sync.WaitGroup
		done := make(chan struct{})
		answering.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if _, err := h.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1}); err != nil {
						t.Error(err)
					}
				}
			}
		})
		for range callers {
			asking.Go(func() {
				for h.check(t, "acme", 1).Allowed {
					admitted.Add(1)
				}
			})
		}
		asking.Wait()
		close(done)
		answering.Wait()
		if got := admitted.Load(); got != units {
			t.Fatalf("run %d: memory admits %d of %d", run, got, units)
		}
	}
}
