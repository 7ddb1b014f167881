package limiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

// larger is a job that no batch has room for.
const larger = maxBatch + 6

// Whatever the arrivals, the deadlines of callers and the failures of the store:
// nothing is sent twice, and every caller gets one correct answer in time.
func TestCollectorRandom(t *testing.T) {
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
			c := caller{first: next, n: rapid.SampledFrom([]int{1, 1, 1, 2, 5, 80, larger}).Draw(rt, "calls")}
			c.at = time.Duration(rapid.IntRange(0, 30).Draw(rt, "at")) * time.Millisecond
			c.timeout = time.Duration(rapid.SampledFrom([]int{1, 3, 20, 20, 20}).Draw(rt, "timeout")) * time.Millisecond
			next += int64(c.n)
			callers = append(callers, c)
		}
		took := rapid.SliceOfN(rapid.IntRange(0, 15), 8, 8).Draw(rt, "took")
		fails := rapid.SliceOfN(rapid.Bool(), 8, 8).Draw(rt, "fails")
		var complaint string
		synctest.Test(t, func(t *testing.T) {
			d := newDepot()
			down := &StoreError{Reason: quota.ReasonRedisDown, Err: errors.New("refused")}
			d.send = func(_ context.Context, calls []Call, verdicts []Verdict) error {
				d.begin(calls)
				at := calls[0].Cost % 8
				time.Sleep(time.Duration(took[at]) * time.Millisecond)
				d.end(calls, verdicts)
				if fails[at] {
					return down
				}
				return nil
			}
			got := make([]outcome, len(callers))
			var wg sync.WaitGroup
			for i, c := range callers {
				wg.Go(func() {
					time.Sleep(c.at)
					ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
					defer cancel()
					got[i] = <-d.submitting(ctx, c.first, c.n)
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // what was sent too late would be sent by now
			synctest.Wait()
			d.mustBeIdle(t)
			if d.most > maxFlushers {
				complaint = fmt.Sprintf("%d under way at once", d.most)
			}
			times := make(map[int64]int)
			for _, cost := range d.sent() {
				times[cost]++
			}
			for i, c := range callers {
				if s := misled(got[i], c.first, times, min(testBudget+testBudget/10, c.timeout)); s != "" {
					complaint = fmt.Sprintf("caller %d of %d calls: %s", i, c.n, s)
				}
			}
			for _, b := range d.batches {
				if len(b) > maxBatch && len(b) != larger {
					complaint = fmt.Sprintf("a batch of %d calls", len(b))
				}
			}
		})
		if complaint != "" {
			rt.Fatal(complaint)
		}
	})
}

// misled returns how an answer is wrong, given how often each call was sent.
func misled(o outcome, first int64, times map[int64]int, within time.Duration) string {
	sent := times[first]
	var e *StoreError
	errors.As(o.err, &e)
	switch {
	case sent > 1:
		return fmt.Sprintf("sent %d times", sent)
	case o.after > within:
		return fmt.Sprintf("answered after %v, its time was %v", o.after, within)
	case o.err == nil && sent != 1:
		return "answered without being sent"
	case o.err != nil && e == nil:
		return fmt.Sprintf("an error of no kind: %v", o.err)
	case e != nil && e.Reason == quota.ReasonRedisTimeout && e.Ambiguous != (sent == 1):
		return fmt.Sprintf("got %v, and was sent %d times", e, sent)
	}
	for i, v := range o.verdicts {
		id := first + int64(i)
		if times[id] != sent {
			return "sent in part"
		}
		if o.err == nil && v.StoreUS != id {
			return fmt.Sprintf("call %d has the verdict of %d", id, v.StoreUS)
		}
	}
	return ""
}
