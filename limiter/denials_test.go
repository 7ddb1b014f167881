package limiter_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/quota"
)

// While a denial is remembered its retry-after falls with the clock, and when it
// has passed the same cost is admitted; a millisecond earlier it is not.
func TestRememberedRetryAfterStaysSound(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		var limits []quota.Limit
		capacity := quota.MaxUnits
		for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "limits")] {
			limit := *limitertest.GenLimit(t, name)
			limit.Window = time.Duration(rapid.IntRange(20, 5000).Draw(t, "W")) * time.Millisecond
			limit.Burst = 0
			limits, capacity = append(limits, limit), min(capacity, limit.Units)
		}
		w := newWeather(outer, onePolicy(quota.Policy{Limits: limits}))
		cost := rapid.Int64Range(max(1, capacity/4), capacity).Draw(t, "cost")
		d := w.check(t, "acme", cost)
		for range 10 {
			if !d.Allowed {
				break
			}
			d = w.check(t, "acme", cost)
		}
		if d.Allowed {
			t.Skip("drains as fast as it fills")
		}
		left, resets := d.RetryAfter(), d.Limits
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			pass := time.Duration(rapid.Int64Range(0, int64(left)/3).Draw(t, "pass")).Truncate(time.Microsecond)
			w.at, left = w.at.Add(pass), left-pass
			again := w.check(t, "acme", cost)
			if again.Allowed || again.RetryAfter() != left {
				t.Fatalf("%v: allowed %v, retry after %v, want %v", again.Basis, again.Allowed, again.RetryAfter(), left)
			}
			if wants := again.Violated(); len(wants) == 0 || again.Limits[again.Headline()].RetryAfter != left {
				t.Fatalf("violated %v, headline %+v, want the one that takes %v", wants, again.Limits[again.Headline()], left)
			}
			for i := range again.Limits {
				if s := &again.Limits[i]; s.ResetAfter != max(0, resets[i].ResetAfter-d.RetryAfter()+left) {
					t.Fatalf("limit %d resets after %v, %v after %v", i, s.ResetAfter, d.RetryAfter()-left, resets[i].ResetAfter)
				}
				if s := &again.Limits[i]; s.Denied != (s.RetryAfter > 0) || s.RetryAfter < 0 {
					t.Fatalf("limit %d is denied %v for %v", i, s.Denied, s.RetryAfter)
				}
			}
		}
		if left > time.Millisecond {
			w.at, left = w.at.Add(left-time.Millisecond), time.Millisecond
			if w.check(t, "acme", cost).Allowed {
				t.Fatalf("admitted a millisecond before retry-after")
			}
		}
		w.at = w.at.Add(left)
		if d := w.check(t, "acme", cost); !d.Allowed {
			t.Fatalf("denied after retry-after, for another %v", d.RetryAfter())
		}
	})
}

// Ten thousand denied checks in two seconds reach the store once for each cost.
func TestFloodCostsTheStoreNothing(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(3)}))
	w.check(t, "acme", 3)
	before := w.store.calls.Load()
	for i := range int64(10_000) {
		if w.check(t, "acme", 1+i%3).Allowed {
			t.Fatal("admitted beyond the limit")
		}
		w.at = w.at.Add(200 * time.Microsecond)
	}
	if n := w.store.calls.Load() - before; n != 3 {
		t.Errorf("%d calls for 10000 denials of three costs", n)
	}
}

// A reload asks anew, and so does a reset, also one by another process: what was remembered is about other
// limits, or about usage that is gone.
func TestDenialsEndWithReloadAndReset(t *testing.T) {
	c := onePolicy(quota.Policy{Limits: perMinute(1)})
	s := &resetStore{Store: memstore.New(memstore.Options{Now: atRest().UnixMicro})}
	r := newRig(t, limiter.Options{Store: s, Config: c, Now: atRest})
	r.check(t, "acme", 1)
	for _, row := range []struct {
		what  string
		do    func() error
		basis quota.Basis
	}{
		{"asked once", func() error { return nil }, quota.BasisExact},
		{"asked again", func() error { return nil }, quota.BasisCached},
		{"a reload that changes nothing", func() error { return r.Configure(c) }, quota.BasisExact},
		{"asked again", func() error { return nil }, quota.BasisCached},
		{"another process resets", func() error { s.resets++; return nil }, quota.BasisExact},
	} {
		ok(t, row.do())
		if d := r.check(t, "acme", 1); d.Allowed || d.Basis != row.basis {
			t.Errorf("%s: allowed %v by %v, want a denial by %v", row.what, d.Allowed, d.Basis, row.basis)
		}
	}
	ok(t, r.Reset(context.Background(), "acme"))
	if d := r.check(t, "acme", 1); !d.Allowed {
		t.Error("denied after a reset")
	}
	ok(t, r.Configure(onePolicy(quota.Policy{Limits: perMinute(7)})))
	if d := r.check(t, "acme", 1); !d.Allowed || d.Limits[0].Remaining != 5 {
		t.Errorf("1 of 1 was spent, the limit is 7 now: %+v", d)
	}
}

// resetStore is a store that other processes use too.
type resetStore struct {
	*memstore.Store
	resets int64
}

func (s *resetStore) Resets() int64 { return s.resets }
