package clock

import (
	"fmt"
	"math"
	"time"
)

const (
	// MaxDriftPPM is how many parts per million two clocks may run apart before a
	// sample contradicts the estimate. Crystals differ by tens; 500 is the fastest
	// slew of a kernel's clock discipline.
	MaxDriftPPM = 500
	// StepThreshold separates steps from slews: a clock that is slewed faster than
	// MaxDriftPPM contradicts the estimate a little with each sample, which is not
	// worth an alarm. An operator or a failover moves it further than this.
	StepThreshold = 10 * time.Millisecond

	// resolution is TIME's: Redis truncates its clock to whole microseconds, so the
	// truth is up to one microsecond later.
	resolution = time.Microsecond
	// latestUS is the last TIME that is accepted, in the year 2112. In nanoseconds it
	// fills half of an int64, which leaves room for every sum here.
	latestUS = 1 << 52
)

// interval is a range of offsets, lo < hi. It is open: TIME is truncated to whole
// µs, so an offset can be as near to an end as it likes and never equal it.
type interval struct{ lo, hi time.Duration }

func (i interval) widened(by time.Duration) interval { return interval{i.lo - by, i.hi + by} }

func (i interval) middle() time.Duration { return i.lo + (i.hi-i.lo)/2 }

// halfWidth is rounded up, so that middle ± halfWidth covers the interval.
func (i interval) halfWidth() time.Duration { return (i.hi - i.lo + 1) / 2 }

// drifted is how far clocks that differ by ppm may drift apart in d, rounded up.
func drifted(d time.Duration, ppm time.Duration) time.Duration {
	const million = 1_000_000
	whole, rest := d/million, d%million // separately, or d × ppm overflows within months
	return whole*ppm + (rest*ppm+million-1)/million
}

// Sample is one reading of Redis TIME. Sent and Received are readings of the local
// monotonic clock before and after the call.
type Sample struct {
	Sent, Received time.Duration
	ServerUS       int64 // TIME, µs since the epoch
}

func (s Sample) validate() error {
	if s.Sent < 0 || s.Received < s.Sent {
		return fmt.Errorf("a sample cannot be sent at %v and received at %v", s.Sent, s.Received)
	}
	if s.ServerUS < 0 || s.ServerUS > latestUS {
		return fmt.Errorf("TIME must be between the years 1970 and 2112, is %d µs", s.ServerUS)
	}
	return nil
}

// offsets returns the offsets at s.Received that the sample allows: TIME was read
// as late as Received, or as early as Sent and has drifted since.
func (s Sample) offsets() interval {
	server := time.Duration(s.ServerUS) * resolution
	drift := drifted(s.Received-s.Sent, MaxDriftPPM)
	return interval{lo: server - s.Received - drift, hi: server + resolution - s.Sent + drift}
}

// Estimate is what is known about Redis's clock at one moment.
type Estimate struct {
	// Offset is server − local monotonic: added to a reading of the local clock it
	// gives nanoseconds since the epoch on Redis's.
	Offset time.Duration
	// Uncertainty bounds the error of Offset, either way.
	Uncertainty time.Duration
	// Drift is how much faster Redis's clock runs than ours, in ppm, for display.
	// It is 0 until the samples determine it better than MaxDriftPPM does.
	Drift float64
	// Age is the time since the last sample ended.
	Age time.Duration
}

// bounds are the offsets between two clocks that measurements have left possible. Each leaves an interval as wide as its
// round trip. What is known widens by the drift allowance as time passes, and is intersected with each measurement:
//
//	known   ├──────────────┤             widened by the allowance × time since
//	sample         ├──────────────────┤  as wide as its round trip
//	now            ├───────┤
//
// So a slow one costs nothing, a quick one counts for as long as it is better than later ones, and asymmetric paths need
// no assumption. When the two do not overlap a clock was moved, and only the newest counts.
type bounds struct {
	known    bool
	at       time.Duration // local time at which possible holds: when the last measurement ended
	possible interval
}

// after is what is possible at a local time, between clocks that drift apart by ppm at most.
func (b *bounds) after(now, ppm time.Duration) interval {
	return b.possible.widened(drifted(max(0, now-b.at), ppm))
}

