package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// lossy is a store that loses one call in ten, and one reply in ten of what it carries out.
type lossy struct{ store.Store }

func (l lossy) Decide(ctx context.Context, calls []store.Call, verdicts []store.Verdict) {
	fate := rand.IntN(10)
	if fate > 0 {
		l.Store.Decide(ctx, calls, verdicts)
	}
	if fate < 2 {
		store.Fail(verdicts, &store.Error{Reason: quota.ReasonRedisTimeout, Ambiguous: fate == 1, Err: errors.New("lost")})
	}
}

// open is what a customer has: what was charged, and what is held, by reservation.
type open struct {
	requests, tokens int64
	held             map[string]int64
	settled          map[string]quota.Settlement
}

// step is what becomes of it by a call with a reply; false: it has another. Limits are those of completions.
func (o open) step(in, out any) (bool, open) {
	next := open{o.requests, o.tokens, maps.Clone(o.held), maps.Clone(o.settled)}
	held := int64(0)
	for _, units := range o.held {
		held += units
	}
	switch in := in.(type) {
	case reserveOf:
		fits := o.requests+1 <= in.limits[0].Units && o.tokens+held+in.amount <= in.limits[1].Units && len(o.held)+1 <= int(in.limits[2].Units)
		if id := out.(string); id != "" {
			next.requests++
			next.held[id] = in.amount
		}
		return fits == (out != ""), next
	case settleOf:
		got := out.(quota.Settlement)
		if was, again := o.settled[in.id]; again {
			return got == was, o
		}
		_, is := o.held[in.id]
		delete(next.held, in.id)
		next.tokens += in.actual
		next.settled[in.id] = got
		return got == quota.Settlement{Charged: in.actual, Overrun: max(0, in.actual-in.amount), Released: is}, next
	case extendOf:
		_, is := o.held[string(in)]
		return is == out.(bool), o
	case expireOf:
		_, is := o.held[string(in)]
		delete(next.held, string(in))
		return is, next
	}
	panic(fmt.Sprintf("%T", in))
}

type (
	reserveOf struct {
		limits []quota.Limit
		amount int64
	} // → its id, "" for a denial
	settleOf struct {
		id             string
		amount, actual int64
	} // → quota.Settlement
	extendOf string // → whether it was open
	expireOf string // by itself; nobody calls that
)

func reservations() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return open{held: map[string]int64{}, settled: map[string]quota.Settlement{}} },
		Step: func(state, in, out any) (bool, any) {
			return state.(open).step(in, out)
		},
		Equal: func(a, b any) bool {
			x, y := a.(open), b.(open)
			return x.requests == y.requests && x.tokens == y.tokens && maps.Equal(x.held, y.held) && maps.Equal(x.settled, y.settled)
		},
	}
}

// customer is what was asked for one tenant, and when.
type customer struct {
	began time.Time
	mu    sync.Mutex
	calls []porcupine.Operation
}

func (c *customer) now() time.Duration { return time.Since(c.began) }

func (c *customer) add(in, out any, called, returned time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, porcupine.Operation{ClientId: len(c.calls), Input: in, Output: out, Call: int64(called), Return: int64(returned)})
}

