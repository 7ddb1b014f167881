package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

const (
	trafficTenants = 24
	trafficWorkers = 8
	trafficPace    = 2 * time.Millisecond // of one worker
	// trafficBudget is far from what a healthy server takes, the race detector and a busy
	// machine included: what fails has met a server that is away.
	trafficBudget = 2 * time.Second
	trafficBatch  = 3 // calls that travel together, for tenants of different slots
)

// traffic is traffic that a nodeSet is judged by while something happens to it: what
// each tenant was answered, and when it was answered exactly again.
type traffic struct {
	store   *Store
	quit    atomic.Bool
	workers sync.WaitGroup
	waited  atomic.Int64 // ns that this process waited for a processor, as a watchdog counts it

	mu       sync.Mutex
	answered [trafficTenants]answered
	slowest  time.Duration // without what the process waited
}

// answered is what callers know of a tenant.
type answered struct {
	allowed, ambiguous int64
	failed             int64
	last               time.Time // of the newest admission
}

func trafficTenant(i int) string { return fmt.Sprint("tenant", i) }

func trafficKey(i int) string { return limitertest.OneCall(trafficTenant(i), 1, 1).Keys[0] }

func startTraffic(t *testing.T, s *Store) *traffic {
	t.Helper()
	st := &traffic{store: s}
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 1 << 20, Window: time.Hour}})
	for w := range trafficWorkers {
		st.workers.Go(func() {
			pace := time.NewTicker(trafficPace)
			defer pace.Stop()
			for n := w; !st.quit.Load(); n++ {
				st.ask(t, plan, n%trafficTenants)
				<-pace.C
			}
		})
	}
	st.workers.Go(st.wait)
	t.Cleanup(func() { st.stop() })
	return st
}

// wait counts what a watchdog does not: beside other work, silence has to be longer to be death.
func (st *traffic) wait() {
	const watchEvery = 5 * ms // of package queue
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for last := time.Now(); !st.quit.Load(); {
		<-ticker.C
		now, step := time.Now(), watchEvery
		if now.Sub(last) > 2*watchEvery {
			step = watchEvery / 4
		}
		st.waited.Add(int64(max(0, now.Sub(last)-step)))
		last = now
	}
}

// ask sends a batch whose tenants begin with first.
func (st *traffic) ask(t *testing.T, plan *store.KeyPlan, first int) {
	var calls [trafficBatch]store.Call
	var verdicts [trafficBatch]store.Verdict
	for i := range calls {
		calls[i] = limitertest.CallOf(plan, trafficTenant((first+7*i)%trafficTenants), 1)
	}
	start, waited := time.Now(), st.waited.Load()
	st.store.Decide(context.Background(), calls[:], verdicts[:])
	took := time.Since(start) - time.Duration(st.waited.Load()-waited)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.slowest = max(st.slowest, took)
	for i := range verdicts {
		failed := verdicts[i].Err
		k := &st.answered[(first+7*i)%trafficTenants]
		var e *store.Error
		switch {
		case failed == nil && verdicts[i].Outcome == store.Admitted:
			k.allowed, k.last = k.allowed+1, start
		case failed == nil:
			t.Errorf("%+v, want all admitted", verdicts[i])
		case errors.As(failed, &e) && e.Ambiguous:
			k.ambiguous, k.failed = k.ambiguous+1, k.failed+1
		default:
			k.failed++
		}
	}
}

func (st *traffic) stop() {
	st.quit.Store(true)
	st.workers.Wait()
}

func (st *traffic) now() [trafficTenants]answered {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.answered
}

// flowing waits until each of the tenants that are meant is admitted exactly
// again, by a call that was sent after this moment, and says how long that took.
func (st *traffic) flowing(t *testing.T, meant func(i int) bool) time.Duration {
	t.Helper()
	start := time.Now()
	return limitertest.Eventually(t, 20*time.Second, "decisions are exact again", func() bool {
		for i, k := range st.now() {
			if meant(i) && k.last.Before(start) {
				return false
			}
		}
		return true
	})
}

func everybody(int) bool { return true }

