package limiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
)

// A check that did not reach the store, whose client has gone meanwhile, is charged
// nowhere: nobody hears the answer. All others are counted by memory: those that may have
// been charged, those that somebody still waits for, and reports.
func TestFallbackForNobodyChargesNothing(t *testing.T) {
	gone := func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("the client hung up"))
		return ctx, func() {}
	}
	late := func() (context.Context, context.CancelFunc) {
		return context.WithDeadline(context.Background(), time.Unix(1, 0))
	}
	waiting := func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }
	for _, row := range []struct {
		what      string
		op        limiter.Op
		ctx       func() (context.Context, context.CancelFunc)
		ambiguous bool
		charged   int64
	}{
		{"a check, withdrawn", limiter.OpCheck, gone, false, 0},
		{"a check that was sent", limiter.OpCheck, gone, true, 3},
		{"a check whose time was over", limiter.OpCheck, late, false, 3},
		{"a check that somebody waits for", limiter.OpCheck, waiting, false, 3},
		{"a report", limiter.OpReport, gone, false, 3},
	} {
		o := &others{ceiling: quota.Ceiling{Units: 10, Local: 10}}
		w := newWeather(t, globalPolicy(o))
		w.fails(quota.ReasonRedisTimeout, row.ambiguous)
		ask := w.Check
		if row.op == limiter.OpReport {
			ask = w.Report
		}
		ctx, cancel := row.ctx()
		d, err := ask(ctx, quota.Request{Tenant: "acme", Cost: 3})
		cancel()
		if err != nil || !d.Allowed || d.Basis != quota.BasisLocal || d.Reason != quota.ReasonRedisTimeout {
			t.Errorf("%s: %+v %v", row.what, d, err)
		}
		if told := o.heard(); (len(told) > 0) != (row.charged > 0) {
			t.Errorf("%s: the other regions were told %q", row.what, told)
		}
		left, err := w.Peek(context.Background(), quota.Request{Tenant: "acme", Cost: 1})
		if err != nil || left.Limits[1].Remaining != 10-row.charged {
			t.Errorf("%s: %+v (%v), want %d of 10 charged", row.what, left.Limits, err, row.charged)
		}
	}
}
