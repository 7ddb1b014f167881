package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/redisserver"
)

// retries is two processes of a region whose Redis is stopped and started again.
type retries struct {
	*testing.T
	redis *redisserver.Server
	procs [2]*limiter.Limiter
	store [2]*redisstore.Store
}

func newRetries(t *testing.T, p quota.Policy) *retries {
	r := &retries{T: t, redis: redisserver.Start(t, redisserver.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})}
	for i := range r.procs {
		s := limiter.NewRedis(t, r.redis.Addr(), "")
		limitertest.KeepRunning(t, s)
		limitertest.Eventually(t, 10*time.Second, "redis is probed", s.Probed)
		l := newRig(t, limiter.Options{Store: s, Config: onePolicy(p)})
		limitertest.KeepRunning(t, l)
		r.procs[i], r.store[i] = l.Limiter, s
	}
	return r
}

func (r *retries) stop() {
	r.redis.Kill()
	limitertest.Eventually(r.T, 10*time.Second, "redis is away", func() bool { return !r.store[0].Available() && !r.store[1].Available() })
}

func (r *retries) start() {
	r.redis.Restart()
	limitertest.Eventually(r.T, 10*time.Second, "redis is back", func() bool { return r.store[0].Available() && r.store[1].Available() })
}

func (r *retries) ask(i int, tenant, key string, cost int64) quota.Decision {
	r.Helper()
	d, err := r.procs[i].Check(r.Context(), quota.Request{Tenant: tenant, Cost: cost, IdempotencyKey: key})
	if err != nil {
		r.Fatal(err)
	}
	return d
}

func (r *retries) left(tenant string) int64 {
	r.Helper()
	d, err := r.procs[0].Peek(r.Context(), quota.Request{Tenant: tenant, Cost: 1})
	if err != nil {
		r.Fatal(err)
	}
	return d.Limits[0].Remaining
}

// A retry of what Redis has admitted is answered while it is away, whatever the policy does then,
// and is free when it is back.
func TestRetryWhileRedisIsAway(t *testing.T) {
	for _, mode := range []quota.FailMode{quota.FailShare, quota.FailClosed, quota.FailOpen} {
		t.Run(mode.String(), func(t *testing.T) {
			r := newRetries(t, quota.Policy{Limits: perMinute(100), OnStoreLoss: mode})
			first := r.ask(0, "acme", "k", 60)
			r.stop()
			for range 2 {
				if d := r.ask(0, "acme", "k", 60); !d.Allowed || !d.Replayed || d.Limits[0].Remaining != first.Limits[0].Remaining {
					t.Errorf("redis is away: %+v", d)
				}
			}
			var invalid *quota.Invalid
			_, err := r.procs[0].Check(t.Context(), quota.Request{Tenant: "acme", Cost: 59, IdempotencyKey: "k"})
			if !errors.As(err, &invalid) || invalid.Fault != quota.FaultReuse {
				t.Errorf("another body: %v", err)
			}
			if d := r.ask(0, "other", "k", 1); d.Replayed {
				t.Error("the key of one tenant is replayed to another")
			}
			r.start()
			if d := r.ask(0, "acme", "k", 60); !d.Allowed || !d.Replayed {
				t.Errorf("redis is back: %+v", d)
			}
			if got := r.left("acme"); got != 40 {
				t.Errorf("%d of 100 left, want 40: 60 were charged once", got)
			}
		})
	}
}

// What a process has admitted while Redis was away, once for all concurrent retries, is replayed by
// all processes when Redis is back.
func TestRetryOfWhatMemoryAdmitted(t *testing.T) {
	r := newRetries(t, quota.Policy{Limits: perMinute(100)})
	r.stop()
	var charged atomic.Int64
	var retries sync.WaitGroup
	for range 8 {
		retries.Go(func() {
			d, err := r.procs[0].Check(context.Background(), quota.Request{Tenant: "acme", Cost: 60, IdempotencyKey: "k"})
			if err != nil || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
			if !d.Replayed {
				charged.Add(1)
			}
		})
	}
	retries.Wait()
	if charged.Load() != 1 {
		t.Errorf("8 retries were charged %d times", charged.Load())
	}
	r.start()
	if d := r.ask(0, "acme", "k", 60); !d.Allowed || !d.Replayed {
		t.Errorf("in the process that answered, at once: %+v", d)
	}
	limitertest.Eventually(t, 10*time.Second, "redis has the record", func() bool {
		return r.redis.Client().Exists(context.Background(), "rl:{acme}:i:k").Val() == 1
	})
	if d := r.ask(1, "acme", "k", 60); !d.Allowed || !d.Replayed || d.Limits[0].Remaining != 40 {
		t.Errorf("in its sibling: %+v", d)
	}
}

