package redisstore

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

const testBudget = 40 * time.Millisecond

// server stands in for Redis behind a queue. It runs one batch after the other, answers
// each call with its own cost, and stops when it is told to.
type server struct {
	*queue
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
	s.queue = newQueue(testBudget, deadAfter, s.run, s.pong, func(why *store.Error) {
		s.mu.Lock()
		s.deaths++
		s.mu.Unlock()
		s.drain(&store.Error{Reason: why.Reason, Err: errAway})
	})
	return s
}

func (s *server) run(_ context.Context, calls []store.Call, verdicts []store.Verdict) {
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
	wait, stopped := s.free.Sub(now), s.stopped
	s.mu.Unlock()
	time.Sleep(wait)
	if stopped != nil {
		<-stopped
	}
	for i := range calls {
		verdicts[i] = store.Verdict{Outcome: store.Admitted, StoreUS: calls[i].Cost}
	}
	s.mu.Lock()
	s.under--
	s.mu.Unlock()
	if err := s.fails(calls); err != nil {
		store.Fail(verdicts, err)
	}
}

// pong answers a PING behind what is being run, as Redis does.
func (s *server) pong(ctx context.Context) error {
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
		return ctx.Err()
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
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.flushers != 0 || q.jobs != 0 || len(q.waiting) != 0 || len(q.underway) != 0 || q.watching || max(q.load, -q.load) > 0.001 {
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
		s.submit(ctx, calls, o.verdicts)
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
	case v.Err == nil && v.StoreUS == first+int64(i):
		return "decided"
	case v.Err == nil:
		return fmt.Sprintf("given the verdict of %d", v.StoreUS)
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

// TestQueueSharesCalls: an idle queue sends at once; while calls are under way, the checks
// of all that wait go into the next, in the order in which they came.
func TestQueueSharesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(quick)
		var got []<-chan outcome
		for i := range int64(12) {
			got = append(got, s.submitting(context.Background(), 1+i, 1))
			synctest.Wait()
		}
		for i, g := range got {
			mustBe(t, <-g, 1+int64(i), "decided")
		}
		if len(s.batches) != 3 || len(s.batches[2]) != 10 || !slices.IsSorted(s.sent()) || s.most != fewFlushers {
			t.Errorf("sent %v, at most %d at once", s.batches, s.most)
		}
		s.mustBeIdle(t)
	})
}

// perScript is a server for which each check is a script call of its own, as in a cluster.
func perScript(calls []store.Call) time.Duration {
	return perCheck(calls) + time.Duration(float64(len(calls))*callWeight*weightCost)
}

// TestQueueSplitsWork: a call carries what Redis does in about callTime; a larger job is
// split, in order, and answered as one.
func TestQueueSplitsWork(t *testing.T) {
	for _, row := range []struct {
		what  string
		took  func(calls []store.Call) time.Duration
		apart bool
	}{{"one script call", perCheck, false}, {"a pipeline of scripts", perScript, true}} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(row.took)
				if row.apart {
					s.apart()
				}
				const n = 400
				mustBe(t, <-s.submitting(context.Background(), 1, n), 1, "decided")
				if len(s.batches) < 4 || !slices.IsSorted(s.sent()) || len(s.sent()) != n || s.most != 1 {
					t.Errorf("%d calls, %d under way at once, %v", len(s.batches), s.most, s.batches)
				}
				for _, b := range s.batches {
					calls := make([]store.Call, len(b))
					for i := range calls {
						calls[i] = store.Call{Cost: b[i], Plan: queuePlan}
					}
					if took := row.took(calls); took > 2*callTime {
						t.Errorf("a call of %d checks takes %v", len(b), took)
					}
				}
				s.mustBeIdle(t)
			})
		})
	}
}

// TestQueueTakesTurns: a single check behind large jobs is answered long before them.
func TestQueueTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(perCheck)
		var large []<-chan outcome
		for i := range int64(8) {
			large = append(large, s.submitting(context.Background(), 1000*(i+1), 100))
		}
		synctest.Wait()
		single := <-s.submitting(context.Background(), 1, 1)
		mustBe(t, single, 1, "decided")
		if single.after > 5*callTime {
			t.Errorf("answered after %v", single.after)
		}
		for i, l := range large {
			o := <-l
			for kind := range o.kinds(1000 * int64(i+1)) {
				if kind != "decided" && kind != "overloaded" {
					t.Errorf("job %d: %v", i, kind)
				}
			}
		}
		s.mustBeIdle(t)
	})
}

