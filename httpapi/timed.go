package httpapi

import (
	"context"
	"sync"
	"time"
)

// timed is a request's context with a deadline. It is context.WithDeadline for whoever
// waits for Done, and costs one allocation for the limiter, which looks at Deadline
// and has a clock of its own: the channel and the timer are made when first asked for.
type timed struct {
	context.Context //nolint:containedctx // it is one
	until           time.Time

	mu     sync.Mutex
	made   context.Context //nolint:containedctx // nil until Done was asked for
	cancel context.CancelFunc
	over   bool
}

// Deadline implements context.Context.
func (t *timed) Deadline() (time.Time, bool) {
	if earlier, ok := t.Context.Deadline(); ok && earlier.Before(t.until) {
		return earlier, true
	}
	return t.until, true
}

// Done implements context.Context.
func (t *timed) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.made != nil:
	case t.over:
		t.made, t.cancel = context.WithCancel(t.Context)
		t.cancel()
	default:
		t.made, t.cancel = context.WithDeadline(t.Context, t.until)
	}
	return t.made.Done()
}

// Err implements context.Context.
func (t *timed) Err() error {
	if err := t.Context.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.made != nil:
		return t.made.Err()
	case t.over:
		return context.Canceled
	case !time.Now().Before(t.until):
		return context.DeadlineExceeded
	}
	return nil
}

// end ends it, as the function that context.WithDeadline returns does.
func (t *timed) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.cancel != nil {
		t.cancel()
	}
}
