package limiter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

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

// What is kept from one job says nothing to the next: a store that fails without a
// word leaves no verdict, alone or with others.
func TestCollectorForgets(t *testing.T) {
	down := errors.New("down")
	synctest.Test(t, func(t *testing.T) {
		d := newDepot()
		close(d.gate)
		for range 20 { // what a caller hands in is kept, too
			said := slices.Repeat([]Verdict{{Outcome: denied, StoreUS: 9, Err: down, Limits: make([]LimitVerdict, 1)}}, 3)
			if err := d.submit(context.Background(), make([]Call, 3), said); err != nil || said[0].Outcome != admitted {
				t.Fatalf("%+v, %v", said, err)
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
		for i := range int64(8) { // two travel alone, the others together
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
