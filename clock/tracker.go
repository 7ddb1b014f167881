package clock

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/base/loglimit"
)

const (
	// DefaultInterval is how often TIME is read: often enough that drift adds at
	// most half a millisecond in between, seldom enough that Redis does not notice.
	DefaultInterval = time.Second
	// lateIntervals is how many intervals late the tracker may run before the process
	// is considered to have been paused.
	lateIntervals = 3
)

// Options are what a Tracker needs. Only Read has no default.
type Options struct {
	// Read asks Redis for TIME, in µs since the epoch. It must return when ctx is
	// done, and is never called concurrently. Waiting inside it (for a connection,
	// say) costs precision, never correctness.
	Read func(ctx context.Context) (us int64, err error)
	// Interval between readings; 0 means DefaultInterval. One reading may take half
	// of it: a slower one would be too uncertain to be of use.
	Interval time.Duration
	// Now is the local monotonic clock, from any origin but never negative; nil
	// means the time since New.
	Now func() time.Duration
	// Logger receives steps, loss and return of TIME, and pauses of this process; nil
	// discards them.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

func (o *Options) validate() error {
	if o.Read == nil || o.Interval < 0 {
		return errors.New("clock: Read is required, and Interval must not be negative")
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	setDefaults(&o.Now, &o.Logger)
	return nil
}

func setDefaults(now *func() time.Duration, log **slog.Logger) {
	if *now == nil {
		start := time.Now()
		*now = func() time.Duration { return time.Since(start) }
	}
	if *log == nil {
		*log = slog.New(slog.DiscardHandler)
	}
}

// Reading is the region's time at the moment of the call.
type Reading struct {
	NowUS       int64         // estimated Redis TIME, µs since the epoch
	Uncertainty time.Duration // error bound of NowUS, either way
	Drift       float64       // Estimate.Drift, ppm
	Age         time.Duration // since the last sample
	// Valid is false before the first sample, and after a pause of this process (or
	// of its Tracker) until the next sample: nothing else in the reading should be
	// relied on then. It stays true while Redis is unreachable; Age and Uncertainty
	// grow.
	Valid bool
}

// Tracker reads TIME at intervals and estimates it in between. Reading is safe for
// concurrent use and never waits; Run is called once.
type Tracker struct {
	options Options
	steps   *instruments.Counter // of Redis's clock
	running atomic.Bool          // else metrics do not show the reading
	// state is written by Run's goroutine alone and replaced, never changed.
	state atomic.Pointer[state]

	estimator Estimator      // Run's own, like failing
	failing   loglimit.Fault // the last reading failed
}

// state is what Reading works from.
type state struct {
	bounds  bounds
	trusted bool          // no pause since the last sample
	lastRun time.Duration // when Run last showed activity
}

// New returns a Tracker without a sample; Run starts it.
func New(o Options) (*Tracker, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Tracker{options: o}
	t.state.Store(&state{})
	return t, t.instrument(o.Meter)
}

// Run reads TIME at once and then at every interval until ctx ends, and returns nil
// then. A reading that fails is logged; the estimate lives on.
func (t *Tracker) Run(ctx context.Context) error {
	t.running.Store(true)
	defer t.running.Store(false)
	ticker := time.NewTicker(t.options.Interval)
	defer ticker.Stop()
	t.state.Store(&state{lastRun: t.options.Now()})
	for {
		t.markRun(t.options.Now())
		t.sample(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Reading returns the region's time now; the zero Reading before the first sample.
func (t *Tracker) Reading() Reading {
	s := t.state.Load() // before Now: a sample in between would be in the future
	now := t.options.Now()
	e, known := s.bounds.estimate(now)
	if !known {
		return Reading{}
	}
	return Reading{
		NowUS:       (now + e.Offset).Microseconds(),
		Uncertainty: e.Uncertainty,
		Drift:       e.Drift,
		Age:         e.Age,
		Valid:       s.trusted && !t.paused(s.lastRun, now),
	}
}

// paused reports a gap that only a process (or a Tracker) that did not run can
// leave: the next reading was due one interval after lastRun.
func (t *Tracker) paused(lastRun, now time.Duration) bool {
	return now-lastRun > (1+lateIntervals)*t.options.Interval
}

// markRun records that Run is running, and withdraws trust if it was not.
func (t *Tracker) markRun(now time.Duration) {
	s := *t.state.Load()
	if t.paused(s.lastRun, now) {
		s.trusted = false
		t.options.Logger.Warn("process was paused: the region's time is not trusted until the next sample",
			slog.Duration("for", now-s.lastRun))
	}
	s.lastRun = now
	t.state.Store(&s)
}

// sample reads TIME once and updates the estimate.
func (t *Tracker) sample(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, t.options.Interval/2)
	defer cancel()
	sent := t.options.Now()
	us, err := t.options.Read(limited)
	received := t.options.Now()
	t.markRun(received)
	var step time.Duration
	if err == nil {
		step, err = t.estimator.Observe(Sample{Sent: sent, Received: received, ServerUS: us})
	}
	if err != nil {
		if ctx.Err() == nil && t.failing.Begins() { // else Run is to end
			t.options.Logger.Warn("redis TIME cannot be read: the region's time is extrapolated", slog.Any("error", err))
		}
		return
	}
	t.state.Store(&state{bounds: t.estimator.bounds, trusted: true, lastRun: received})
	if t.failing.Ends() {
		t.options.Logger.Info("redis TIME is read again")
	}
	if step != 0 {
		t.steps.Add(1)
		t.options.Logger.Warn("redis clock stepped", slog.Duration("step", step),
			slog.Duration("uncertainty", t.Reading().Uncertainty))
	}
}

// instrument makes the Tracker's instruments. In Prometheus they are called
//
//	regiond_clock_offset_seconds       TIME − the host's wall clock
//	regiond_clock_uncertainty_seconds  error bound of the estimated TIME
//	regiond_clock_drift_ratio          how much faster Redis's clock runs than ours
//	regiond_clock_steps_total          how often it was moved
//
// The first three are absent while the Reading is not valid.
func (t *Tracker) instrument(meter metric.Meter) error {
	i := instruments.On(meter)
	gauge := func(name, unit, help string, value func(Reading) float64) {
		i.Gauge(name, unit, help, func(observe instruments.Observe) {
			if r := t.Reading(); r.Valid && t.running.Load() {
				observe(value(r))
			}
		})
	}
	gauge("regiond.clock.offset", "s",
		"Redis TIME minus the host's wall clock; for display, nothing decides on it.", func(r Reading) float64 {
			return (time.Duration(r.NowUS-time.Now().UnixMicro()) * time.Microsecond).Seconds()
		})
	gauge("regiond.clock.uncertainty", "s", "How far Redis TIME may be from the estimate, either way.",
		func(r Reading) float64 { return r.Uncertainty.Seconds() })
	gauge("regiond.clock.drift", "1",
		"How much faster Redis's clock runs than this process's monotonic clock: 0.0001 is 100 ppm.",
		func(r Reading) float64 { return r.Drift / 1e6 })
	t.steps = i.Counter("regiond.clock.steps", "{step}", "How often Redis's clock was found moved, forward or back.")
	return i.Err()
}
