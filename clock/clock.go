package clock

import (
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
)

// Unseen is by how much a clock may step and nothing follows. With the uncertainty of a Fence that is 100 ms at most, which
// loan.Terms.Slack makes up for.
const Unseen = 50 * time.Millisecond

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
	Estimate
	NowUS int64 // estimated TIME, µs since the epoch
	// Valid is false before the first sample: nothing else in the reading is set then. It stays true while Redis is
	// unreachable; Age and Uncertainty grow.
	Valid bool
}

// Clock is what this process knows of the clock of one server. Who asks that server for TIME calls Observe, and all that
// need its time read it here. Safe for concurrent use; nothing waits.
type Clock struct {
	now   func() time.Duration
	log   *slog.Logger
	steps *instruments.Counter

	mu        sync.Mutex // guards what follows
	estimator Estimator
	epoch     uint32 // see Watch
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
	after, _ := c.estimator.At(received)
	if step != 0 {
		if step.Abs() > Unseen {
			c.epoch = 0
		}
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
	return c.reading()
}

func (c *Clock) reading() Reading {
	now := c.now()
	e, known := c.estimator.At(now)
	if !known {
		return Reading{}
	}
	return Reading{Estimate: e, NowUS: (now + e.Offset).Microseconds(), Valid: true}
}

// Watch says that data of this epoch are in force from now on; 0 for none. The next step of the clock ends that.
func (c *Clock) Watch(epoch uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch = epoch
}

// Fence returns the TIMEs at which a call under an epoch that is sent now may be carried out, if it takes the budget at
// most: outside, the server was slow or its clock was moved, which only Observe tells apart. ok is false where TIME is not
// known well enough, and where the clock has stepped since the epoch began.
func (c *Clock) Fence(epoch uint32, budget time.Duration) (fromUS, toUS int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reading()
	if epoch == 0 || epoch != c.epoch || !r.Valid || r.Uncertainty > Unseen {
		return 0, 0, false
	}
	return r.NowUS - (r.Uncertainty + Unseen).Microseconds(), r.NowUS + (r.Uncertainty + budget).Microseconds(), true
}

// instrument makes the Clock's instruments. Gauges are absent while the Reading is not valid.
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
		"Redis TIME minus the host's wall clock; a region's first process compares it with what the last one noted.", func(r Reading) float64 {
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
