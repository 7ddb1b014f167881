package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// TestReplayOfAnotherPolicy: what was admitted under one policy is replayed as that policy's, after an override or a reload gave the
// tenant another one: the reservation is the same, and is charged once and freed whichever answer it is settled by.
func TestReplayOfAnotherPolicy(t *testing.T) {
	tokens := func(name, by string) quota.Policy {
		return quota.Policy{Name: name, EnforcePercent: -1, MaxTTL: time.Minute, MaxHold: 100, Limits: []quota.Limit{
			{Name: name + "-tokens", Units: 1000, Window: time.Hour, Counts: quota.CountsTokens, By: []string{by}},
			{Name: "requests", Units: 50, Window: time.Hour},
		}}
	}
	config := func(policy string) limiter.Config {
		return limiter.Config{Region: "eu", MaxValues: 10, Policies: []quota.Policy{tokens("small", "user"), tokens("large", "team")}, Tenants: map[string]quota.Tenant{"acme": {Policy: policy}}}
	}
	onRedis := redisserver.Start(t, redisserver.Options{}).Addr()
	for _, row := range []struct{ store, change string }{{"memory", "override"}, {"memory", "reload"}, {"redis", "override"}, {"redis", "reload"}} {
		t.Run(row.store+" "+row.change, func(t *testing.T) {
			o := &overlay{all: map[string]*quota.Override{}}
			options := limiter.Options{Overrides: o, Config: config("small")}
			if row.store == "redis" {
				options.Store = redisRig(t, onRedis, config("small"), 4*time.Second).store
			}
			r := newRig(t, options)
			reserve := func() quota.Decision {
				all := r.Reserve(context.Background(), []quota.Request{{
					Tenant: "acme", Reserve: true, Cost: 100, IdempotencyKey: row.change, Dimensions: user(row.change), IgnoreUnknown: true,
				}})
				if all[0].Err != nil {
					t.Fatal(all[0].Err)
				}
				return all[0].Decision
			}
			first := reserve()
			if row.change == "override" {
				o.set("acme", "large")
			} else if err := r.Configure(config("large")); err != nil {
				t.Fatal(err)
			}
			again := reserve()
			if !again.Replayed || again.Policy != "small" || again.Limits[0].Limit.Name != "small-tokens" || again.Limits[0].Limit.Counts != quota.CountsTokens {
				t.Errorf("the replay is by %s of policy %s", again.Limits[0].Limit.Name, again.Policy)
			}
			if s := r.settle(t, again, 70); s.Settlement.Charged != 70 || !s.Settlement.Released {
				t.Errorf("settled by the replay: %+v", s.Settlement)
			}
			if s := r.settle(t, first, 70); !s.Replayed {
				t.Errorf("settled by the first answer once more: %+v", s.Settlement)
			}
			for policy, want := range map[string]int64{"small": 930, "large": 1000} {
				o.set("acme", policy)
				d, err := r.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1, Dimensions: user(row.change), IgnoreUnknown: true})
				if err != nil || d.Limits[0].Remaining != want {
					t.Errorf("%s: %d tokens are left, want %d; %v", policy, d.Limits[0].Remaining, want, err)
				}
			}
		})
	}
}

// TestReplayOfOtherUnits: what was admitted in tokens, or in requests, is replayed so after an override gave the limit other units.
func TestReplayOfOtherUnits(t *testing.T) {
	limits := []quota.Limit{
		{Name: "shaped", Units: 10, Window: time.Hour, Algorithm: quota.GCRA},
		{Name: "tokens", Units: 1000, Window: time.Hour, Counts: quota.CountsTokens},
	}
	config := onePolicy(quota.Policy{Limits: limits, MaxTTL: time.Minute, MaxHold: 100})
	o := &overlay{all: map[string]*quota.Override{}}
	r := newRig(t, limiter.Options{
		Overrides: o, Config: config, Store: redisRig(t, redisserver.Start(t, redisserver.Options{}).Addr(), config, 4*time.Second).store,
	})
	for _, units := range []int64{0, 20} {
		if units > 0 {
			o.set("acme", "", quota.OverrideLimit{Name: "shaped", Units: units}, quota.OverrideLimit{Name: "tokens", Units: units})
		}
		d := must(r.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: "k"}))(t)
		if d.Replayed != (units > 0) {
			t.Fatalf("%+v", d)
		}
		for i, want := range limits {
			if l := d.Limits[i].Limit; l.Units != want.Units || l.Counts != want.Counts {
				t.Errorf("under %d units: %+v, want %+v", units, l, want)
			}
		}
	}
}

