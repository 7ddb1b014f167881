package clock

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// Reading is the region's time at the moment it was asked for.
type Reading struct {
	NowUS       int64         // Redis TIME by estimate, microseconds since the epoch
	Uncertainty time.Duration // TIME is within this of NowUS, either way
	Drift       float64       // Estimate.Drift, ppm
	Age         time.Duration // since the last sample
	// Valid is false before the first sample, and from a standstill of this
	// process (or of its Tracker) until the next sample: whatever else is in the
	// reading should not be relied on then. It stays true while Redis is away; Age
	// and Uncertainty grow.
	Valid bool
}

// Tracker reads TIME at intervals and tells it to anybody in between. Reading is
// safe for concurrent use and never waits; Run is called once.
type Tracker struct {
	options Options
	metrics *metrics
	// state is written by Run's goroutine alone and replaced, never changed.
	state atomic.Pointer[state]

	estimator *Estimator // Run's own
	blind     bool       // Run's own: the last reading failed
}

// state is what Reading works from.
type state struct {
	belief  belief
	trusted bool          // no standstill since the last sample
	beat    time.Duration // when Run was last seen running
}

// New returns a Tracker that has seen nothing; Run starts it. Its error lists
// every option that is wrong.
func New(o Options) (*Tracker, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("clock options: %w", err)
	}
	m, err := newMetrics(o.Meter)
	if err != nil {
		return nil, fmt.Errorf("clock metrics: %w", err)
	}
	t := &Tracker{options: o, metrics: m, estimator: NewEstimator(o.Estimator)}
	t.state.Store(&state{})
	return t, nil
}

// Run reads TIME at once and then at every interval until ctx ends, which is no
// error. Neither is a reading that fails: whether Redis is away is for others to
// judge, and what is known of its clock lives on.
func (t *Tracker) Run(ctx context.Context) error {
	unregister, err := t.metrics.observe(t.Reading)
	if err != nil {
		return fmt.Errorf("register clock metrics: %w", err)
	}
	defer unregister()
	ticker := time.NewTicker(t.options.Interval)
	defer ticker.Stop()
	t.state.Store(&state{beat: t.options.Now()})
	for {
		t.beat(t.options.Now())
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
	s := t.state.Load() // before Now, or a sample could come in between and be in its future
	now := t.options.Now()
	e, known := s.belief.estimate(now)
	if !known {
		return Reading{}
	}
	return Reading{
		NowUS:       (now + e.Offset).Microseconds(),
		Uncertainty: e.Uncertainty,
		Drift:       e.Drift,
		Age:         e.Age,
		Valid:       s.trusted && !t.stoodStill(s.beat, now),
	}
}

// stoodStill reports a gap that only a process (or a Tracker) that did not run
// can leave: the tick was due an interval after the last sign of life.
func (t *Tracker) stoodStill(beat, now time.Duration) bool {
	return now-beat > (1+lateIntervals)*t.options.Interval
}

// beat notes that Run is running, and withdraws trust when it was not.
func (t *Tracker) beat(now time.Duration) {
	s := *t.state.Load()
	if t.stoodStill(s.beat, now) {
		s.trusted = false
		t.options.Logger.Warn("process stood still: the region's time is not trusted until the next sample",
			slog.Duration("for", now-s.beat))
	}
	s.beat = now
	t.state.Store(&s)
}

// sample reads TIME once and takes in what it says.
func (t *Tracker) sample(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, t.options.Timeout)
	defer cancel()
	sent := t.options.Now()
	us, err := t.options.Read(limited)
	received := t.options.Now()
	t.beat(received)
	var step time.Duration
	if err == nil {
		step, err = t.estimator.Observe(Sample{Sent: sent, Received: received, ServerUS: us})
	}
	if err != nil {
		if ctx.Err() == nil { // else it failed because Run is to end
			t.lostSight(err)
		}
		return
	}
	t.state.Store(&state{belief: t.estimator.belief, trusted: true, beat: received})
	t.regainedSight()
	if step != 0 {
		t.metrics.steps.Add(ctx, 1)
		t.options.Logger.Warn("redis clock stepped", slog.Duration("step", step),
			slog.Duration("uncertainty", t.Reading().Uncertainty))
	}
}

// lostSight logs the first of a row of failures.
func (t *Tracker) lostSight(err error) {
	if !t.blind {
		t.options.Logger.Warn("redis TIME cannot be read: the region's time is extrapolated", slog.Any("error", err))
	}
	t.blind = true
}

func (t *Tracker) regainedSight() {
	if t.blind {
		t.options.Logger.Info("redis TIME is read again")
	}
	t.blind = false
}