// judge holds what was answered against what the servers have: all that was admitted
// was charged but for what Redis lost, and nothing was charged twice.
func (st *traffic) judge(t *testing.T, client func(key string) *redis.Client, lost func(i int) int64) {
	t.Helper()
	st.stop()
	t.Logf("the slowest answer took %v, the process waited %v", st.slowest, time.Duration(st.waited.Load()))
	if st.slowest > trafficBudget+late {
		t.Errorf("an answer took %v, the budget is %v", st.slowest, trafficBudget)
	}
	for i, k := range st.now() {
		units := must(client(trafficKey(i)).LLen(context.Background(), trafficKey(i)).Result())(t)
		l := ledger{allowed: k.allowed - lost(i), ambiguous: k.ambiguous + lost(i)}
		if err := l.within(units); err != nil {
			t.Errorf("%s: %v (%d may be lost)", trafficTenant(i), err, lost(i))
		}
	}
}

func nothing(int) int64 { return 0 }

// nodeSetStore is a store on several servers that is probed as in production, and
// what it has counted.
func nodeSetStore(t *testing.T, o Options) (*Store, func(name string) int64) {
	t.Helper()
	reader := metric.NewManualReader()
	o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	o.Budget = trafficBudget
	s := newStore(t, o)
	limitertest.KeepRunning(t, s)
	awaitState(t, s, true)
	return s, func(name string) int64 { return sumOf(t, reader, name) }
}

func sumOf(t *testing.T, reader *metric.ManualReader, name string) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	ok(t, reader.Collect(context.Background(), &all))
	total := int64(0)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range sum.DataPoints {
					total += p.Value
				}
			}
		}
	}
	return total
}

// awaitReplica waits until a server that came back follows another.
func awaitReplica(t *testing.T, srv *redisserver.Server) {
	t.Helper()
	limitertest.Eventually(t, 30*time.Second, srv.Addr()+" follows another", func() bool {
		role, err := srv.Client().Info(context.Background(), "replication").Result()
		return err == nil && strings.Contains(role, "master_link_status:up")
	})
}

// lossy is a primary that will die while its replica is behind.
type lossy struct {
	old, heir *redisserver.Server
	takeOver  func() *redisserver.Server
}

// losses lets a replica that has missed some admissions take over: these and no
// more are admitted again, and the loss is counted.
func losses(t *testing.T, s *Store, count func(name string) int64, l lossy) {
	t.Helper()
	const units, kept, lost = 50, 20, 15
	ctx := context.Background()
	plan := store.NewKeyPlan([]*quota.Limit{{Name: "hour", Units: units, Window: time.Hour}})
	spent := func(most int) (n int64) {
		t.Helper()
		for range most {
			v := must(limitertest.DecideOne(s, limitertest.CallOf(plan, "lossy", 1)))(t)
			if v.Outcome != store.Admitted {
				break
			}
			n++
		}
		return n
	}
	region, _ := stateOn(s, "one")
	region.Turn(ctx)
	answered := spent(kept)
	if n, err := l.old.Client().Wait(ctx, 1, time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have what was admitted: %v", n, err)
	}
	l.heir.Freeze()
	// What is sent to a frozen server waits in its socket; the link has to go as well.
	ok(t, l.old.Client().ClientKillByFilter(ctx, "TYPE", "replica").Err())
	region.Turn(ctx)
	answered += spent(lost)
	if n := count("regiond.redis.losses"); n != 0 {
		t.Errorf("%d losses counted before there was one", n)
	}
	l.old.Kill()
	l.heir.Thaw()
	l.takeOver()
	peek := limitertest.CallOf(plan, "lossy", 1)
	peek.Op = store.OpPeek
	limitertest.Eventually(t, 20*time.Second, "decisions are exact again", func() bool {
		_, err := limitertest.DecideOne(s, peek)
		return err == nil
	})
	if answered += spent(2 * units); answered != units+lost {
		t.Errorf("%d units admitted in all, want the limit's %d and the %d that were lost", answered, units, lost)
	}
	region.Turn(ctx)
	if n, after := count("regiond.redis.losses"), region.Store(); n != 1 || after.Lost == 0 {
		t.Errorf("%d losses are counted, and the epoch is %v", n, after)
	}
}
