//go:build !linux

package load

import (
	"context"
	"time"
)

// waiter waits until a moment, to about a millisecond. It belongs to one goroutine.
type waiter struct{}

func newWaiter() (*waiter, error) { return &waiter{}, nil }

func (*waiter) close() {}

// until returns at that moment, or before when ctx ends.
func (*waiter) until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}