// completion is one reservation from its reserve to its end: it is settled, once or by two at once, is extended before, ends before
// it is settled, or its holder crashes. Whoever gets no answer asks again, of another process.
func (c *customer) completion(t *testing.T, processes []*limiter.Limiter, key string, limits []quota.Limit) {
	amount, ttl := 1+rand.Int64N(400), time.Duration(30+rand.IntN(120))*time.Millisecond
	until := func(answered func(l *limiter.Limiter) bool) (called, last, returned time.Duration) {
		called = c.now()
		for {
			last = c.now()
			if answered(processes[rand.IntN(len(processes))]) || t.Failed() {
				return called, last, c.now()
			}
		}
	}
	var d quota.Decision
	called, _, returned := until(func(l *limiter.Limiter) bool {
		o := l.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: amount, TTL: ttl, IdempotencyKey: key}})[0]
		if o.Err != nil {
			t.Errorf("reserve: %v", o.Err)
		}
		d = o.Decision
		return d.Basis == quota.BasisExact
	})
	if !d.Allowed {
		c.add(reserveOf{limits, amount}, "", called, returned)
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		return
	}
	id, from, to := d.Reservation.ID, called+ttl, returned+ttl
	c.add(reserveOf{limits, amount}, id, called, returned)

	fate := rand.IntN(5)
	if fate == 0 {
		over := false
		called, last, returned := until(func(l *limiter.Limiter) bool {
			o := l.Extend(t.Context(), []quota.Claim{{Reservation: id, TTL: ttl}})[0]
			over = o.Err != nil
			return over || o.Decision.Reservation != nil
		})
		switch {
		case !over:
			c.add(extendOf(id), true, called, returned)
			from, to = last+ttl, returned+ttl
		case called == last:
			c.add(extendOf(id), false, called, returned)
		default: // it had been extended, and the reply was lost
			to = returned + ttl
		}
	}
	if fate == 1 { // it crashes
		c.add(expireOf(id), nil, from, to)
		return
	}
	if fate == 2 {
		time.Sleep(to - c.now() + time.Millisecond)
	}
	actual := rand.Int64N(amount + amount/4)
	settle := func() (released bool) {
		var s quota.Settlement
		called, _, returned := until(func(l *limiter.Limiter) bool {
			o := l.Settle(t.Context(), []quota.Claim{{Reservation: id, Actual: actual}})[0]
			if o.Err != nil {
				t.Errorf("settle: %v", o.Err)
				return true
			}
			s = *o.Decision.Settlement
			return !s.Pending
		})
		c.add(settleOf{id, amount, actual}, s, called, returned)
		return s.Released
	}
	var repeated sync.WaitGroup
	if fate == 3 {
		repeated.Go(func() { settle() })
	}
	if !settle() {
		c.add(expireOf(id), nil, from, to)
	}
	repeated.Wait()
}

// TestReservationsLinearizable: some order of all calls, and of the ends that nobody calls, explains every answer: a semaphore
// whose holders crash, and a quota whose settles repeat, with two processes on one Redis that lose calls and replies.
func TestReservationsLinearizable(t *testing.T) {
	for name, units := range map[string][2]int64{"semaphore": {1 << 20, 3}, "quota": {12_000, 1000}} {
		t.Run(name, func(t *testing.T) {
			p := completions()
			p.OnStoreLoss, p.MaxHold = quota.FailClosed, 100
			p.Limits[0].Units, p.Limits[1].Units, p.Limits[2].Units = 1000, units[0], units[1]
			p.Limits[1].Algorithm = quota.SlidingWindow
			for i := range 2 {
				p.Limits[i].Window = time.Hour // nothing ages
			}
			addr, seal := redisserver.Start(t, redisserver.Options{}).Addr(), limiter.NewSeal()
			var processes []*limiter.Limiter
			for range 2 {
				s := limiter.NewRedis(t, addr, "")
				limitertest.KeepRunning(t, s)
				r := newRig(t, limiter.Options{Store: lossy{s}, Config: onePolicy(p), Seal: seal})
				limitertest.KeepRunning(t, r)
				processes = append(processes, r.Limiter)
			}
			c := &customer{began: time.Now()}
			var all sync.WaitGroup
			for worker := range 6 {
				all.Go(func() {
					for n := range 40 {
						c.completion(t, processes, fmt.Sprint(worker, "-", n), p.Limits)
					}
				})
			}
			all.Wait()
			kinds := map[string]int{}
			for _, call := range c.calls {
				kinds[fmt.Sprintf("%T", call.Input)]++
				if call.Output == "" {
					kinds["denied"]++
				}
			}
			t.Logf("%v", kinds)
			for _, kind := range []string{"denied", "limiter_test.expireOf", "limiter_test.extendOf", "limiter_test.settleOf"} {
				if kinds[kind] == 0 {
					t.Errorf("nothing was %s", kind)
				}
			}
			switch porcupine.CheckOperationsTimeout(reservations(), c.calls, 30*time.Second) {
			case porcupine.Illegal:
				t.Errorf("no order explains the %d calls", len(c.calls))
			case porcupine.Unknown:
				t.Errorf("the %d calls were not understood in time", len(c.calls))
			}
		})
	}
}
