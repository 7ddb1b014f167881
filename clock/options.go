package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

const (
	// DefaultInterval is how often TIME is read: often enough that drift adds at
	// most half a millisecond in between, seldom enough that Redis does not notice.
	DefaultInterval = time.Second
	// DefaultTimeout bounds one reading. A slower one would say little anyway: its
	// uncertainty is half its round trip.
	DefaultTimeout = 500 * time.Millisecond
	// lateIntervals is how many intervals late the tracker may run before it takes
	// its process for having stood still.
	lateIntervals = 3
	// maxMaxDrift is a clock that runs a tenth faster than another: no clock at all.
	maxMaxDrift = 100_000
)

// Options are what a Tracker needs. Read alone has no default.
type Options struct {
	// Read asks Redis for TIME, in microseconds since the epoch. It gives up when
	// ctx is done and is never called twice at a time. Waiting inside it (for a
	// connection, say) costs precision, never correctness.
	Read func(ctx context.Context) (us int64, err error)
	// Interval between readings; 0 means DefaultInterval.
	Interval time.Duration
	// Timeout of one reading, at most Interval; 0 means DefaultTimeout, or Interval
	// when that is shorter.
	Timeout time.Duration
	// Estimator has the bounds that the estimate believes in.
	Estimator EstimatorOptions
	// Now is the local monotonic clock, from any origin but never negative; nil
	// means the time since New.
	Now func() time.Duration
	// Logger hears of steps, of lost and regained sight of TIME, and of a process
	// that stood still; nil means nobody does.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

// validate fills in the defaults and returns everything that is wrong.
func (o *Options) validate() error {
	var errs []error
	if o.Read == nil {
		errs = append(errs, errors.New("option Read is missing: it asks Redis for TIME"))
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.Timeout == 0 {
		o.Timeout = min(DefaultTimeout, o.Interval)
	}
	if o.Interval < 0 || o.Timeout < 0 || o.Timeout > o.Interval {
		errs = append(errs, fmt.Errorf("option Interval must be positive and Timeout between 0 and Interval, are %v and %v",
			o.Interval, o.Timeout))
	}
	if d := o.Estimator.MaxDrift; d < 0 || d > maxMaxDrift {
		errs = append(errs, fmt.Errorf("option MaxDrift must be between 0 and %d ppm, is %d", maxMaxDrift, d))
	}
	if d := o.Estimator.StepThreshold; d < 0 {
		errs = append(errs, fmt.Errorf("option StepThreshold must not be negative, is %v", d))
	}
	fillIn(&o.Now, &o.Logger, &o.Meter)
	return errors.Join(errs...)
}

// fillIn puts the defaults in the place of what is nil: the time since now, and nobody
// who hears.
func fillIn(now *func() time.Duration, log **slog.Logger, meter *metric.Meter) {
	if *now == nil {
		start := time.Now()
		*now = func() time.Duration { return time.Since(start) }
	}
	if *log == nil {
		*log = slog.New(slog.DiscardHandler)
	}
	if *meter == nil {
		*meter = noop.Meter{}
	}
}