// TestReplayOfGoneLimits: a limit that no policy has any more is replayed as what it was, of tokens or of requests at once, also where
// another one has its name now.
func TestReplayOfGoneLimits(t *testing.T) {
	before := quota.Policy{Name: "llm", MaxTTL: time.Minute, MaxHold: 100, Limits: []quota.Limit{
		{Name: "tokens", Units: 1000, Window: time.Hour, Counts: quota.CountsTokens},
		{Name: "inflight", Units: 20, Window: time.Minute, Algorithm: quota.Concurrent},
	}}
	after := []quota.Limit{
		{Name: "inflight", Units: 20, Window: time.Minute},
		{Name: "tokens", Units: 1000, Window: time.Hour},
		{Name: "more", Units: 9000, Window: time.Hour, Counts: quota.CountsTokens},
	}
	addr := redisserver.Start(t, redisserver.Options{}).Addr()
	for _, policy := range []string{"llm", "other"} {
		r := redisRig(t, addr, onePolicy(before), 4*time.Second)
		q := quota.Request{Tenant: policy, Reserve: true, Cost: 100, IdempotencyKey: "k"}
		r.Reserve(t.Context(), []quota.Request{q})
		ok(t, r.Configure(onePolicy(quota.Policy{Name: policy, MaxTTL: time.Minute, MaxHold: 100, Limits: after})))
		o := r.Reserve(t.Context(), []quota.Request{q})[0]
		if d := &o.Decision; o.Err != nil || !d.Replayed || d.Policy != "llm" || len(d.Limits) != len(before.Limits) {
			t.Fatalf("%s: %v, %+v", policy, o.Err, d)
		}
		for i, want := range before.Limits {
			if l := o.Decision.Limits[i].Limit; l.Name != want.Name || l.Counts != want.Counts || l.Algorithm != want.Algorithm || o.Decision.Limits[i].Held == 0 {
				t.Errorf("%s: %+v, want %+v", policy, o.Decision.Limits[i], want)
			}
		}
	}
}

// TestReplayIsAsOldAsItIs: a replay says for how long yet its units are used, in the store and while that is away.
func TestReplayIsAsOldAsItIs(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(5), OnStoreLoss: quota.FailClosed}))
	for _, age := range []time.Duration{0, 20, 20, 15} {
		w.at = w.at.Add(age * time.Second)
		for _, away := range []bool{false, true} {
			if w.heals(); away && age > 0 {
				w.fails(quota.ReasonRedisDown, false)
			}
			d := must(w.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: "k"}))(t)
			if want := atRest().Add(time.Minute).Sub(w.at); d.Limits[0].ResetAfter != want || d.Replayed != (away || age > 0) {
				t.Errorf("away %t: free in %v, want %v; replayed %t", away, d.Limits[0].ResetAfter, want, d.Replayed)
			}
		}
	}
}

// TestReplayOverAPeriodsEnd: a replay says when the period ends in which it was admitted, however old it is; and after that, that nothing of
// it is used any more.
func TestReplayOverAPeriodsEnd(t *testing.T) {
	now := time.Date(2026, 11, 28, 23, 59, 20, 0, time.UTC)
	day := quota.Limit{
		Name: "daily", Units: 5, Window: quota.CalendarDay.Window(), Algorithm: quota.CalendarPeriods,
		Calendar: &quota.Calendar{Unit: quota.CalendarDay, Anchor: 1, Zone: time.UTC},
	}
	r := memoryRig(t, onePolicy(quota.Policy{Limits: []quota.Limit{day}}), func() time.Time { return now })
	for i, row := range []struct {
		reset time.Duration
		ends  string
	}{{40 * time.Second, "2026-11-29T00:00:00Z"}, {15 * time.Second, "2026-11-29T00:00:00Z"}, {0, "2026-11-30T00:00:00Z"}} {
		d := must(r.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: "k"}))(t)
		s := &d.Limits[0]
		if d.Replayed != (i > 0) || s.ResetAfter != row.reset || s.EndText(d.StoreUS) != row.ends {
			t.Errorf("at %v: replayed %t, reset after %v, ends %s", now, d.Replayed, s.ResetAfter, s.EndText(d.StoreUS))
		}
		now = now.Add(25 * time.Second)
	}
}

// TestReplayOfAReserveWhileTheStoreIsAway: it is of the same reservation, with the time that is left of that, whose end the process
// cannot move: the store holds it. What memory holds it can extend.
func TestReplayOfAReserveWhileTheStoreIsAway(t *testing.T) {
	w := newWeather(t, onePolicy(completions()))
	for _, mine := range []bool{false, true} {
		reserve := func() *quota.Reservation {
			o := w.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 100, IdempotencyKey: fmt.Sprint(mine)}})
			return must(o[0].Decision.Reservation, o[0].Err)(t)
		}
		if mine {
			w.fails(quota.ReasonRedisDown, false)
		}
		first := reserve()
		w.fails(quota.ReasonRedisDown, false)
		w.at = w.at.Add(20 * time.Second)
		again := reserve()
		if again.ID != first.ID || again.ExpiresIn != 10*time.Second {
			t.Errorf("held by memory %t: replayed %+v, want %s for 10s more", mine, again, first.ID)
		}
		o := w.Extend(t.Context(), []quota.Claim{{Reservation: again.ID, TTL: time.Minute}})
		if o[0].Err != nil || o[0].Decision.Allowed != mine {
			t.Errorf("held by memory %t: extended %+v, %v", mine, o[0].Decision, o[0].Err)
		}
		w.heals()
	}
}

