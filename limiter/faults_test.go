package limiter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/faultproxy"
	"github.com/regiond/regiond/test/redisserver"
)

// A budget below what one check needs is not refused: what meets no other is decided, and
// the operator is told, once. How long a server may be silent is not judged here.
func TestFaultsBudgetBelowNeed(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	var log capture.Log
	r := optionsRig(t, redisstore.Options{
		Addrs: []string{proxy.Addr()}, Budget: 10 * time.Millisecond, DeadAfter: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, limiter.Options{Config: onePolicy(quota.Policy{Limits: perMinute(10_000)})})
	limitertest.Eventually(t, 2*time.Second, "redis decides", func() bool { return r.check(t, "warm", 1).Basis == quota.BasisExact })
	proxy.Delay(25 * time.Millisecond)
	warned := func() int { return strings.Count(log.String(), "redis_budget=10ms") }
	limitertest.Eventually(t, 5*time.Second, "it is warned of", func() bool {
		if d := r.check(t, "acme", 1); d.Basis != quota.BasisExact {
			t.Fatalf("%v because of %q", d.Basis, d.Reason)
		}
		return warned() > 0
	})
	need, _ := r.collected(t)["regiond.redis.need"].Data.(metricdata.Gauge[float64])
	if warned() != 1 || len(need.DataPoints) != 1 || need.DataPoints[0].Value < 0.01 || need.DataPoints[0].Value > 1 {
		t.Errorf("warned %d times, exported %v", warned(), need.DataPoints)
	}
}

// A client that hangs up changes nothing: what was sent is waited for, so it is known
// what was charged, and the store is not blamed.
func TestFaultsClientHangsUp(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	r := redisRig(t, proxy.Addr(), manyPolicies(1000), time.Second)
	awaitExact(t, r, 2*time.Second)
	proxy.Delay(40 * time.Millisecond)
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Millisecond, errors.New("hung up"))
	defer cancel()
	d, err := r.Check(ctx, quota.Request{Tenant: "acme", Policy: "closed-enforce", Cost: 1})
	if err != nil || d.Basis != quota.BasisExact {
		t.Errorf("%v, %v because of %q", err, d.Basis, d.Reason)
	}
	if d := r.check(t, "acme/closed-enforce", 1); d.Basis != quota.BasisExact {
		t.Errorf("the next answer is %v because of %q", d.Basis, d.Reason)
	}
	if n := r.count(t, "regiond.redis.ambiguous"); n != 0 {
		t.Errorf("%d ambiguous checks are counted", n)
	}
}

// awaitExact polls until Redis decides again, and returns how long it took.
func awaitExact(t *testing.T, r *rig, within time.Duration) time.Duration {
	t.Helper()
	return limitertest.Eventually(t, within, "redis decides", func() bool {
		return r.check(t, "probe/closed-enforce", 1).Basis == quota.BasisExact
	})
}
