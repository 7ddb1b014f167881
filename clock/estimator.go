package clock

import (
	"fmt"
	"math"
	"time"

	"github.com/regiond/regiond/quota"
)

const (
	// MaxDriftPPM is how many parts per million faster or slower than ours a store's clock may run, as loans allow for.
	MaxDriftPPM = quota.RatePPM
	// StepThreshold separates steps from noise: an operator or a failover moves a clock further than this.
	StepThreshold = 10 * time.Millisecond

	// wanderPPM is how far drift may be from what the last trendLength samples show. A kernel's discipline changes it
	// by 500 ppm either way.
	wanderPPM = 1000
	// maxSlewPPM is the fastest that a clock is slewed, by chrony: faster is a step.
	maxSlewPPM = 100_000

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

// rates are the slowest and the fastest that one clock may run beside another: by how many ppm it is ahead.
type rates struct{ slowest, fastest time.Duration }

func within(ppm time.Duration) rates { return rates{-ppm, ppm} }

// drifted is how far clocks that differ by ppm drift apart in d, rounded up.
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
func (s Sample) offsets(r rates) interval {
	server := time.Duration(s.ServerUS) * resolution
	return interval{lo: server - s.Received, hi: server + resolution - s.Sent + drifted(s.Received-s.Sent, r.fastest)}
}

// Estimate is what is known about Redis's clock at one moment.
type Estimate struct {
	// Offset is server − local monotonic: added to a reading of the local clock it
	// gives nanoseconds since the epoch on Redis's.
	Offset time.Duration
	// Uncertainty bounds the error of Offset, either way.
	Uncertainty time.Duration
	// Drift is how much faster Redis's clock runs than ours, in ppm, as last measured.
	Drift Drift
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
// no assumption. When the two do not overlap a clock was moved or runs at another rate, and only the newest counts.
type bounds struct {
	known    bool
	at       time.Duration // local time at which possible holds: when the last measurement ended
	possible interval
}

// after is what is possible at a local time, between clocks that drift apart by r.
func (b *bounds) after(now time.Duration, r rates) interval {
	passed := max(0, now-b.at)
	return interval{b.possible.lo - drifted(passed, -r.slowest), b.possible.hi + drifted(passed, r.fastest)}
}

// beyond is by how much i is certainly ahead of all of j, or behind where negative.
func (i interval) beyond(j interval) time.Duration {
	return max(0, i.lo-j.hi) - max(0, j.lo-i.hi)
}

// narrow takes in what a measurement that ended now leaves possible, and reports whether that agrees with what was known.
func (b *bounds) narrow(now time.Duration, measured interval, r rates) bool {
	before := b.after(now, r)
	agrees := measured.lo < before.hi && before.lo < measured.hi
	if b.known && agrees {
		measured = interval{max(measured.lo, before.lo), min(measured.hi, before.hi)}
	}
	agrees = agrees || !b.known
	*b = bounds{known: true, at: now, possible: measured}
	return agrees
}

// Drift is how much faster a server's clock runs than ours.
type Drift struct {
	PPM    float64
	Within float64 // error bound of PPM, either way; MaxDriftPPM while nothing is measured
}

// Fastest is the fastest that the clock may run as it was measured, in ppm.
func (d Drift) Fastest() float64 { return d.PPM + d.Within }

// Excessive reports whether the clock certainly runs faster or slower than loans allow for.
func (d Drift) Excessive() bool { return math.Abs(d.PPM)-d.Within > MaxDriftPPM }

// rates are those that the clock may have by now.
func (d Drift) rates() rates {
	middle, most := time.Duration(d.PPM), time.Duration(math.Ceil(d.Within))+wanderPPM
	return rates{middle - most, middle + most}
}

// Estimator estimates Redis's clock by samples, and how fast it runs. It is pure arithmetic, and not safe for concurrent
// use. The zero value has seen no sample.
//
// A sample that contradicts what is known was taken of a clock that has stepped or that runs at another rate. Two or three
// more tell which: one that has stepped runs as before.
//
//	TIME − ours            ·  ·  ·                 ·  step
//	              ·  ·  ·                    ·  ·
//	           known │  doubt, until measured anew │ another rate
type Estimator struct {
	bounds   bounds
	trend    trend
	drift    Drift  // as last measured; Within 0: never
	measured bool   // since the last contradiction
	doubted  bounds // what was known before the first contradiction that is not explained yet; not known: there is none
	former   rates  // the rates then
}

// Observe adds a sample. It returns by how much the clock was certainly moved as soon as that exceeds StepThreshold and no
// rate explains it, positive for forward; otherwise 0. A step of more than a tenth of the time since the sample before is
// found at once, a smaller one when drift is measured anew. An error says why the sample is invalid or that it ended before
// the last one; nothing changes then.
//
// For example, after an offset known as 100 ± 1 ms, a sample of 3000 ± 2 ms is a step of 2897 ms.
func (e *Estimator) Observe(s Sample) (step time.Duration, err error) {
	if err := s.validate(); err != nil {
		return 0, err
	}
	if e.bounds.known && s.Received < e.bounds.at {
		return 0, fmt.Errorf("samples must be in order: one received at %v came after one of %v", s.Received, e.bounds.at)
	}
	was, r := e.bounds, e.rates()
	sampled := s.offsets(r)
	if !e.bounds.narrow(s.Received, sampled, r) {
		if !e.doubted.known {
			e.doubted, e.former = was, r
		}
		e.trend, e.measured = nil, false
		if slewed := was.after(s.Received, within(maxSlewPPM)); sampled.beyond(slewed).Abs() > StepThreshold {
			step = e.stepped(s.Received, sampled, e.former)
		}
	}
	e.trend = e.trend.with(point{at: s.Received, offset: sampled.middle(), within: sampled.halfWidth()})
	drift, ok := e.trend.slope()
	if !ok {
		return step, nil
	}
	e.drift, e.measured = drift, true
	if e.doubted.known && !drift.Excessive() {
		r := within(MaxDriftPPM)
		if now := drift.rates(); now.slowest < e.former.fastest && e.former.slowest < now.fastest {
			r = e.former
		}
		step = e.stepped(s.Received, sampled, r)
	}
	return step, nil
}

// stepped explains a contradiction: by how much a clock that runs at r has moved since.
func (e *Estimator) stepped(now time.Duration, sampled interval, r rates) time.Duration {
	moved := sampled.beyond(e.doubted.after(now, r))
	if e.doubted = (bounds{}); moved.Abs() <= StepThreshold {
		return 0
	}
	return moved
}

// rates are those that the clock may have.
func (e *Estimator) rates() rates {
	switch {
	case e.measured:
		return e.drift.rates()
	case e.doubted.known:
		return within(maxSlewPPM)
	}
	return within(MaxDriftPPM)
}

// At returns the estimate for a local time not before the last sample, and false
// before the first.
func (e *Estimator) At(now time.Duration) (Estimate, bool) {
	if !e.bounds.known {
		return Estimate{}, false
	}
	i := e.bounds.after(now, e.rates())
	drift := e.drift
	if drift.Within == 0 {
		drift.Within = MaxDriftPPM
	}
	return Estimate{Offset: i.middle(), Uncertainty: i.halfWidth(), Drift: drift, Age: max(0, now-e.bounds.at)}, true
}

// trendLength is the number of samples that the drift is measured over: a minute at
// one a second, in which 100 µs of error amount to a few ppm.
const trendLength = 64

// trend is the last samples' offsets, the newest last.
type trend []point

type point struct {
	at, offset time.Duration
	within     time.Duration // error bound of offset; > 0
}

func (t trend) with(p point) trend { return append(t[max(0, len(t)+1-trendLength):], p) }

// slope is the line of least squares through the points, each weighted by 1/error², so that a slow sample hardly counts.
// Its slope is a mean of the rates between them, but for what the points' errors tilt it by. It is false while that could be
// half of MaxDriftPPM.
func (t trend) slope() (Drift, bool) {
	if len(t) < 2 {
		return Drift{}, false
	}
	// Offsets are about 2⁶⁰ ns; float64 holds their differences, not themselves.
	origin := t[0]
	var weights, x, y float64
	each := func(f func(w, x, y, e float64)) {
		for _, p := range t {
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
	if xx == 0 || tilt/xx*million >= MaxDriftPPM/2 {
		return Drift{}, false
	}
	// Further digits mean nothing.
	return Drift{PPM: math.Round(xy/xx*million*1000) / 1000, Within: math.Ceil(tilt/xx*million*1000) / 1000}, true
}
