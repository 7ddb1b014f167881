// Package loglimit bounds how often the same is logged: Rate what recurs, and Fault what lasts.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Rate lets so many lines of a kind through at once, and one more each period. The next line tells how many were
// suppressed. Safe for concurrent use.
type Rate struct {
	burst int
	every time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	limit      *rate.Limiter
	suppressed int64
}

// maxKinds bounds the kinds. More share one.
const maxKinds = 256

// NewRate returns a Rate.
func NewRate(burst int, every time.Duration) *Rate {
	return &Rate{burst: burst, every: every, kinds: map[string]*kind{}}
}

// Pass reports whether to log a line of a kind at now, and how many before it were suppressed.
func (r *Rate) Pass(of string, now time.Time) (suppressed int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kinds[of]
	if k == nil && len(r.kinds) >= maxKinds {
		of = ""
		k = r.kinds[of]
	}
	if k == nil {
		k = &kind{limit: rate.NewLimiter(rate.Every(r.every), r.burst)}
		r.kinds[of] = k
	}
	if !k.limit.AllowN(now, 1) {
		k.suppressed++
		return 0, false
	}
	suppressed, k.suppressed = k.suppressed, 0
	return suppressed, true
}

// Warn logs a line of a kind, if it may.
func (r *Rate) Warn(log *slog.Logger, now time.Time, of, msg string, args ...any) {
	if suppressed, ok := r.Pass(of, now); ok {
		if suppressed > 0 {
			args = append(args, "suppressed", suppressed)
		}
		log.Warn(msg, args...)
	}
}

// Forget begins anew.
func (r *Rate) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.kinds)
}

// Handler is a handler for what any caller can cause, of which all lines are of one kind.
func (r *Rate) Handler(h slog.Handler) slog.Handler { return handler{h, r} }

type handler struct {
	slog.Handler
	rate *Rate
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, line slog.Record) error {
	suppressed, ok := h.rate.Pass("", line.Time)
	if !ok {
		return nil
	}
	if suppressed > 0 {
		line.AddAttrs(slog.Int64("suppressed", suppressed))
	}
	return h.Handler.Handle(ctx, line)
}

// Fault is something that is logged when it begins, and may be when it ends. Safe for concurrent use.
type Fault struct{ on atomic.Bool }

// Begins reports whether it did not last already.
func (f *Fault) Begins() bool { return !f.on.Swap(true) }

// Ends reports whether it lasted until now.
func (f *Fault) Ends() bool { return f.on.Swap(false) }

// Is takes what holds now, and reports whether the fault begins.
func (f *Fault) Is(now bool) bool { return !f.on.Swap(now) && now }

// Lasts reports whether it has begun and not ended.
func (f *Fault) Lasts() bool { return f.on.Load() }
