package limiter_test

import (
	"sync"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// TestSettlesAfterAReload: what a reservation holds is freed under the limits that it was made under, and charged to those in force.
func TestSettlesAfterAReload(t *testing.T) {
	for name, reload := range map[string]func(*quota.Policy){
		"the same":          func(*quota.Policy) {},
		"another window":    func(p *quota.Policy) { p.Limits[1].Window = time.Hour },
		"another algorithm": func(p *quota.Policy) { p.Limits[1].Algorithm = quota.SlidingWindow },
		"counted by user":   func(p *quota.Policy) { p.Limits[1].By = []string{"user"} },
		"one limit more": func(p *quota.Policy) {
			p.Limits = append(p.Limits, quota.Limit{Name: "daily", Units: 5000, Window: 24 * time.Hour, By: []string{"user"}, Counts: quota.CountsTokens})
		},
		"none in flight": func(p *quota.Policy) { p.Limits = p.Limits[:2] },
	} {
		before, after := onePolicy(completions()), completions()
		reload(&after)
		r := memoryRig(t, before, nil)
		first := r.reserve(t, "acme", 600)
		ok(t, r.Configure(onePolicy(after)))
		for _, replayed := range []bool{false, true} {
			if d := r.settle(t, first, 250); *d.Settlement != (quota.Settlement{Charged: 250, Released: true}) || d.Replayed != replayed {
				t.Errorf("%s: settled: %+v, replayed %v", name, d.Settlement, d.Replayed)
			}
		}
		for i, s := range r.reserve(t, "acme", 0).Limits {
			if used := s.Used(); s.Held != 0 || i > 0 && s.Limit.Counts == quota.CountsTokens && used != 250 {
				t.Errorf("%s: %d held of %s, %d used", name, s.Held, s.Limit.Name, used)
			}
		}
		ok(t, r.Configure(before))
		if look := r.reserve(t, "acme", 0); look.Limits[1].Held != 0 || look.Limits[2].Held != 0 {
			t.Errorf("%s: %+v is held of the limits of before", name, look.Limits)
		}
	}
}

// TestSettlesAfterAReset: a tenant that is reset holds nothing, and a settle afterwards is a report, once.
func TestSettlesAfterAReset(t *testing.T) {
	r := redisRig(t, redisserver.Start(t, redisserver.Options{}).Addr(), onePolicy(completions()), 4*time.Second)
	d := r.reserve(t, "acme", 600)
	ok(t, r.Reset(t.Context(), "acme"))
	if look := r.reserve(t, "acme", 0); look.Limits[1].Held != 0 || look.Limits[2].Held != 0 {
		t.Errorf("held after a reset: %+v", look.Limits)
	}
	for _, replayed := range []bool{false, true} {
		if s := r.settle(t, d, 70); *s.Settlement != (quota.Settlement{Charged: 70}) || s.Replayed != replayed {
			t.Errorf("settled: %+v, replayed %v", s.Settlement, s.Replayed)
		}
	}
	if left := r.reserve(t, "acme", 0).Limits[1].Remaining; left != 930 {
		t.Errorf("%d left, want 930", left)
	}
}

// TestReservationsReplayAfterAReload: a reserve that is repeated is answered from the store, also where a limit of tokens applies
// to it no more, or only now.
func TestReservationsReplayAfterAReload(t *testing.T) {
	holds, never := completions(), completions()
	never.Limits = never.Limits[:2]
	never.Limits[1].When = []quota.Match{{Dimension: "model", Value: "other"}}
	for name, reload := range map[string][2]quota.Policy{"no more": {holds, never}, "only now": {never, holds}} {
		r := redisRig(t, redisserver.Start(t, redisserver.Options{}).Addr(), onePolicy(reload[0]), 4*time.Second)
		ask := func() quota.Outcome {
			return r.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 100, IdempotencyKey: "k"}})[0]
		}
		ask()
		ok(t, r.Configure(onePolicy(reload[1])))
		if o := ask(); o.Err != nil || !o.Decision.Replayed || o.Decision.Basis != quota.BasisExact || o.Decision.Reservation == nil {
			t.Errorf("%s: %v, %+v", name, o.Err, o.Decision)
		}
	}
}

