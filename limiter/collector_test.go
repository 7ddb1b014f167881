package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

const testBudget = 10 * time.Millisecond

// depot stands in for the store behind a collector: it holds each batch until
// the test lets it go, and answers every call with its own cost.
type depot struct {
	collector
	gate chan error // one element lets one batch go

	mu      sync.Mutex
	batches [][]int64 // costs, in the order that batches were sent
	under   int       // batches under way now
	most    int       // and at most
}

func newDepot() *depot {
	d := &depot{gate: make(chan error)}
	d.collector = collector{budget: testBudget, send: d.hold}
	return d
}

func (d *depot) hold(_ context.Context, calls []Call, verdicts []Verdict) error {
	d.begin(calls)
	err := <-d.gate
	d.end(calls, verdicts)
	return err
}

func (d *depot) begin(calls []Call) {
	costs := make([]int64, len(calls))
	for i := range calls {
		costs[i] = calls[i].Cost
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.batches = append(d.batches, costs)
	d.under++
	d.most = max(d.most, d.under)
}

func (d *depot) end(calls []Call, verdicts []Verdict) {
	for i := range calls {
		verdicts[i] = Verdict{Outcome: admitted, StoreUS: calls[i].Cost}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.under--
}

// sent returns all costs that were ever sent, in order.
func (d *depot) sent() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.batches...)
}

// mustBeIdle holds that nothing is left behind: no flusher, nothing queued.
func (d *depot) mustBeIdle(t rapid.TB) {
	t.Helper()
	d.collector.mu.Lock()
	defer d.collector.mu.Unlock()
	if d.flushers != 0 || len(d.queue) != 0 {
		t.Fatalf("%d flushers and %d jobs are left behind", d.flushers, len(d.queue))
	}
}

// outcome is what a caller got, and when.
type outcome struct {
	verdicts []Verdict
	err      error
	after    time.Duration
}

// submitting submits calls with consecutive costs from first on, in a goroutine.
func (d *depot) submitting(ctx context.Context, first int64, n int) <-chan outcome {
	calls := make([]Call, n)
	for i := range calls {
		calls[i].Cost = first + int64(i)
	}
	got := make(chan outcome, 1)
	go func() {
		start := time.Now()
		o := outcome{verdicts: make([]Verdict, n)}
		o.err = d.submit(ctx, calls, o.verdicts)
		o.after = time.Since(start)
		got <- o
	}()
	return got
}

// occupied returns a depot with all flushers busy, with costs −1 and −2, and
// their callers' answers.
func occupied() (*depot, []<-chan outcome) {
	d := newDepot()
	var busy []<-chan outcome
	for i := range maxFlushers {
		busy = append(busy, d.submitting(context.Background(), -1-int64(i), 1))
		synctest.Wait()
	}
	return d, busy
}

func mustBeAnswered(t *testing.T, o outcome, first int64) {
	t.Helper()
	if o.err != nil {
		t.Fatalf("call %d: %v", first, o.err)
	}
	for i, v := range o.verdicts {
		if v.StoreUS != first+int64(i) {
			t.Fatalf("call %d was given the verdict of %d", first+int64(i), v.StoreUS)
		}
	}
}

func mustTimeOut(t *testing.T, err error, ambiguous bool, cause error) {
	t.Helper()
	var e *StoreError
	if !errors.As(err, &e) || e.Reason != quota.ReasonRedisTimeout || e.Ambiguous != ambiguous || !errors.Is(err, cause) {
		t.Fatalf("got %v, want redis_timeout, ambiguous %v, because %v", err, ambiguous, cause)
	}
}

func TestCollectorTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, busy := occupied()
		var got []<-chan outcome
		for i := range int64(maxBatch + 36) {
			got = append(got, d.submitting(context.Background(), i, 1))
			synctest.Wait()
		}
		if len(d.batches) != maxFlushers {
			t.Fatalf("%d batches under way, want %d", len(d.batches), maxFlushers)
		}
		for range maxFlushers + 2 { // one flusher takes a whole batch, the next the other 36
			d.gate <- nil
			synctest.Wait()
		}
		for i, g := range busy {
			mustBeAnswered(t, <-g, -1-int64(i))
		}
		for i, g := range got {
			mustBeAnswered(t, <-g, int64(i))
		}
		sizes := []int{}
		for _, b := range d.batches {
			sizes = append(sizes, len(b))
		}
		if !slices.Equal(sizes, []int{1, 1, maxBatch, 36}) {
			t.Errorf("batches of %v", sizes)
		}
		if sent := d.sent()[maxFlushers:]; !slices.IsSorted(sent) {
			t.Errorf("sent out of order: %v", sent)
		}
		if d.most > maxFlushers {
			t.Errorf("%d calls under way at once, want at most %d", d.most, maxFlushers)
		}
		d.mustBeIdle(t)
	})
}