// narrow takes in what a measurement that ended now leaves possible. moved is by how much it is certainly ahead of all
// that was, or behind where negative.
func (b *bounds) narrow(now time.Duration, measured interval, ppm time.Duration) (moved time.Duration) {
	before := b.after(now, ppm)
	switch {
	case !b.known:
	case measured.lo >= before.hi:
		moved = measured.lo - before.hi
	case measured.hi <= before.lo:
		moved = measured.hi - before.lo
	default:
		measured = interval{max(measured.lo, before.lo), min(measured.hi, before.hi)}
	}
	*b = bounds{known: true, at: now, possible: measured}
	return moved
}

// Estimator estimates Redis's clock by samples, and how fast it runs. It is pure arithmetic, and not safe for concurrent
// use. The zero value has seen no sample.
type Estimator struct {
	bounds bounds
	trend  trend
	drift  float64 // ppm
}

// Observe adds a sample. One beyond all uncertainty and StepThreshold is a step: by how much the clock was certainly
// moved is returned, positive for forward; otherwise 0. An error says why the sample is invalid or that it ended before
// the last one; nothing changes then.
//
// For example, after an offset known as 100 ± 1 ms, a sample of 3000 ± 2 ms is a step of 2897 ms; one of 104 ± 2 ms is
// none, though it replaces what was known.
func (e *Estimator) Observe(s Sample) (step time.Duration, err error) {
	if err := s.validate(); err != nil {
		return 0, err
	}
	if e.bounds.known && s.Received < e.bounds.at {
		return 0, fmt.Errorf("samples must be in order: one received at %v came after one of %v", s.Received, e.bounds.at)
	}
	sampled := s.offsets()
	if moved := e.bounds.narrow(s.Received, sampled, MaxDriftPPM); moved.Abs() > StepThreshold {
		step, e.trend = moved, trend{}
	}
	e.trend.add(point{at: s.Received, offset: sampled.middle(), within: sampled.halfWidth()})
	e.drift = e.trend.slope()
	return step, nil
}

// At returns the estimate for a local time not before the last sample, and false
// before the first.
func (e *Estimator) At(now time.Duration) (Estimate, bool) {
	if !e.bounds.known {
		return Estimate{}, false
	}
	i := e.bounds.after(now, MaxDriftPPM)
	return Estimate{Offset: i.middle(), Uncertainty: i.halfWidth(), Drift: e.drift, Age: max(0, now-e.bounds.at)}, true
}

// trendLength is the number of samples that the drift is measured over: a minute at
// one a second, in which 100 µs of error amount to a few ppm.
const trendLength = 64

// trend is a ring of the last samples' offsets.
type trend struct {
	points [trendLength]point
	next   int // where the next one goes
	length int
}

type point struct {
	at, offset time.Duration
	within     time.Duration // error bound of offset; > 0
}

func (t *trend) add(p point) {
	t.points[t.next] = p
	t.next = (t.next + 1) % trendLength
	t.length = min(t.length+1, trendLength)
}

// slope is the drift in ppm: the line of least squares through the points, each
// weighted by 1/error², so that a slow sample hardly counts. It is 0 while the
// points' errors could tilt the line by MaxDriftPPM or more.
func (t *trend) slope() float64 {
	if t.length < 2 {
		return 0
	}
	// Offsets are about 2⁶⁰ ns; float64 holds their differences, not themselves.
	origin := t.points[0]
	var weights, x, y float64
	each := func(f func(w, x, y, e float64)) {
		for _, p := range t.points[:t.length] {
			e := float64(p.within)
			f(1/(e*e), float64(p.at-origin.at), float64(p.offset-origin.offset), e)
		}
	}
	each(func(w, px, py, _ float64) { weights += w; x += w * px; y += w * py })
	x, y = x/weights, y/weights
	var xx, xy, tilt float64
	each(func(w, px, py, e float64) {
		xx += w * (px - x) * (px - x)
		xy += w * (px - x) * (py - y)
		tilt += w * math.Abs(px-x) * e
	})
	const million = 1e6
	if xx == 0 || tilt/xx*million >= MaxDriftPPM {
		return 0
	}
	return math.Round(xy/xx*million*1000) / 1000 // further digits mean nothing
}
