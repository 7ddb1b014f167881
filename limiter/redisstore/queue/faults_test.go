package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// A call whose reply is lost is given up in time, also while other calls are answered, and
// where the PING that asks after it is lost too.
func TestLostCallBesideWorkingOnes(t *testing.T) {
	for _, row := range []struct {
		what  string
		pings int32 // that are lost
		most  time.Duration
	}{{"a call", 0, 70 * ms}, {"a call and a PING", 1, 2*deadAfter + 40*ms}} {
		t.Run(row.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(quick)
				run, ping := s.send, s.ping
				never := make(chan struct{})
				var calls, pings atomic.Int32
				s.send = func(ctx context.Context, c []store.Call, verdicts []store.Verdict) int64 {
					if calls.Add(1) == 1 {
						<-never
					}
					return run(ctx, c, verdicts)
				}
				s.ping = func(ctx context.Context) *store.Error {
					if pings.Add(1) <= row.pings {
						<-ctx.Done()
						return &store.Error{Reason: quota.ReasonRedisTimeout, Err: ctx.Err()}
					}
					return ping(ctx)
				}
				stuck := s.submitting(context.Background(), 1, 1)
				synctest.Wait()
				var o outcome
				for i := int64(0); o.verdicts == nil && i < 1000; i++ { // others come each ms, and are answered
					mustBe(t, <-s.submitting(context.Background(), 2+i, 1), 2+i, "decided")
					select {
					case o = <-stuck:
					default:
					}
				}
				if o.verdicts == nil {
					t.Fatal("never answered")
				}
				if mustBe(t, o, 1, "redis_timeout, ambiguous"); o.after > row.most {
					t.Errorf("answered after %v", o.after)
				}
				close(never)
				s.mustBeIdle(t)
			})
		})
	}
}

// One batch of 100 with four logs at cost 2 is 8 ms of Redis. A Redis without other work decides
// all of it, also from some ms away.
func TestBatchOnAnIdleServerFarAway(t *testing.T) {
	var limits []*quota.Limit
	for i := range 4 {
		limits = append(limits, &quota.Limit{Name: fmt.Sprint("l", i), Units: 1 << 30, Window: time.Hour, By: []string{fmt.Sprint("d", i)}})
	}
	plan := store.NewKeyPlan(limits)
	for _, away := range []time.Duration{500 * time.Microsecond, ms, 2 * ms} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(perCheck)
				run := s.send
				s.send = func(ctx context.Context, calls []store.Call, verdicts []store.Verdict) int64 {
					defer time.Sleep(away)
					return run(ctx, calls, verdicts)
				}
				calls, verdicts := make([]store.Call, 100), make([]store.Verdict, 100)
				for i := range calls {
					calls[i] = store.Call{Cost: 2 + int64(i), Plan: plan}
				}
				start, shed := time.Now(), 0
				s.Submit(context.Background(), calls, verdicts)
				for i := range verdicts {
					if verdicts[i].Err != nil {
						shed++
					}
				}
				if shed > 0 {
					t.Errorf("%d of 100 shed after %d calls and %v; they are %v of work", shed, len(s.batches), time.Since(start), perCheck(calls))
				}
				s.mustBeIdle(t)
			})
		})
	}
}

// A Redis that was slow before it was lost is expected to be so when it is back: what is let
// in at once would else wait for ten times as long as it may.
func TestLostServerIsExpectedToBeAsSlowAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(perCheck)
		s.price.passed, s.price.spent, s.price.last = 100e6, 10e6, time.Now()
		s.Drain(&store.Error{Reason: quota.ReasonBreakerOpen, Err: errAway})
		time.Sleep(time.Minute)
		o := <-s.submitting(context.Background(), 1, 400)
		if got := o.kinds(1); got["decided"] == 0 || got["decided"] > 110 || got["overloaded"] != 400-got["decided"] {
			t.Errorf("%v of 400 checks, want about 100 to be let in, and the others shed", got)
		}
		s.mustBeIdle(t)
	})
}

// An error that never reached the server is no sign of life of it.
func TestPoolTimeoutsDoNotHideADeadServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(quick)
		s.send = func(_ context.Context, _ []store.Call, verdicts []store.Verdict) int64 { // no connection is free
			time.Sleep(100 * ms)
			store.Fail(verdicts, &store.Error{Reason: quota.ReasonOverloaded, Err: errors.New("pool timeout")})
			return 0
		}
		s.ping = func(ctx context.Context) *store.Error { // silent
			<-ctx.Done()
			return &store.Error{Reason: quota.ReasonRedisTimeout, Err: ctx.Err()}
		}
		for i := range int64(100) {
			<-s.submitting(context.Background(), 1+i, 1)
		}
		s.mustBeIdle(t)
		if s.deaths == 0 {
			t.Error("a server that answers nothing, PING neither, was not found dead in 500 ms")
		}
	})
}

// TestQueueCallersDeadline: who does not wait beyond a deadline has an answer by then from a server that takes longer.
// Such a check is sent now and then alone, to see whether the server still does, and again at once when it does not.
func TestQueueCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait, every = 17 * ms, 5 * ms
		way := 25 * ms
		s := newServer(func([]store.Call) time.Duration { return 0 })
		s.fails = func([]store.Call) error { time.Sleep(way); return nil } // calls do not wait for each other
		next := int64(1)
		// asked is what becomes of checks that come for a time.
		asked := func(d time.Duration) map[string]int {
			t.Helper()
			kinds := map[string]int{}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range int(d / every) {
				next++
				first := next
				wg.Go(func() {
					ctx, cancel := quota.WithCallersDeadline(context.Background(), time.Now().Add(wait))
					defer cancel()
					o := <-s.submitting(ctx, first, 1)
					mu.Lock()
					defer mu.Unlock()
					if kinds[o.kind(0, first)]++; o.after > wait {
						t.Errorf("%s after %v", o.kind(0, first), o.after)
					}
				})
				time.Sleep(every)
			}
			wg.Wait()
			return kinds
		}
		patient := s.submitting(context.Background(), 1, 1)
		if got := asked(time.Second); len(got) != 2 || got["overloaded"] < 150 || got["overloaded, ambiguous"] < 10 {
			t.Errorf("of a server that takes %v: %v", way, got)
		}
		mustBe(t, <-patient, 1, "decided")
		s.mustBeIdle(t)
		way = ms
		if got := asked(time.Second); got["decided"] < 200-int(trialEvery/every) {
			t.Errorf("of a server that takes %v again: %v", way, got)
		}
		s.mustBeIdle(t)
	})
}

// A connection is lost, and the server answers PINGs on others, but slowly: a caller has an answer by its deadline, also by
// one that is later than the server's patience.
func TestQueueCallersDeadlineOnALostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 60 * ms
		s := newServer(func([]store.Call) time.Duration { return 0 })
		goOn := s.stop()
		s.ping = func(context.Context) *store.Error { time.Sleep(25 * ms); return nil }
		time.AfterFunc(400*ms, goOn)
		ctx, cancel := quota.WithCallersDeadline(context.Background(), time.Now().Add(wait))
		defer cancel()
		o := <-s.submitting(ctx, 1, 1)
		if mustBe(t, o, 1, "overloaded, ambiguous"); o.after > wait {
			t.Errorf("answered after %v, its deadline was %v", o.after, wait)
		}
		s.mustBeIdle(t)
	})
}
