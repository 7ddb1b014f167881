package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

const (
	ms         = time.Millisecond
	testBudget = 40 * ms
)

var errAway = errors.New("away")

// server stands in for Redis behind a queue. It runs one batch after the other, answers
// each call with its own cost, and stops when it is told to.
type server struct {
	*Queue
	took  func(calls []store.Call) time.Duration // of a batch
	fails func(calls []store.Call) error

	mu      sync.Mutex
	free    time.Time // when it has done what it was sent
	stopped chan struct{}
	batches [][]int64 // costs, in the order in which they were sent
	under   int       // batches under way now
	most    int       // and at most
	deaths  int
}

func newServer(took func(calls []store.Call) time.Duration) *server {
	s := &server{took: took, fails: func([]store.Call) error { return nil }}
	s.Queue = New(Options{Budget: testBudget, Send: s.run, Ping: s.pong, Dead: func(why *store.Error) {
		s.mu.Lock()
		s.deaths++
		s.mu.Unlock()
		s.Drain(&store.Error{Reason: why.Reason, Err: errAway})
	}})
	return s
}

func (s *server) run(_ context.Context, calls []store.Call, verdicts []store.Verdict) (endedUS int64) {
	costs := make([]int64, len(calls))
	for i := range calls {
		costs[i] = calls[i].Cost
	}
	s.mu.Lock()
	s.batches, s.under = append(s.batches, costs), s.under+1
	s.most = max(s.most, s.under)
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.took(calls))
	began, ended, stopped := s.free.Add(-s.took(calls)).UnixMicro(), s.free, s.stopped
	s.mu.Unlock()
	time.Sleep(ended.Sub(now))
	if stopped != nil {
		<-stopped
	}
	for i := range calls {
		verdicts[i] = store.Verdict{Outcome: store.Admitted, StoreUS: began, Limits: []store.LimitVerdict{{Remaining: calls[i].Cost}}}
	}
	s.mu.Lock()
	s.under--
	s.mu.Unlock()
	if err := s.fails(calls); err != nil {
		store.Fail(verdicts, err)
	}
	return ended.UnixMicro()
}

// pong answers a PING behind what is being run, as Redis does.
func (s *server) pong(ctx context.Context) *store.Error {
	s.mu.Lock()
	wait, stopped := time.Until(s.free), s.stopped
	s.mu.Unlock()
	time.Sleep(wait)
	if stopped == nil {
		return nil
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return &store.Error{Reason: quota.ReasonRedisTimeout, Err: ctx.Err()}
	}
}

// stop has nothing answered until the returned function is called.
func (s *server) stop() (goOn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = make(chan struct{})
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.stopped)
		s.stopped = nil
	})
}

func (s *server) sent() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.batches...)
}

// mustBeIdle holds that nothing is left behind.
func (s *server) mustBeIdle(t rapid.TB) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	q := s.Queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushers != 0 || q.jobs != 0 || len(q.waiting)+q.singles != 0 || len(q.underway) != 0 || q.watching || max(q.load, -q.load) > 0.001 {
		t.Fatalf("left behind: %d flushers, %d jobs, %d waiting, %d under way, weight %v, watching %v",
			q.flushers, q.jobs, len(q.waiting), len(q.underway), q.load, q.watching)
	}
}

// outcome is what a caller got, and when.
type outcome struct {
	verdicts []store.Verdict
	after    time.Duration
}

var queuePlan = store.NewKeyPlan([]*quota.Limit{{Name: "minute", Units: 1 << 30, Window: time.Minute}})

// submitting submits calls with consecutive costs from first on, in a goroutine.
func (s *server) submitting(ctx context.Context, first int64, n int) <-chan outcome {
	calls := make([]store.Call, n)
	for i := range calls {
		calls[i] = store.Call{Cost: first + int64(i), Plan: queuePlan}
	}
	got := make(chan outcome, 1)
	go func() {
		start := time.Now()
		o := outcome{verdicts: make([]store.Verdict, n)}
		s.Submit(ctx, calls, o.verdicts)
		o.after = time.Since(start)
		got <- o
	}()
	return got
}

// kind is what became of the i-th call: "decided", or the reason and whether that is ambiguous.
func (o *outcome) kind(i int, first int64) string {
	v := &o.verdicts[i]
	e := (*store.Error)(nil)
	switch {
	case v.Err == nil && v.Limits[0].Remaining == first+int64(i):
		return "decided"
	case v.Err == nil:
		return fmt.Sprintf("given the verdict of %v", v.Limits)
	case !errors.As(v.Err, &e):
		return fmt.Sprintf("an error of no kind: %v", v.Err)
	case e.Ambiguous:
		return e.Reason.String() + ", ambiguous"
	}
	return e.Reason.String()
}

func (o *outcome) kinds(first int64) map[string]int {
	all := map[string]int{}
	for i := range o.verdicts {
		all[o.kind(i, first)]++
	}
	return all
}

func mustBe(t *testing.T, o outcome, first int64, kind string) {
	t.Helper()
	if got := o.kinds(first); len(got) != 1 || got[kind] == 0 {
		t.Fatalf("the calls from %d on: %v, want %q", first, got, kind)
	}
}

func quick([]store.Call) time.Duration { return time.Millisecond }

// perCheck is a server that takes as long as the price of each check says.
func perCheck(calls []store.Call) time.Duration {
	all := 0.0
	for i := range calls {
		all += weight(&calls[i])
	}
	return time.Duration(all * weightCost)
}