// TestReplayOfWhatWouldNotPassNow: what was admitted is replayed, though an override or a reload has lowered the limit below its cost, or
// other regions are not seen and the policy is closed then. Another request is refused as ever, and charged nothing.
func TestReplayOfWhatWouldNotPassNow(t *testing.T) {
	for _, away := range []bool{false, true} {
		overrides, peers := &overlay{all: map[string]*quota.Override{}}, &others{ceiling: quota.Ceiling{Units: 1000, Local: 1000}}
		p := completions()
		p.OnStoreLoss, p.Limits[1].Scope = quota.FailOpen, quota.ScopeGlobal
		c := onePolicy(p)
		c.Global = peers
		w := newWeather(t, c)
		w.rig = newRig(t, limiter.Options{Store: w.store, Config: c, Overrides: overrides, Now: w.now})
		ask := func(key string) (check, reserve quota.Outcome) {
			check.Decision, check.Err = w.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 9, IdempotencyKey: key})
			return check, w.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Cost: 600, Reserve: true, IdempotencyKey: key + "-reserve"}})[0]
		}
		ask("before")
		for _, row := range []struct {
			why   string
			then  func()
			fault quota.Fault // 0: a decision
		}{
			{"override", func() {
				overrides.set("acme", "", quota.OverrideLimit{Name: "requests", Units: 8}, quota.OverrideLimit{Name: "tokens", Units: 900})
			}, quota.FaultCost},
			{"reload", func() {
				overrides.all = nil
				p.Limits = slices.Clone(p.Limits)
				p.MaxHold, p.Limits[0].Units = 50, 8
				c.Policies = []quota.Policy{p}
				ok(t, w.Configure(c))
			}, quota.FaultCost},
			{"closed", func() {
				p.Limits = slices.Clone(p.Limits)
				p.MaxHold, p.Limits[0].Units = 60, 10
				c.Policies = []quota.Policy{p}
				ok(t, w.Configure(c))
				peers.set(quota.Ceiling{Closed: true})
			}, 0},
		} {
			if row.then(); away {
				w.fails(quota.ReasonRedisDown, false)
			}
			check, reserve := ask("before")
			otherCheck, otherReserve := ask(row.why)
			for _, o := range []quota.Outcome{check, reserve} {
				if o.Err != nil || !o.Decision.Replayed || !o.Decision.Allowed {
					t.Errorf("%s, away %t: a repeated request is answered %+v", row.why, away, o)
				}
			}
			for _, o := range []quota.Outcome{otherCheck, otherReserve} {
				if bad, refused := errors.AsType[*quota.Invalid](o.Err); refused && bad.Fault != row.fault || o.Decision.Allowed ||
					!refused && (row.fault != 0 || o.Decision.Basis != quota.BasisClosed) {
					t.Errorf("%s, away %t: another one is answered %+v", row.why, away, o)
				}
			}
			w.heals()
		}
		if denied := w.count(t, "regiond.decisions", "decision=denied", "basis=closed"); denied != 2 {
			t.Errorf("away %t: %d denials are counted, want 2", away, denied)
		}
		peers.set(quota.Ceiling{Units: 1000, Local: 1000})
		if d := w.reserve(t, "acme", 0); d.Limits[0].Remaining != 0 || d.Limits[1].Held != 600 {
			t.Errorf("away %t: %+v", away, d.Limits)
		}
	}
}

// TestReplayUnderAnotherMaxTTL: an id that a replay gives is good for as long as the first one, whatever policy the tenant has by then: a
// settle by each is charged once.
func TestReplayUnderAnotherMaxTTL(t *testing.T) {
	now, o := atRest(), &overlay{all: map[string]*quota.Override{}}
	long := completions()
	long.Name, long.MaxTTL = "long", time.Hour
	c := onePolicy(completions())
	c.Policies = append(c.Policies, long)
	r := newRig(t, limiter.Options{Config: c, Overrides: o, Now: func() time.Time { return now }})
	reserve := func() quota.Decision {
		return r.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 100, IdempotencyKey: "k"}})[0].Decision
	}
	first := reserve()
	o.set("acme", "long")
	again := reserve()
	if again.Reservation.ID != first.Reservation.ID {
		t.Errorf("the id of the replay is another one")
	}
	r.settle(t, first, 70)
	now = now.Add(20 * time.Minute)
	if f := fault(t, r.Settle(t.Context(), []quota.Claim{{Reservation: again.Reservation.ID, Actual: 70}})); f != quota.FaultOver {
		t.Errorf("settled once more: fault %d", f)
	}
}