// TestReplayedReservationsEndInTime: the store's clock is set back between both calls. What is held lasts no longer for that.
func TestReplayedReservationsEndInTime(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	r := memoryRig(t, onePolicy(completions()), func() time.Time { return now })
	ask := func() quota.Decision {
		return r.Reserve(t.Context(), []quota.Request{{Tenant: "acme", Reserve: true, Cost: 100, IdempotencyKey: "k"}})[0].Decision
	}
	first := ask()
	now = now.Add(-time.Hour)
	if d := ask(); !d.Replayed || d.Reservation.ID != first.Reservation.ID || d.Reservation.ExpiresIn != 30*time.Second {
		t.Errorf("replayed %v: %+v, first %+v", d.Replayed, d.Reservation, first.Reservation)
	}
}

// TestProcessesSettleOnce: of several processes that settle one reservation at once, one charges it and frees what it held,
// also where that is of the partition that values or tenants beyond their bounds share, and they have places for them.
func TestProcessesSettleOnce(t *testing.T) {
	p := completions()
	p.Limits[1].By = []string{"user"}
	narrow := onePolicy(p)
	narrow.Tenants, narrow.MaxValues, narrow.MaxUnknown = map[string]quota.Tenant{"acme": {Policy: "llm"}}, 1, 1
	wide := narrow
	wide.MaxValues, wide.MaxUnknown = 100, 100
	seal := limiter.NewSeal()
	addr := redisserver.Start(t, redisserver.Options{}).Addr()
	process := func(c limiter.Config) *limiter.Limiter {
		return optionsRig(t, redisstore.Options{Addrs: []string{addr}, Budget: 4 * time.Second}, limiter.Options{Config: c, Seal: seal}).Limiter
	}
	first, others := process(narrow), []*limiter.Limiter{process(wide), process(wide)}
	asks := func(l *limiter.Limiter, tenant, user string, amount int64) quota.Decision {
		t.Helper()
		o := l.Reserve(t.Context(), []quota.Request{{
			Tenant: tenant, Reserve: true, Cost: amount, Dimensions: quota.Dimensions{{Name: "user", Value: user}}, IdempotencyKey: tenant + user,
		}})
		if o[0].Err != nil || !o[0].Decision.Allowed {
			t.Fatalf("%s %s: %+v", tenant, user, o[0])
		}
		return o[0].Decision
	}
	for i, tenant := range []string{"acme", "other"} {
		asks(first, tenant, "known", 1) // has the only place
		if tenant = tenant + "-unknown"; i == 0 {
			tenant = "acme"
		}
		d := asks(first, tenant, "beyond", 600)
		again := d
		if i == 1 { // of a value, a process that replays it charges the value's own partition, if it is settled by that id
			again = asks(others[0], tenant, "beyond", 600)
		}
		outcomes, all := make([]quota.Outcome, 8), sync.WaitGroup{}
		for n := range outcomes {
			all.Go(func() {
				claim := quota.Claim{Reservation: []string{d.Reservation.ID, again.Reservation.ID}[n/4], Actual: 250}
				outcomes[n] = others[n%2].Settle(t.Context(), []quota.Claim{claim})[0]
			})
		}
		all.Wait()
		charges := 0
		for _, o := range outcomes {
			if o.Err != nil || *o.Decision.Settlement != (quota.Settlement{Charged: 250, Released: true}) {
				t.Errorf("%s: %v, %+v", tenant, o.Err, o.Decision.Settlement)
			}
			if !o.Decision.Replayed {
				charges++
			}
		}
		if look := asks(first, tenant, "beyond-too", 0).Limits[1]; charges != 1 || look.Held != 0 || look.Used() != 250 {
			t.Errorf("%s: charged %d times; %d held, %d used", tenant, charges, look.Held, look.Used())
		}
	}
}