// A caller that goes before its calls were sent takes them along: nothing can
// have been charged, and so the error is not ambiguous.
func TestCollectorWithdraws(t *testing.T) {
	gone := errors.New("the client hung up")
	for _, row := range []struct {
		why   string
		leave func(cancel context.CancelCauseFunc)
		cause error
		after time.Duration
	}{
		{"its budget ends", func(context.CancelCauseFunc) { time.Sleep(testBudget) }, context.DeadlineExceeded, testBudget},
		{"its context ends", func(cancel context.CancelCauseFunc) { time.Sleep(time.Millisecond); cancel(gone) }, gone, time.Millisecond},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := occupied()
				time.Sleep(time.Millisecond)
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				got := d.submitting(ctx, 5, 1)
				synctest.Wait()
				row.leave(cancel)
				o := <-got
				mustTimeOut(t, o.err, false, row.cause)
				if o.after != row.after {
					t.Errorf("gave up after %v, want %v", o.after, row.after)
				}
				close(d.gate) // whatever is sent goes through from here on
				synctest.Wait()
				if slices.Contains(d.sent(), 5) {
					t.Errorf("sent %v: a withdrawn call among them", d.sent())
				}
				d.mustBeIdle(t)
			})
		})
	}
}

// Once sent, nobody can know: the caller is let go in time, with an error that
// reports that it may have been charged.
func TestCollectorAmbiguousOnceSent(t *testing.T) {
	gone := errors.New("the client hung up")
	for _, row := range []struct {
		why    string
		cancel bool
		cause  error
		after  time.Duration
	}{
		{"its budget ends", false, context.DeadlineExceeded, testBudget + testBudget/10},
		{"its context ends", true, gone, time.Millisecond},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDepot()
				ctx, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				got := d.submitting(ctx, 5, 1)
				synctest.Wait()
				if row.cancel {
					time.Sleep(time.Millisecond)
					cancel(gone)
				}
				o := <-got
				mustTimeOut(t, o.err, true, row.cause)
				if o.after != row.after {
					t.Errorf("gave up after %v, want %v", o.after, row.after)
				}
				if o.verdicts[0].Outcome != 0 {
					t.Errorf("a verdict %v beside an error", o.verdicts[0])
				}
				d.gate <- nil // the late answer finds nobody and harms nobody
				synctest.Wait()
				d.mustBeIdle(t)
			})
		})
	}
}

// A call ends with its budget. Its caller learns how in that same moment, and so
// never finds the breaker still closed when it comes again.
func TestCollectorGraceWait(t *testing.T) {
	for range 50 { // two timers ring at once, and either may be first
		synctest.Test(t, func(t *testing.T) {
			down := &StoreError{Reason: quota.ReasonRedisDown, Err: errors.New("reset")}
			d := newDepot()
			d.send = func(ctx context.Context, _ []Call, _ []Verdict) error {
				<-ctx.Done()
				return down
			}
			o := <-d.submitting(context.Background(), 1, 1)
			if !errors.Is(o.err, down) || o.after != testBudget {
				t.Errorf("after %v: %v, want how the call ended, after %v", o.after, o.err, testBudget)
			}
		})
	}
}

// A verdict that came in the moment of giving up is better than not knowing.
func TestCollectorLateVerdictIsUsed(t *testing.T) {
	c := &collector{}
	for _, row := range []struct {
		what      string
		state     int32
		done      bool
		err       error
		ambiguous bool
		answered  bool
	}{
		{"not sent yet", jobWaiting, false, nil, false, false},
		{"sent, unanswered", jobSent, false, nil, true, false},
		{"sent, answered just now", jobSent, true, nil, false, true},
		{"sent, failed just now", jobSent, true, context.DeadlineExceeded, false, true},
	} {
		j := &job{verdicts: []Verdict{{StoreUS: 42}}, err: row.err, done: make(chan struct{})}
		j.state.Store(row.state)
		if row.done {
			close(j.done)
		}
		got := make([]Verdict, 1)
		err := c.giveUp(j, context.Canceled, got)
		if !row.answered {
			mustTimeOut(t, err, row.ambiguous, context.Canceled)
		} else if !errors.Is(err, row.err) || got[0].StoreUS != 42 {
			t.Errorf("%s: got %v and %v, want %v and the verdict", row.what, got, err, row.err)
		}
		if withdrawn := j.state.Load() == jobWithdrawn; withdrawn != (row.state == jobWaiting) {
			t.Errorf("%s: withdrawn is %v", row.what, withdrawn)
		}
	}
}

func TestCollectorLargeJobTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, got := occupied()
		firsts, at := []int64{-1, -2}, int64(0)
		for _, n := range []int{1, maxBatch + 6, 1, maxBatch, maxBatch - 1, 1} {
			firsts = append(firsts, at)
			got = append(got, d.submitting(context.Background(), at, n))
			at += int64(n)
			synctest.Wait()
		}
		close(d.gate)
		for i, g := range got {
			mustBeAnswered(t, <-g, firsts[i])
		}
		var sizes []int
		for _, b := range d.batches[maxFlushers:] {
			sizes = append(sizes, len(b))
		}
		// Two flushers go on in an order that nobody promises; the batches are these.
		slices.Sort(sizes)
		if want := []int{1, 1, maxBatch, maxBatch, maxBatch + 6}; !slices.Equal(sizes, want) {
			t.Errorf("batches of %v, want %v", sizes, want)
		}
	})
}

// The batch may wait as long as its member with the latest deadline; the others leave alone.
func TestCollectorHurriedDoNotHurryOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var limits []time.Duration
		d := &depot{gate: make(chan error)}
		d.collector = collector{budget: testBudget, send: func(ctx context.Context, calls []Call, verdicts []Verdict) error {
			at, _ := ctx.Deadline()
			limits = append(limits, at.Sub(start)) // sends follow one another below
			return d.hold(ctx, calls, verdicts)
		}}
		for i := range maxFlushers {
			d.submitting(context.Background(), -1-int64(i), 1)
			synctest.Wait()
		}
		hurried, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond)
		defer cancel()
		first := d.submitting(hurried, 1, 1)
		time.Sleep(2 * time.Millisecond)
		second := d.submitting(context.Background(), 2, 1)
		synctest.Wait()
		d.gate <- nil // the flusher goes on with both, at 2 ms
		synctest.Wait()
		o := <-first // at 3 ms, when its context ends
		mustTimeOut(t, o.err, true, context.DeadlineExceeded)
		time.Sleep(5 * time.Millisecond)
		close(d.gate)
		mustBeAnswered(t, <-second, 2)
		if want := []time.Duration{testBudget, testBudget, testBudget + 2*time.Millisecond}; !slices.Equal(limits, want) {
			t.Errorf("batches had until %v, want %v", limits, want)
		}
	})
}

// A request whose client has gone is left out when its turn comes, and nothing was
// charged. It has a deadline, and so nobody watches it in between.
func TestCollectorLeavesOutTheGone(t *testing.T) {
	gone := errors.New("the client hung up")
	synctest.Test(t, func(t *testing.T) {
		d, busy := occupied()
		parent, cancel := context.WithCancelCause(context.Background())
		ctx, stop := context.WithTimeout(parent, time.Hour)
		defer stop()
		got := d.submitting(ctx, 5, 1)
		stays := d.submitting(context.Background(), 6, 1)
		synctest.Wait()
		cancel(gone)
		synctest.Wait()
		close(d.gate)
		o := <-got
		mustTimeOut(t, o.err, false, gone)
		mustBeAnswered(t, <-stays, 6)
		for _, b := range busy {
			<-b
		}
		if slices.Contains(d.sent(), 5) {
			t.Errorf("sent %v: one that nobody waits for among them", d.sent())
		}
		synctest.Wait()
		d.mustBeIdle(t)
	})
}

// What is kept for reuse holds nothing of an earlier call: neither what a caller handed
// in nor an earlier verdict.
func TestCollectorForgets(t *testing.T) {
	down := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		d := newDepot()
		close(d.gate)
		for range 20 {
			earlier := slices.Repeat([]Verdict{{Outcome: denied, StoreUS: 9, Err: down, Limits: make([]LimitVerdict, 1)}}, 3)
			if err := d.submit(context.Background(), make([]Call, 3), earlier); err != nil || earlier[0].Outcome != admitted {
				t.Fatalf("%+v, %v", earlier, err)
			}
		}
		hold := make(chan struct{})
		d.send = func(_ context.Context, _ []Call, verdicts []Verdict) error {
			<-hold
			for i := range verdicts {
				if v := &verdicts[i]; v.Outcome != 0 || v.StoreUS != 0 || v.Err != nil || len(v.Limits) != 0 {
					t.Errorf("verdict %d is %+v before it is given", i, v)
				}
			}
			return down
		}
		var got []<-chan outcome
		for i := range int64(8) { // two are sent alone, the others together
			got = append(got, d.submitting(context.Background(), i, 2))
			synctest.Wait()
		}
		close(hold)
		for i, g := range got {
			o := <-g
			if !errors.Is(o.err, down) || o.verdicts[0].Outcome != 0 || o.verdicts[1].StoreUS != 0 {
				t.Errorf("call %d: %+v", i, o)
			}
		}
	})
}