// Where two processes have admitted a key with different requests while Redis was away, one of them holds
// for both when it is back.
func TestOneRecordHolds(t *testing.T) {
	r := newRetries(t, quota.Policy{Limits: perMinute(100)})
	r.stop()
	costs := [...]int64{30, 20}
	for i, cost := range costs {
		r.ask(i, "acme", "k", cost)
	}
	r.start()
	limitertest.Eventually(t, 10*time.Second, "redis has a record", func() bool {
		return r.redis.Client().Exists(context.Background(), "rl:{acme}:i:k").Val() == 1
	})
	replayed := func(i int, cost int64) bool {
		d, err := r.procs[i].Check(t.Context(), quota.Request{Tenant: "acme", Cost: cost, IdempotencyKey: "k"})
		return err == nil && d.Replayed
	}
	limitertest.Eventually(t, 10*time.Second, "both replay the same request and refuse the other", func() bool {
		first := replayed(0, costs[0])
		return first == replayed(1, costs[0]) && first != replayed(0, costs[1]) && first != replayed(1, costs[1])
	})
}

// What is replayed after a reload is not explained by the limits of today.
func TestReplayIsExplainedByItsOwnLimits(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(100)}))
	ask := func() quota.Decision {
		d := must(w.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: "k", Explain: true}))(t)
		return d
	}
	for range 2 {
		if d := ask(); d.Explanation == nil || d.Explanation.Limits[0].Name != "minute" {
			t.Errorf("before the reload: %+v", d)
		}
	}
	ok(t, w.Configure(onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "hour", Units: 500, Window: time.Hour}}})))
	if d := ask(); !d.Replayed || d.Limits[0].Limit.Name != "minute" || d.Explanation != nil {
		t.Errorf("after the reload: %+v", d)
	}
}

// A process that remembers as many keys as it may decides new ones by its memory all the same.
func TestMoreKeysThanAreRemembered(t *testing.T) {
	const units = 1 << 20
	w := newWeather(t, onePolicy(quota.Policy{Limits: []quota.Limit{{Name: "minute", Units: units, Window: time.Minute, Algorithm: quota.SlidingWindow}}}))
	w.fails(quota.ReasonRedisDown, false)
	refused := 0
	for first := range 700 {
		all := make([]quota.Question, 100)
		for i := range all {
			all[i].Request = quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: fmt.Sprint(100*first + i)}
		}
		for _, o := range w.Decide(t.Context(), all) {
			if o.Err != nil || !o.Decision.Allowed {
				refused++
			}
		}
	}
	if refused > 0 {
		t.Errorf("%d of 70000 checks are refused, under a limit of %d", refused, units)
	}
}

// What a process replays by its memory while Redis is away is marked as such, whoever admitted it.
func TestReplayedByMemoryIsMarked(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(100)}))
	w.fails(quota.ReasonRedisDown, false)
	for i := range 2 {
		d, err := w.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: "k"})
		if err != nil || d.Replayed != (i > 0) || d.Basis != quota.BasisLocal || d.Mode != quota.ModeLocal || d.Reason == quota.ReasonNone {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
	}
}

// A key that this process has admitted while Redis was away belongs to that request when it is back, before it is
// written there too.
func TestKeyOfAnotherRequestWhenRedisIsBack(t *testing.T) {
	w := newWeather(t, onePolicy(quota.Policy{Limits: perMinute(100)}))
	check := func(cost int64) (quota.Decision, error) {
		return w.Check(t.Context(), quota.Request{Tenant: "acme", Cost: cost, IdempotencyKey: "k"})
	}
	w.fails(quota.ReasonRedisDown, false)
	if _, err := check(60); err != nil {
		t.Fatal(err)
	}
	w.heals()
	var invalid *quota.Invalid
	if d, err := check(59); !errors.As(err, &invalid) || invalid.Fault != quota.FaultReuse {
		t.Errorf("another request: %+v, %v", d, err)
	}
	if d, err := check(60); err != nil || !d.Replayed {
		t.Errorf("a retry: %+v, %v", d, err)
	}
}

// stuckStore is away, or away for one key alone.
type stuckStore struct {
	*weatherStore
	mu    sync.Mutex
	known []string
}

func (s *stuckStore) Remember(_ context.Context, all []*store.Admission, _ func(*store.Admission) int64, known func(i int, kept bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range all {
		if !strings.HasSuffix(a.Record, ":stuck") {
			s.known = append(s.known, a.Record)
			known(i, true)
		}
	}
}

// What cannot be written yet, on a server of a cluster that is away for longer, keeps back nothing else.
func TestRememberedAroundWhatIsStuck(t *testing.T) {
	s := &stuckStore{weatherStore: &weatherStore{Store: memstore.New(memstore.Options{})}}
	s.down.Store(&store.Error{Reason: quota.ReasonRedisDown, Err: errors.New("so the test says")})
	r := newRig(t, limiter.Options{Store: s, Config: onePolicy(quota.Policy{Limits: perMinute(10_000)})})
	limitertest.KeepRunning(t, r)
	const others = 700
	for i := range others + 1 {
		key := fmt.Sprint(i)
		if i == 0 {
			key = "stuck"
		}
		must(r.Check(t.Context(), quota.Request{Tenant: "acme", Cost: 1, IdempotencyKey: key}))(t)
	}
	limitertest.Eventually(t, 10*time.Second, "all others are known", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.known) == others
	})
}
