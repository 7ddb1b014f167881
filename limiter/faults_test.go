package limiter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
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

// A budget below what one check needs is not refused: what meets no other is decided, and
// the operator is told, once. How long a server may be silent is not judged here.
func TestFaultsBudgetBelowNeed(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	var log lockedBuffer
	r := optionsRig(t, redisstore.Options{
		Addrs: []string{proxy.Addr()}, Budget: 10 * time.Millisecond, DeadAfter: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}, onePolicy(quota.Policy{Limits: perMinute(10_000)}))
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

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// One connection to a server falls silent for ever, while others to it go on: what was
// sent on it is given up in time, though the server is alive and no breaker opens.
func TestFaultsOneConnectionLost(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	proxy := faultproxy.Start(t, srv.Addr())
	r := redisRig(t, proxy.Addr(), manyPolicies(1000), 0)
	awaitExact(t, r, 2*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	slowest := make([]time.Duration, 8)
	for i := range slowest {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				start := time.Now()
				r.check(t, fmt.Sprintf("acme%d-%d/closed-enforce", i, n%100), 1)
				slowest[i] = max(slowest[i], time.Since(start))
			}
		})
	}
	for range 3 {
		<-proxy.Arm(faultproxy.Fault{Kind: faultproxy.Swallow, Reply: 20, Scripts: true})
		time.Sleep(200 * time.Millisecond) // long enough that what is lost is given up
	}
	cancel()
	wg.Wait()
	if took := slices.Max(slowest); took > 150*time.Millisecond {
		t.Errorf("an answer took %v", took)
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
	return limitertest.Eventually(t, within, "redis decides", func() bool {
		return r.check(t, "probe/closed-enforce", 1).Basis == quota.BasisExact
	})
}
