package load

import (
	"context"
	"time"
)

// blocked is the part of a wait that blocks a thread.
const blocked = 2 * time.Millisecond

// wait returns at a moment, or before when ctx ends. Go's own timers wake up in whole
// milliseconds when nothing else happens; of requests that are due every millisecond, half
// left 0.77 ms late with them, and 0.10 ms with a system call for the last two milliseconds.
func wait(ctx context.Context, at time.Time) {
	if left := time.Until(at) - blocked; left > 0 {
		select {
		case <-time.After(left):
		case <-ctx.Done():
		}
	}
	for left := time.Until(at); left > 0 && ctx.Err() == nil; left = time.Until(at) {
		pause(left)
	}
}
