package daemon

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestLongWorldRetryAfter: whoever is told to wait under a global limit, and is told so
// because of others' use, of its own, or of both, is admitted when the wait is over
// if nobody spent anything meanwhile. The wait is at most a window, and where it is
// shorter it is no longer than needed: much earlier the cost does not fit.
func TestLongWorldRetryAfter(t *testing.T) {
	t.Parallel()
	const (
		units  = 100
		window = 10 * time.Second
	)
	inWorld(t, worldOf(units, window, ""), func(w *world) {
		w.startAll()
		random := rand.New(rand.NewPCG(5, 11))
		check := func(p *node, cost int64) quota.Decision {
			d, err := p.limiter.Check(context.Background(), quota.Request{Tenant: "acme", Cost: cost})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		waits, early := 0, 0
		for range 40 {
			spenders := 1 + random.IntN(3)
			for i := range spenders { // until somebody is near the limit
				check(w.regions[i].one(), 1+random.Int64N(units))
				time.Sleep(time.Duration(random.Int64N(int64(window / 4))))
			}
			time.Sleep(time.Second) // everybody has heard
			p, cost := w.regions[random.IntN(3)].one(), 1+random.Int64N(units)
			d := check(p, cost)
			if d.Allowed {
				continue
			}
			wait := d.RetryAfter()
			if wait <= 0 || wait > window {
				t.Fatalf("denied for %v", wait)
			}
			waits++
			if wait < window { // nobody knows beyond it
				time.Sleep(wait - wait/10)
				if peeked, err := p.limiter.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: cost}); err != nil || peeked.Allowed {
					early++
				}
				time.Sleep(wait/10 + time.Millisecond)
				if again := check(p, cost); !again.Allowed {
					_, terms := p.explained("acme")
					t.Errorf("cost %d was to fit after %v, and is to wait %v more: %s", cost, wait, again.RetryAfter(), terms.Formula)
				}
			}
			time.Sleep(time.Duration(random.Int64N(int64(window))))
		}
		t.Logf("%d waits, of which %d could have been a tenth shorter", waits, early)
		if waits < 10 || early > waits/2 {
			t.Errorf("of %d waits %d were longer than needed", waits, early)
		}
	})
}
