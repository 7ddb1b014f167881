package limitertest

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/oracle"
)

// oscillate asks for all it can get, every 5 ms for ten seconds, from a
// store whose time swings between two rates of lateness 400 ms apart, and counts
// by true time. An honest clock admits at most L(⌊S/W⌋+1) in a stretch S; this
// one may gain one swing on it, once, and not one with each swing.
func oscillate(t *testing.T, newStore New) {
	const (
		units, window  = int64(10), int64(1_000_000)
		swing, stretch = int64(400_000), int64(10_000_000)
	)
	kept, now := newStore(t)
	q := Ask(rule("log", quota.SlidingLog, units, window))
	random := rand.New(rand.NewPCG(1, 2))
	var all []oracle.Admission
	late := int64(0)
	for honest := int64(0); honest < stretch; honest += 5000 {
		if random.IntN(20) == 0 {
			late = swing - late
		}
		now(Epoch + honest - late)
		if decide(kept, q.Call("acme", store.OpCheck, 1, nil))[0].Outcome == oracle.Admitted {
			all = append(all, oracle.Admission{US: honest, Cost: 1})
		}
	}
	for _, s := range []int64{window, 3 * window, stretch} {
		if worst, ok := oracle.Window(all, units*((s+swing)/window+1), s); !ok {
			t.Errorf("%d units in %d µs of true time", worst.Units, s)
		}
	}
	if least := units * (stretch/window - 2); int64(len(all)) < least {
		t.Errorf("%d units in all, an honest clock gives at least %d", len(all), least)
	}
}

// reset holds that a reset forgets what one tenant has used, its idempotency keys
// among it, and nothing of tenants whose ids look like patterns of it.
func reset(t *testing.T, newStore New) {
	s, now := newStore(t)
	now(Epoch)
	q := Ask(rule("log", quota.SlidingLog, 1, 1000), rule("window", quota.SlidingWindow, 1, 1000))
	left := func(tenant string) string {
		v := decide(s, q.Call(tenant, store.OpCheck, 1, nil))[0]
		return q.Text(&v)
	}
	fresh, spent := "a 0 0 1000 | 0 0 2000", "d 0 1000 1000 | 0 2000 2000"
	tenants := []string{"a*c", "abc", "a*", "a[b]c", `a\c`, "a?c"}
	record := func(tenant string) byte {
		c := q.Call(tenant, store.OpReport, 1, nil)
		c.Record, c.Print = "rl:{"+tenant+"}:i:1.k:", "one"
		return decide(s, c)[0].Outcome
	}
	for _, tenant := range tenants {
		if got := left(tenant); got != fresh {
			t.Errorf("%s at first: %s", tenant, got)
		}
		record(tenant)
	}
	if err := s.Reset(context.Background(), "a*c"); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		want, outcome := spent, byte(oracle.Replayed)
		if tenant == "a*c" {
			want, outcome = fresh, oracle.Admitted
		}
		if got := left(tenant); got != want {
			t.Errorf("%s after the reset of a*c: %s, want %s", tenant, got, want)
		}
		if got := record(tenant); got != outcome {
			t.Errorf("%s with its key after the reset of a*c: %c, want %c", tenant, got, outcome)
		}
	}
}
