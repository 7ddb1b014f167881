package limiter_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/faultproxy"
	"github.com/regiond/regiond/test/redisserver"
)

// After the first failure nobody waits again: the next request is answered at
// once, by each fail mode.
func TestFaultsSecondRequestDoesNotWait(t *testing.T) {
	for _, policy := range []string{"share-enforce", "open-enforce", "closed-enforce"} {
		srv := redisserver.Start(t, redisserver.Options{})
		r := redisRig(t, srv.Addr(), manyPolicies(1000), 0)
		awaitExact(t, r, 2*time.Second)
		srv.Freeze()
		start := time.Now()
		if d := r.check(t, "acme/"+policy, 1); d.Basis == quota.BasisExact {
			t.Fatalf("%s: a frozen redis decided", policy)
		}
		first := time.Since(start)
		var took []time.Duration
		for range 21 {
			start := time.Now()
			d := r.check(t, "acme/"+policy, 1)
			took = append(took, time.Since(start))
			if d.Reason != quota.ReasonBreakerOpen && d.Reason != quota.ReasonRedisTimeout {
				t.Errorf("%s: answered because of %q", policy, d.Reason)
			}
		}
		second := took[0]
		slices.Sort(took)
		if first > 250*time.Millisecond || took[10] > 5*time.Millisecond {
			t.Errorf("%s: the first answer took %v, the median of the next %v", policy, first, took[10])
		}
		t.Logf("%s: first %v, second %v, then %v", policy, first, second, took[10])
		srv.Thaw()
	}
}

// Of L units this process admitted k on a Redis that is then killed: within the
// window it admits exactly the other L−k by itself, or its share of them. When
// Redis is back, empty, and is killed again, all that was admitted by then counts.
func TestFaultsShareContinuesFromRedis(t *testing.T) {
	for _, processes := range []int64{1, 2} {
		const units, before = 40, 13
		c := onePolicy(quota.Policy{Limits: perMinute(units)})
		c.Processes = func() int64 { return processes }
		srv := redisserver.Start(t, redisserver.Options{})
		r := redisRig(t, srv.Addr(), c, time.Second)
		exact := func(n int) {
			t.Helper()
			for range n {
				if d := r.check(t, "acme", 1); !d.Allowed || d.Basis != quota.BasisExact {
					t.Fatalf("allowed %v by %v", d.Allowed, d.Basis)
				}
			}
		}
		back := func() bool { return r.check(t, "another", 1).Basis == quota.BasisExact }
		exact(before)
		srv.Kill()
		const some = 2
		for range some {
			if d := r.check(t, "acme", 1); !d.Allowed || d.Basis != quota.BasisLocal {
				t.Fatalf("allowed %v by %v", d.Allowed, d.Basis)
			}
		}
		srv.Restart()
		limiter.Eventually(t, 2*time.Second, "redis is back", back)
		exact(3)
		srv.Kill()
		want := units/int(processes) - before - some - 3
		if got := r.admits(t, "acme", units); got != want {
			t.Errorf("%d processes: %d more admitted in the second outage, want exactly %d", processes, got, want)
		}
	}
}

// A budget is kept as it is given, also one that is longer than usual.
func TestFaultsBudgetIsAsGiven(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	r := redisRig(t, proxy.Addr(), manyPolicies(1000), 2*time.Second)
	awaitExact(t, r, 2*time.Second)
	proxy.Delay(150 * time.Millisecond)
	if d := r.check(t, "acme/closed-enforce", 1); d.Basis != quota.BasisExact {
		t.Errorf("%v because of %v after 150 ms of a budget of 2 s", d.Basis, d.Reason)
	}
}

// A client that hangs up takes its own request away and nobody else's: the store
// is not blamed for it.
func TestFaultsClientHangsUp(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	r := redisRig(t, proxy.Addr(), manyPolicies(1000), time.Second)
	awaitExact(t, r, 2*time.Second)
	proxy.Delay(40 * time.Millisecond)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Millisecond, errors.New("hung up"))
	defer cancel()
	d, err := r.Check(ctx, quota.Request{Tenant: "acme", Policy: "closed-enforce", Cost: 1})
	if err != nil || d.Basis != quota.BasisClosed || d.Reason != quota.ReasonRedisTimeout {
		t.Errorf("%v, %v because of %q", err, d.Basis, d.Reason)
	}
	if d := r.check(t, "acme/closed-enforce", 1); d.Basis != quota.BasisExact {
		t.Errorf("the next answer is %v because of %q", d.Basis, d.Reason)
	}
	if n := r.count(t, "regiond.redis.ambiguous"); n != 1 {
		t.Errorf("%d ambiguous checks are counted, want 1", n)
	}
}

// A region may start while its Redis is away.
func TestFaultsStartWithoutRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	srv.Kill()
	r := redisRig(t, srv.Addr(), manyPolicies(5), 0)
	if d := r.check(t, "acme/share-enforce", 1); !d.Allowed || d.Basis != quota.BasisLocal {
		t.Errorf("allowed %v by %v", d.Allowed, d.Basis)
	}
	srv.Restart()
	awaitExact(t, r, 2*time.Second)
}

// awaitExact polls until Redis decides again, and returns how long it took.
func awaitExact(t *testing.T, r *rig, within time.Duration) time.Duration {
	t.Helper()
	return limiter.Eventually(t, within, "redis decides", func() bool {
		return r.check(t, "probe/closed-enforce", 1).Basis == quota.BasisExact
	})
}
