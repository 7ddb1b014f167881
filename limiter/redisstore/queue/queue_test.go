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
					s.Apart()
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

// TestQueueSinglesFirst: on a slow server too, single checks wait for what is under way and for
// each other, and for no batch; nor do batches that wait take their room.
func TestQueueSinglesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slower = 30
		s := newServer(func(calls []store.Call) time.Duration { return slower * perCheck(calls) })
		s.price.cost *= slower // as it has learned
		var batches []<-chan outcome
		for i := range int64(40) {
			batches = append(batches, s.submitting(context.Background(), 1000*(i+1), 20))
		}
		synctest.Wait()
		var singles []<-chan outcome
		for i := range int64(20) {
			singles = append(singles, s.submitting(context.Background(), i+1, 1))
		}
		for i, c := range singles {
			o := <-c
			if mustBe(t, o, int64(i+1), "decided"); o.after > sendWithin(testBudget) {
				t.Errorf("single check %d is answered after %v", i, o.after)
			}
		}
		shed := 0
		for i, c := range batches {
			o := <-c
			shed += o.kinds(1000 * int64(i+1))["overloaded"]
		}
		if shed == 0 {
			t.Error("nothing was shed: the batches did not take all the room")
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
					s.ping = func(context.Context) *store.Error { return nil }
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

// TestSilence: what a server owes is counted in this process's own ticks, from its latest answer on.
func TestSilence(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	type tick struct {
		now   time.Duration
		owing time.Time
		quiet time.Duration
	}
	never := time.Time{}
	for _, row := range []struct {
		what  string
		ticks []tick
	}{
		{"it owes nothing", []tick{{5 * ms, never, 0}, {10 * ms, never, 0}}},
		{"it answers nothing", []tick{{5 * ms, at(2 * ms), 3 * ms}, {10 * ms, at(2 * ms), 8 * ms}, {15 * ms, at(2 * ms), 13 * ms}}},
		{"it answers in between", []tick{{5 * ms, at(0), 5 * ms}, {10 * ms, at(0), 10 * ms}, {15 * ms, at(11 * ms), 4 * ms}, {20 * ms, at(11 * ms), 9 * ms}}},
		{"this process stood still for a second", []tick{{5 * ms, at(0), 5 * ms}, {1005 * ms, at(0), 5*ms + watchEvery/4}, {1010 * ms, at(0), 10*ms + watchEvery/4}}},
	} {
		s := silence{last: start}
		for _, tick := range row.ticks {
			if got := s.tick(at(tick.now), tick.owing); got != tick.quiet {
				t.Errorf("%s: quiet for %v after %v, want %v", row.what, got, tick.now, tick.quiet)
			}
		}
	}
}

// TestWatchdogIsPrecise: whenever a server falls silent, what waits for it is told at deadAfter.
func TestWatchdogIsPrecise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(quick)
		for phase := time.Duration(0); phase < 12*ms; phase += 700 * time.Microsecond {
			mustBe(t, <-s.submitting(context.Background(), 1, 1), 1, "decided")
			time.Sleep(phase)
			goOn := s.stop()
			o := <-s.submitting(context.Background(), 2, 1)
			if mustBe(t, o, 2, "redis_timeout, ambiguous"); o.after < deadAfter || o.after > deadAfter+2*watchClosely {
				t.Errorf("%v after the last answer it is silent, and dead %v later", phase, o.after)
			}
			goOn()
			s.mustBeIdle(t)
		}
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
			own     bool // it does not wait any longer
		}
		var callers []caller
		next := int64(1)
		for range rapid.IntRange(1, 40).Draw(rt, "callers") {
			c := caller{first: next, n: rapid.SampledFrom([]int{1, 1, 1, 2, 5, 80, 400}).Draw(rt, "calls")}
			c.at = time.Duration(rapid.IntRange(0, 60).Draw(rt, "at")) * ms
			c.timeout = time.Duration(rapid.SampledFrom([]int{1, 10, 20, 50, 50, 0}).Draw(rt, "timeout")) * ms
			c.own = c.timeout > 0 && rapid.Bool().Draw(rt, "own")
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
						if ctx, cancel = context.WithTimeout(ctx, c.timeout); c.own {
							ctx, cancel = quota.WithCallersDeadline(context.Background(), time.Now().Add(c.timeout))
						}
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
				if got[i].after > testBudget+MostCalls*70*ms+time.Duration(c.n)*20*ms {
					complaint = fmt.Sprintf("caller %d of %d calls answered after %v", i, c.n, got[i].after)
				}
				if c.own && got[i].after > c.timeout {
					complaint = fmt.Sprintf("caller %d of %d calls answered after %v, its deadline was %v", i, c.n, got[i].after, c.timeout)
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
