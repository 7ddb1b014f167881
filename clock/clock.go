package clock

import (
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
)

const (
	// Unseen is by how much a clock may step and nothing follows: loan.Terms.Slack makes up for it.
	Unseen = 50 * time.Millisecond
	// shownFor is how long an answer shows how far the clock has come. A loan held then is over after it, so a clock that
	// is slowed by more than MaxDriftPPM closes bounds no longer than that.
	shownFor = 30 * time.Second
)

// Options are what a Clock and PeerOffsets need; all of them have defaults.
type Options struct {
	// Now is the local monotonic clock, from any origin but never negative; nil means the time since New.
	Now func() time.Duration
	// Logger receives steps and alarms; nil discards them.
	Logger *slog.Logger
	// Meter makes the instruments; nil means there are none.
	Meter metric.Meter
}

func (o *Options) setDefaults() {
	if o.Now == nil {
		start := time.Now()
		o.Now = func() time.Duration { return time.Since(start) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Reading is the server's time at the moment of the call.
type Reading struct {
	NowUS       int64         // estimated TIME, µs since the epoch
	Uncertainty time.Duration // error bound of NowUS, either way
	Drift       Drift         // as last measured
	Age         time.Duration // since the last sample
	// Valid is false before the first sample: nothing else in the reading is set then. It stays true while Redis is
	// unreachable; Age and Uncertainty grow.
	Valid bool
}

// Clock is what this process knows of the clock of one server. Who asks that server for TIME calls Observe or Saw, and
// all that need its time read it here. Safe for concurrent use; nothing waits.
type Clock struct {
	now   func() time.Duration
	log   *slog.Logger
	steps *instruments.Counter

	mu            sync.Mutex // guards what follows
	estimator     Estimator
	epoch, former uint32 // of the server's data: see Least
	shownUS       int64  // the newest TIME that an answer under epoch has shown, 0 for none
	shownAt       time.Duration
}

// New returns a Clock without a sample.
func New(o Options) (*Clock, error) {
	o.setDefaults()
	c := &Clock{now: o.Now, log: o.Logger}
	return c, c.instrument(o.Meter)
}

// Now is the local monotonic clock, which samples are measured by.
func (c *Clock) Now() time.Duration { return c.now() }

// Observe takes in the TIME of a reply that comes now, to what was sent at a time of Now. It returns by how much the
// clock was certainly moved, see Estimator.Observe.
func (c *Clock) Observe(sent time.Duration, us int64) (step time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	received := c.now()
	before, _ := c.estimator.At(received)
	if step, err = c.estimator.Observe(Sample{Sent: sent, Received: received, ServerUS: us}); err != nil {
		return 0, err
	}
	c.saw(us, received)
	after, _ := c.estimator.At(received)
	if step != 0 {
		c.steps.Add(1)
		c.log.Warn("redis clock stepped", slog.Duration("step", step), slog.Duration("uncertainty", after.Uncertainty))
	}
	switch excessive := after.Drift.Excessive(); {
	case excessive && !before.Drift.Excessive():
		c.log.Error("redis clock runs more than 2 % too fast or too slow: limits with max_overshoot admit nothing until it does not",
			"drift_ppm", after.Drift.PPM)
	case !excessive && before.Drift.Excessive():
		c.log.Info("redis clock runs at an allowed rate again", "drift_ppm", after.Drift.PPM)
	}
	return step, nil
}

// Reading returns the server's time now; the zero Reading before the first sample.
func (c *Clock) Reading() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	e, known := c.estimator.At(now)
	if !known {
		return Reading{}
	}
	return Reading{NowUS: (now + e.Offset).Microseconds(), Uncertainty: e.Uncertainty, Drift: e.Drift, Age: e.Age, Valid: true}
}

// Least is the TIME that must have come, by what the server has shown while its data had this epoch; less Unseen, and 0
// where that is not known. Under a clock that was set back a bound is closed until then, or until another epoch begins:
// loans held would be used for too long. Of two epochs the one that is asked for first is the former, which the server
// goes by no more.
func (c *Clock) Least(epoch uint32) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == 0 || epoch == c.former {
		return 0
	}
	if epoch != c.epoch {
		c.epoch, c.former, c.shownUS = epoch, c.epoch, 0
	}
	now := c.now()
	if c.shownUS == 0 || now-c.shownAt > shownFor {
		return 0
	}
	return c.least(now) - Unseen.Microseconds()
}

// Saw takes in the TIME of an answer under an epoch that has come by now.
func (c *Clock) Saw(epoch uint32, us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch == c.epoch {
		c.saw(us, c.now())
	}
}

func (c *Clock) saw(us int64, now time.Duration) {
	if c.shownUS == 0 || now-c.shownAt > shownFor || us > c.least(now) {
		c.shownUS, c.shownAt = us, now
	}
}

// least is where the clock is at least if it was not moved since shownAt.
func (c *Clock) least(now time.Duration) int64 {
	passed := now - c.shownAt
	return c.shownUS + (passed - drifted(passed, MaxDriftPPM)).Microseconds()
}

// instrument makes the Clock's instruments. In Prometheus they are called
//
//	regiond_clock_offset_seconds       TIME − the host's wall clock
//	regiond_clock_uncertainty_seconds  error bound of the estimated TIME
//	regiond_clock_drift_ratio          how much faster Redis's clock runs than ours
//	regiond_clock_steps_total          how often it was moved
//
// The first three are absent while the Reading is not valid.
func (c *Clock) instrument(meter metric.Meter) error {
	i := instruments.On(meter)
	gauge := func(name, unit, help string, value func(Reading) float64) {
		i.Gauge(name, unit, help, func(observe instruments.Observe) {
			if r := c.Reading(); r.Valid {
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
		func(r Reading) float64 { return r.Drift.PPM / 1e6 })
	c.steps = i.Counter("regiond.clock.steps", "{step}", "How often Redis's clock was found moved, forward or back.")
	return i.Err()
}
