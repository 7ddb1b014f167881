package httpapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimed: it says what context.WithDeadline says, whether or not Done was asked for
// before.
func TestTimed(t *testing.T) {
	gone := errors.New("the client hung up")
	for _, row := range []struct {
		name string
		ends func(parent context.CancelCauseFunc, own func())
	}{
		{"nothing", func(context.CancelCauseFunc, func()) {}},
		{"its deadline", func(context.CancelCauseFunc, func()) { time.Sleep(time.Second) }},
		{"its parent", func(parent context.CancelCauseFunc, _ func()) { parent(gone) }},
		{"itself", func(_ context.CancelCauseFunc, own func()) { own() }},
		{"itself and its deadline", func(_ context.CancelCauseFunc, own func()) { own(); time.Sleep(time.Second) }},
	} {
		for _, early := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				until := time.Now().Add(time.Second)
				want, stop := context.WithDeadline(parent, until)
				defer stop()
				got := &timed{Context: parent, until: until}
				defer got.end()
				if early {
					got.Done()
				}
				row.ends(cancel, func() { got.end(); stop() })
				synctest.Wait()
				if !errors.Is(got.Err(), want.Err()) || (got.Err() == nil) != (want.Err() == nil) {
					t.Errorf("%s, Done asked for before: %v: %v, want %v", row.name, early, got.Err(), want.Err())
				}
				if c := context.Cause(got); !errors.Is(c, context.Cause(want)) {
					t.Errorf("%s, Done asked for before: %v: because of %v, want %v", row.name, early, c, context.Cause(want))
				}
				if at, ok := got.Deadline(); !ok || !at.Equal(until) {
					t.Errorf("%s: its deadline is %v, want %v", row.name, at, until)
				}
				if over(got) != over(want) {
					t.Errorf("%s, Done asked for before: %v: done is %v, want %v", row.name, early, over(got), over(want))
				}
			})
		}
	}
}

func over(ctx context.Context) bool {
	done := ctx.Done()
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}
