package quota

import (
	"context"
	"time"
)

// callersDeadline marks the context of a caller that waits no longer than its deadline.
type callersDeadline struct{}

// WithCallersDeadline returns ctx with a deadline after which nobody waits for the decision, so that there is one by
// then, whatever has become of the call to Redis. With any other deadline what was sent is waited for until Redis has
// answered or is found dead, which may be a moment later.
func WithCallersDeadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(context.WithValue(ctx, callersDeadline{}, true), at)
}

// HasCallersDeadline reports whether ctx, or one that it comes from, is of WithCallersDeadline.
func HasCallersDeadline(ctx context.Context) bool { return ctx.Value(callersDeadline{}) != nil }