// TestQueueSheds: beyond what Redis can do, checks are turned away at once and not sent.
// Every job gets its share, the others do not delay it, and what is decided stays near what
// Redis can do.
func TestQueueSheds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(perCheck)
		rate := float64(time.Second) / float64(perCheck([]store.Call{{Cost: 2, Plan: queuePlan}})) // checks per second
		const seconds, batch = 2, 10
		var mu sync.Mutex
		var wg sync.WaitGroup
		total, singles := map[string]int{}, map[string]int{}
		slowest := time.Duration(0)
		every := time.Duration(float64(time.Second) * batch / (5 * rate))
		end := time.Now().Add(seconds * time.Second)
		ask := func(first int64, n int, into map[string]int) {
			wg.Go(func() {
				o := <-s.submitting(context.Background(), first, n)
				mu.Lock()
				defer mu.Unlock()
				for kind, n := range o.kinds(first) {
					into[kind] += n
				}
				slowest = max(slowest, o.after)
			})
		}
		wg.Go(func() {
			for first := int64(1 << 30); time.Now().Before(end); first++ {
				ask(first, 1, singles)
				time.Sleep(10 * time.Millisecond)
			}
		})
		for first := int64(2); time.Now().Before(end); first += batch {
			ask(first, batch, total)
			time.Sleep(every)
		}
		wg.Wait()
		if got := float64(total["decided"]) / seconds; got < 0.9*rate || len(total) != 2 || total["overloaded"] == 0 {
			t.Errorf("%v in %d s, want %.0f decided a second and the others overloaded", total, seconds, rate)
		}
		if len(singles) != 1 || singles["decided"] < 100*seconds {
			t.Errorf("single checks beside that: %v", singles)
		}
		if slowest > testBudget {
			t.Errorf("an answer took %v", slowest)
		}
		if len(s.sent()) != total["decided"]+singles["decided"] {
			t.Errorf("%d checks were sent, %d decided", len(s.sent()), total["decided"]+singles["decided"])
		}
		s.mustBeIdle(t)
	})
}

// TestQueueWhileServerIsStuck walks through what callers get while nothing returns.
func TestQueueWhileServerIsStuck(t *testing.T) {
	sendBy := sendWithin(testBudget)
	for _, row := range []struct {
		why      string
		deadline time.Duration // of the second caller, 0 for none
		ping     bool          // whether PINGs are answered
		goOn     time.Duration // when the server goes on, 0 for never
		first    string
		at       [2]time.Duration // when the first is answered, from and to
		second   string           // it waits behind the first two
		at2      [2]time.Duration
		deaths   int
	}{
		{"slow for less than anyone notices", 0, false, 20 * ms, "decided", [2]time.Duration{20 * ms, 21 * ms}, "decided", [2]time.Duration{20 * ms, 22 * ms}, 0},
		{"busy for long, and alive", 0, true, 35 * ms, "decided", [2]time.Duration{35 * ms, 36 * ms}, "overloaded", [2]time.Duration{sendBy, sendBy + 3*watchEvery}, 0},
		{"dead", 0, false, 0, "redis_timeout, ambiguous", [2]time.Duration{deadAfter, deadAfter + 2*watchEvery}, "redis_timeout", [2]time.Duration{deadAfter, deadAfter + 2*watchEvery}, 1},
		{"a lost connection", 0, true, 0, "redis_timeout, ambiguous", [2]time.Duration{deadAfter, 60 * ms}, "overloaded", [2]time.Duration{sendBy, sendBy + 3*watchEvery}, 0},
		{"a hurried caller behind a dead server", 4 * ms, false, 0, "redis_timeout, ambiguous", [2]time.Duration{deadAfter, deadAfter + 2*watchEvery}, "overloaded", [2]time.Duration{4 * ms, 4*ms + watchEvery + ms}, 1},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(func([]store.Call) time.Duration { return 0 })
				if row.ping {
					s.ping = func(context.Context) error { return nil }
				}
				goOn := s.stop()
				var got [2]<-chan outcome
				got[0] = s.submitting(context.Background(), 1, 1)
				synctest.Wait()
				got[1] = s.submitting(context.Background(), 2, 1)
				synctest.Wait()
				ctx, cancel := context.Background(), func() {}
				if row.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
				}
				defer cancel()
				last := s.submitting(ctx, 3, 1)
				if row.goOn > 0 {
					time.AfterFunc(row.goOn, goOn)
				}
				check := func(o outcome, first int64, want string, at [2]time.Duration) {
					mustBe(t, o, first, want)
					if o.after < at[0] || o.after > at[1] {
						t.Errorf("call %d: %s after %v, want %v", first, want, o.after, at)
					}
				}
				check(<-last, 3, row.second, row.at2)
				check(<-got[0], 1, row.first, row.at)
				check(<-got[1], 2, row.first, row.at)
				goOn()
				s.mustBeIdle(t)
				if s.deaths != row.deaths {
					t.Errorf("found dead %d times, want %d", s.deaths, row.deaths)
				}
			})
		})
	}
}

