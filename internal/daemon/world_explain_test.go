package daemon

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/quota"
)

// TestWorldExplainedIsDecided: with and without a bound, through cuts, reports that go over and resets, what is explained of
// a limit over all regions is what the next check gets, figure by figure.
func TestWorldExplainedIsDecided(t *testing.T) {
	t.Parallel()
	for seed, bound := range []string{"", ", max_overshoot: 0%", ", max_overshoot: 10%"} {
		t.Run(fmt.Sprint(seed, bound), func(t *testing.T) {
			inWorld(t, worldOf(60, 5*time.Second, bound), func(w *world) {
				w.startAll()
				random := rand.New(rand.NewPCG(uint64(seed), 1))
				time.Sleep(6 * time.Second) // a bound is closed for a window after a start
				kinds := map[bool]int{}
				for step := range 200 {
					time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
					p := w.regions[random.IntN(3)].one()
					request := quota.Request{Tenant: "acme", Cost: 1 + random.Int64N(9), Explain: true}
					switch n := random.IntN(40); {
					case n == 0:
						from, to := random.IntN(3), random.IntN(3)
						if from != to {
							w.cut(from, to, random.IntN(2) == 0)
						}
					case n == 1:
						if err := p.limiter.Reset(t.Context(), "acme"); err != nil {
							t.Fatal(err)
						}
					case n < 5:
						if _, err := p.limiter.Report(t.Context(), quota.Request{Tenant: "acme", Cost: 2 * request.Cost}); err != nil {
							t.Fatal(err)
						}
					}
					synctest.Wait() // loans of this moment have come
					said, err := p.limiter.Peek(t.Context(), request)
					if err != nil {
						t.Fatal(err)
					}
					request.Explain = false
					got, err := p.limiter.Check(t.Context(), request)
					if err != nil {
						t.Fatal(err)
					}
					kinds[got.Allowed]++
					s, g := said.Limits[0], got.Limits[0]
					left := s.Remaining
					if got.Allowed {
						left -= request.Cost
					}
					if got.Allowed != said.Allowed || got.Mode != said.Mode || got.Basis != quota.BasisCached && (g.Remaining != left || g.Ceiling != s.Ceiling || g.RetryAfter != s.RetryAfter) {
						t.Fatalf("step %d: explained as %+v %+v, and it is %+v %+v; it says %q", step, said, s, got, g, said.Explanation.Sentences)
					}
				}
				if kinds[true] < 10 || kinds[false] < 10 {
					t.Errorf("of both kinds there are %v", kinds)
				}
			})
		})
	}
}

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
