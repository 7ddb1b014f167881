package daemon

import (
	"context"
	"math/rand/v2"
	"strings"
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

// TestWorldExplainsOtherFiles: while a region has no bound, or another window, or may have, and for as long after that as what it
// admitted may count, no region says that all together hold at most B whatever happens. What the others may not know is the last
// seconds: gossip has to bring it.
func TestWorldExplainsOtherFiles(t *testing.T) {
	t.Parallel()
	const certain, gossips = "whatever happens", 5 * time.Second
	for _, other := range []string{worldOf(60, 4*time.Second, ""), worldOf(60, 8*time.Second, ", max_overshoot: 0%")} {
		same := worldOf(60, 4*time.Second, ", max_overshoot: 0%")
		onRedises(t, same, func(w *world) {
			w.startAll()
			eu, us, ap := w.regions[0].one(), w.regions[1].one(), w.regions[2].one()
			says := func(when string, want bool, all ...*node) {
				t.Helper()
				for _, p := range all {
					d, _ := p.explained("acme")
					if text := strings.Join(d.Explanation.Sentences, "\n"); strings.Contains(text, certain) != want {
						t.Errorf("%s, %s says:\n%s", when, p.home.name, text)
					}
				}
			}
			time.Sleep(30 * time.Second)
			says("all have the same file", true, eu, us, ap)
			w.text = strings.Replace(w.text, same, other, 1)
			us.reload()
			time.Sleep(gossips)
			says("us-east has another", false, eu, us, ap)
			w.isolate(1, true)
			time.Sleep(30 * time.Second)
			says("us-east has another and is cut off", false, eu, us, ap)
			w.text = strings.Replace(w.text, other, same, 1)
			us.reload()
			time.Sleep(gossips)
			says("it has the same again, which nobody knows", false, eu, us, ap)
			w.isolate(1, false)
			time.Sleep(gossips)
			says("the cut is healed a moment ago", false, eu, ap)
			time.Sleep(time.Minute)
			says("all is well again", true, eu, us, ap)
		})
	}
}