// TestWatchdogCountsItsOwnTime: a process that was stopped for a second does not blame Redis.
func TestWatchdogCountsItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(quick)
		goOn := s.stop()
		got := s.submitting(context.Background(), 1, 1)
		time.Sleep(12 * ms)
		s.queue.mu.Lock()
		why := s.look(time.Now().Add(time.Second), 2*watchEvery) // as watchOver does after a pause
		s.queue.mu.Unlock()
		goOn()
		if mustBe(t, <-got, 1, "decided"); why != nil {
			t.Errorf("dead after a pause: %v", why)
		}
		s.mustBeIdle(t)
	})
}

// TestQueueLeavesOutTheGone: a cancelled request is not sent.
func TestQueueLeavesOutTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(quick)
		var busy []<-chan outcome
		for i := range int64(fewFlushers) {
			busy = append(busy, s.submitting(context.Background(), 1+i, 1))
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(context.Background())
		gone := s.submitting(ctx, 3, 2)
		synctest.Wait()
		cancel()
		mustBe(t, <-gone, 3, "redis_timeout")
		for i, b := range busy {
			mustBe(t, <-b, 1+int64(i), "decided")
		}
		if len(s.sent()) != 2 {
			t.Errorf("sent %v", s.sent())
		}
		s.mustBeIdle(t)
	})
}

// TestQueueRandom: whatever the arrivals, the deadlines of callers, and the pauses and
// failures of the server: nothing is sent twice, a job's calls are sent in order, and every
// caller gets a correct answer in time.
func TestQueueRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct {
			first   int64
			n       int
			at      time.Duration
			timeout time.Duration
		}
		var callers []caller
		next := int64(1)
		for range rapid.IntRange(1, 40).Draw(rt, "callers") {
			c := caller{first: next, n: rapid.SampledFrom([]int{1, 1, 1, 2, 5, 80, 400}).Draw(rt, "calls")}
			c.at = time.Duration(rapid.IntRange(0, 60).Draw(rt, "at")) * ms
			c.timeout = time.Duration(rapid.SampledFrom([]int{1, 10, 50, 50, 0}).Draw(rt, "timeout")) * ms
			next += int64(c.n)
			callers = append(callers, c)
		}
		slow := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 1, 3, 10, 30, 60}), 8, 8).Draw(rt, "slow")
		fails := rapid.SliceOfN(rapid.SampledFrom([]bool{false, false, false, true}), 8, 8).Draw(rt, "fails")
		var complaint string
		synctest.Test(t, func(t *testing.T) {
			s := newServer(func(calls []store.Call) time.Duration {
				return perCheck(calls) + time.Duration(slow[calls[0].Cost%8])*ms
			})
			down := &store.Error{Reason: quota.ReasonRedisDown, Ambiguous: true, Err: errors.New("reset")}
			s.fails = func(calls []store.Call) error {
				if fails[calls[0].Cost%8] {
					return down
				}
				return nil
			}
			got := make([]outcome, len(callers))
			var wg sync.WaitGroup
			for i, c := range callers {
				wg.Go(func() {
					time.Sleep(c.at)
					ctx := context.Background()
					if c.timeout > 0 {
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, c.timeout)
						defer cancel()
					}
					got[i] = <-s.submitting(ctx, c.first, c.n)
				})
			}
			wg.Wait()
			s.mustBeIdle(t)
			times, order := map[int64]int{}, map[int64]int{}
			for i, cost := range s.sent() {
				times[cost]++
				order[cost] = i
			}
			for i, c := range callers {
				if w := wrong(&got[i], c.first, times, order); w != "" {
					complaint = fmt.Sprintf("caller %d of %d calls: %s", i, c.n, w)
				}
				// Each call under way may take up to its pause; more than that is the queue's doing.
				if got[i].after > testBudget+manyFlushers*70*ms+time.Duration(c.n)*20*ms {
					complaint = fmt.Sprintf("caller %d of %d calls answered after %v", i, c.n, got[i].after)
				}
			}
		})
		if complaint != "" {
			rt.Fatal(complaint)
		}
	})
}

// wrong is how an answer is wrong, given how often each call was sent, and when.
func wrong(o *outcome, first int64, times, order map[int64]int) string {
	for i := range o.verdicts {
		id := first + int64(i)
		sent, e := times[id], (*store.Error)(nil)
		errors.As(o.verdicts[i].Err, &e)
		switch kind := o.kind(i, first); {
		case sent > 1:
			return fmt.Sprintf("call %d sent %d times", id, sent)
		case kind != "decided" && e == nil:
			return fmt.Sprintf("call %d: %s", id, kind)
		case e == nil && sent == 0, e != nil && e.Ambiguous != (sent == 1):
			return fmt.Sprintf("call %d: %s, and was sent %d times", id, kind, sent)
		case i > 0 && sent == 1 && (times[id-1] == 0 || order[id-1] > order[id]):
			return fmt.Sprintf("call %d was sent before the one before it", id)
		}
	}
	return ""
}
