package clock

import (
	"fmt"
	"time"
)

const (
	// DefaultMaxDrift is how many parts per million two clocks may run apart
	// before a sample contradicts the estimate. Crystals differ by tens; 500 is
	// as fast as a kernel's own clock discipline slews.
	DefaultMaxDrift = 500
	// DefaultStepThreshold tells a step from a slew: a clock that is slewed faster
	// than the allowance contradicts the estimate by a little with each sample,
	// which is no event; an operator or a failover moves it by more than this.
	DefaultStepThreshold = 10 * time.Millisecond

	// tick is TIME's resolution: Redis cuts its clock down to whole microseconds,
	// so the truth is up to one tick later than what it says.
	tick = time.Microsecond
	// latestUS is the last TIME that is believed, in the year 2112: its nanoseconds
	// fill half of an int64 and leave room for every sum here.
	latestUS = 1 << 52
)

// EstimatorOptions are the bounds that an Estimator believes in.
type EstimatorOptions struct {
	// MaxDrift in ppm; 0 means DefaultMaxDrift. More widens the uncertainty faster
	// between samples; less takes more slewing for a contradiction.
	MaxDrift int64
	// StepThreshold is how far beyond all uncertainty a sample must lie to be
	// called a step; 0 means DefaultStepThreshold.
	StepThreshold time.Duration
}

// Sample is one look at Redis TIME. Sent and Received are readings of the local
// monotonic clock before and after the call.
type Sample struct {
	Sent, Received time.Duration
	ServerUS       int64 // TIME, microseconds since the epoch
}

// check refuses what cannot be a sample: garbage must not reach the sums.
func (s Sample) check() error {
	if s.Sent < 0 || s.Received < s.Sent {
		return fmt.Errorf("a sample cannot be sent at %v and received at %v", s.Sent, s.Received)
	}
	if s.ServerUS < 0 || s.ServerUS > latestUS {
		return fmt.Errorf("TIME must be between the years 1970 and 2112, is %d µs", s.ServerUS)
	}
	return nil
}

// Estimate is what is known about Redis's clock at one moment.
type Estimate struct {
	// Offset is server − local monotonic: added to a reading of the local clock it
	// gives nanoseconds since the epoch on Redis's.
	Offset time.Duration
	// Uncertainty is how far from Offset the truth may be, either way.
	Uncertainty time.Duration
	// Drift is how much faster Redis's clock runs than ours, in ppm, for display.
	// It is 0 until the samples say more about it than the allowance does.
	Drift float64
	// Age is how long ago the last sample ended.
	Age time.Duration
}

// Estimator knows Redis's clock by what samples leave possible. A sample says
// that TIME was read at some moment between Sent and Received, which puts the
// offset into an interval as wide as the round trip. Time widens what is known
// by the drift allowance; each further sample is intersected with it:
//
//	known   ├──────────────┤             widened by 500 ppm × time since
//	sample         ├──────────────────┤  as wide as its round trip
//	now            ├───────┤
//
// So a slow sample costs nothing, a quick one counts for as long as it is better
// than what came later, and asymmetry needs no assumption. When the two do not
// meet, the clock has moved, and the sample alone is what is known.
//
// It is arithmetic on what it is given, and not safe for concurrent use.
type Estimator struct {
	threshold time.Duration
	belief    belief
	trend     trend
}

// belief is what is known about the clock, as a value.
type belief struct {
	maxDrift int64 // ppm
	known    bool
	at       time.Duration // local time at which possible holds: the last Received
	possible interval      // offsets that the samples leave possible
	drift    float64       // ppm
}

// NewEstimator returns an Estimator that has seen nothing.
func NewEstimator(o EstimatorOptions) *Estimator {
	if o.MaxDrift == 0 {
		o.MaxDrift = DefaultMaxDrift
	}
	if o.StepThreshold == 0 {
		o.StepThreshold = DefaultStepThreshold
	}
	return &Estimator{threshold: o.StepThreshold, belief: belief{maxDrift: o.MaxDrift}}
}

// Observe takes one sample in. A sample beyond all uncertainty and the threshold
// is a step: it is returned, forward positive, right to within the uncertainties
// before and after; otherwise 0. An error says why the sample cannot be one, or
// that it ended before the last; it then changes nothing.
//
// For example, after an offset known as 100 ± 1 ms, a sample of 3000 ± 2 ms is a
// step of 2900 ms; one of 104 ± 2 ms is none, though it replaces what was known.
func (e *Estimator) Observe(s Sample) (step time.Duration, err error) {
	if err := s.check(); err != nil {
		return 0, err
	}
	b := &e.belief
	if b.known && s.Received < b.at {
		return 0, fmt.Errorf("samples are given in order: one received at %v came after one of %v", s.Received, b.at)
	}
	fresh := b.allowedBy(s)
	before := b.possible.widened(b.drifted(s.Received - b.at))
	switch {
	case !b.known:
		b.possible = fresh
	case fresh.meets(before):
		b.possible = fresh.and(before)
	default:
		b.possible = fresh
		if fresh.distance(before) > e.threshold {
			step = fresh.middle() - before.middle()
			e.trend = trend{}
		}
	}
	b.known, b.at = true, s.Received
	e.trend.add(point{at: s.Received, offset: fresh.middle(), within: fresh.halfWidth()})
	b.drift = e.trend.slope(float64(b.maxDrift))
	return step, nil
}

// At returns what is known at a local time not before the last sample, and false
// when nothing is.
func (e *Estimator) At(now time.Duration) (Estimate, bool) { return e.belief.estimate(now) }

func (b *belief) estimate(now time.Duration) (Estimate, bool) {
	if !b.known {
		return Estimate{}, false
	}
	age := max(0, now-b.at)
	i := b.possible.widened(b.drifted(age))
	return Estimate{Offset: i.middle(), Uncertainty: i.halfWidth(), Drift: b.drift, Age: age}, true
}

// allowedBy returns the offsets at s.Received that one sample allows: TIME was
// read as late as Received, or as early as Sent and has drifted since.
func (b *belief) allowedBy(s Sample) interval {
	server := time.Duration(s.ServerUS) * tick
	drift := b.drifted(s.Received - s.Sent)
	return interval{lo: server - s.Received - drift, hi: server + tick - s.Sent + drift}
}

// drifted is how far two clocks may drift apart in d, rounded up.
func (b *belief) drifted(d time.Duration) time.Duration {
	const million = 1_000_000
	whole, rest := d/million, d%million // apart, or d × ppm overflows within months
	ppm := time.Duration(b.maxDrift)
	return whole*ppm + (rest*ppm+million-1)/million
}
