package clock_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/clock"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
	s  = time.Second
)

// epochUS is Redis's TIME when the local clock of these tests shows 0.
const epochUS = 1_790_000_000_000_000

func TestInvalidSamples(t *testing.T) {
	var e clock.Estimator
	good := clock.Sample{Sent: 10 * s, Received: 10*s + ms, ServerUS: epochUS}
	if _, err := e.Observe(good); err != nil {
		t.Fatal(err)
	}
	before, _ := e.At(11 * s)
	for name, sample := range map[string]clock.Sample{
		"ends before it begins":  {Sent: 11 * s, Received: 11*s - 1, ServerUS: epochUS},
		"begins before time":     {Sent: -1, Received: 11 * s, ServerUS: epochUS},
		"ends before the last":   {Sent: 10 * s, Received: 10*s + ms - 1, ServerUS: epochUS},
		"TIME before the epoch":  {Sent: 11 * s, Received: 11 * s, ServerUS: -1},
		"TIME beyond all sums":   {Sent: 11 * s, Received: 11 * s, ServerUS: math.MaxInt64},
		"TIME in nanoseconds":    {Sent: 11 * s, Received: 11 * s, ServerUS: epochUS * 1000},
		"everything at its most": {Sent: math.MaxInt64, Received: math.MaxInt64, ServerUS: math.MaxInt64},
	} {
		step, err := e.Observe(sample)
		if err == nil || step != 0 {
			t.Errorf("%s: step %v, error %v; want an error", name, step, err)
		}
	}
	if after, _ := e.At(11 * s); after != before {
		t.Errorf("refused samples changed the estimate from %+v to %+v", before, after)
	}
}

// drifting is a clock that a test reads once a second, by quick samples and slow ones in turn.
type drifting struct {
	e      clock.Estimator
	at     time.Duration
	server float64 // ns, as the local clock is
}

// run lets n seconds go by at a drift, and returns how far the clock was found to be moved, in all.
func (d *drifting) run(t *testing.T, n int, ppm float64) (moved time.Duration) {
	t.Helper()
	for range n {
		d.at += s
		d.server += 1e9 * (1 + ppm/1e6)
		took := 200 * us
		if d.at%(2*s) == 0 {
			took = 80 * ms
		}
		step, err := d.e.Observe(clock.Sample{Sent: d.at, Received: d.at + took, ServerUS: epochUS + int64(d.server/1e3)})
		if err != nil {
			t.Fatal(err)
		}
		moved += step
	}
	return moved
}

func (d *drifting) drift() clock.Drift {
	got, _ := d.e.At(d.at)
	return got.Drift
}

// A minute of samples, half of them slow, measures the drift to a few ppm. A step does not look like drift: the one from
// before is shown until it is measured anew.
func TestDrift(t *testing.T) {
	for _, ppm := range []float64{-480, -30, 0, 7, 480, 2000, -20_000, 20_000, 50_000} {
		var d drifting
		d.run(t, 1, ppm)
		if got := d.drift(); got != (clock.Drift{Within: clock.MaxDriftPPM}) {
			t.Errorf("%v ppm: drift %v from one sample", ppm, got)
		}
		for _, after := range []string{"the first", "a step"} {
			d.run(t, 60, ppm)
			got := d.drift()
			if off := math.Abs(got.PPM - ppm); off > 5 || off > got.Within || got.Within > 30 {
				t.Errorf("%v ppm: drift is %v a minute after %s", ppm, got, after)
			}
			if got.Excessive() != (math.Abs(ppm) > 20_000) {
				t.Errorf("%v ppm: excessive is %v", ppm, got.Excessive())
			}
			d.server += float64(time.Hour)
			if step := d.run(t, 1, ppm); (step-time.Hour).Abs() > 200*ms && !got.Excessive() || d.drift() != got {
				t.Errorf("%v ppm: a step of %v, then a drift of %v, want %v", ppm, step, d.drift(), got)
			}
		}
	}
}

// TestSmallSteps: once drift is known, at any drift, what is above the threshold is found within two seconds.
func TestSmallSteps(t *testing.T) {
	for _, ppm := range []float64{-20_000, -5000, 0, 300, 20_000} {
		for _, by := range []time.Duration{15 * ms, -15 * ms, clock.Unseen, -clock.Unseen, 90 * ms, -90 * ms} {
			var d drifting
			d.run(t, 9, ppm) // the next is quick
			d.run(t, 1, ppm)
			d.server += float64(by)
			found := d.run(t, 3, ppm)
			if (found - by).Abs() > 5*ms {
				t.Errorf("%v ppm: found a step of %v, there was one of %v", ppm, found, by)
			}
			if more := d.run(t, 60, ppm); more != 0 {
				t.Errorf("%v ppm: then one of %v", ppm, more)
			}
		}
	}
}

// TestAnotherRate: a clock that runs faster or slower from now on has not stepped. One that was slewed faster than it may
// drift has, by how far it was slewed, but its drift is excessive until then.
func TestAnotherRate(t *testing.T) {
	for _, row := range []struct {
		before, between float64 // ppm
		lasts           int     // s
		least, most     time.Duration
	}{
		{0, 10_000, 20, 0, 0},
		{0, -10_000, 20, 0, 0},
		{20_000, -20_000, 60, 0, 0},
		{-3000, 1500, 5, 0, 0},
		{0, 50_000, 20, 900 * ms, 1000 * ms},
		{100, -83_000, 10, -830 * ms, -800 * ms},
	} {
		var d drifting
		d.run(t, 20, row.before)
		moved := d.run(t, row.lasts, row.between)
		if excessive := math.Abs(row.between) > clock.MaxDriftPPM; d.drift().Excessive() != excessive || math.Abs(d.drift().PPM-row.between) > 500 {
			t.Errorf("%+v: drift %v", row, d.drift())
		}
		if moved += d.run(t, 20, row.before); moved < row.least || moved > row.most {
			t.Errorf("%+v: moved by %v", row, moved)
		}
		if math.Abs(d.drift().PPM-row.before) > 100 {
			t.Errorf("%+v: drift %v in the end", row, d.drift())
		}
	}
}

// referenceModel is the obvious estimator: it keeps every sample since the clock last
// moved and intersects the offsets that they allow.
type referenceModel struct{ samples []clock.Sample }

func (w *referenceModel) allowed(at time.Duration) (lo, hi time.Duration) {
	lo, hi = math.MinInt64, math.MaxInt64
	for _, p := range w.samples {
		server := time.Duration(p.ServerUS) * us // 2 % since TIME may have been read at the earliest
		lo = max(lo, server-p.Received-(at-p.Received)/50)
		hi = min(hi, server+us-p.Sent+(at-p.Sent)/50)
	}
	return lo, hi
}

func (w *referenceModel) observe(p clock.Sample) {
	w.samples = append(w.samples, p)
	if lo, hi := w.allowed(p.Received); lo > hi {
		w.samples = []clock.Sample{p}
	}
}

// Times are multiples of 2 µs, so that 2 % of them is whole nanoseconds and both must agree to the last. Samples are too slow
// to measure drift by.
func TestEstimatorEqualsReferenceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, w := &clock.Estimator{}, &referenceModel{}
		var now, server time.Duration
		micros := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * 2 * us
		}
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			gap, out, back := micros("gap", 500_000), s+micros("out", 500_000), s+micros("back", 500_000)
			server += time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, 1, -1, 7, -40}).Draw(t, "moved")) * 100 * s
			sent := now + gap
			read := sent + out
			now = read + back
			sample := clock.Sample{Sent: sent, Received: now, ServerUS: epochUS + (read + server).Microseconds()}
			if _, err := e.Observe(sample); err != nil {
				t.Fatal(err)
			}
			w.observe(sample)
			at := now + micros("later", 2_000_000)*rapid.SampledFrom([]time.Duration{1, 1, 10_000_000}).Draw(t, "times") // over a year
			lo, hi := w.allowed(at)
			got, _ := e.At(at)
			if got.Offset != lo+(hi-lo)/2 || got.Uncertainty != (hi-lo+1)/2 || got.Age != at-now {
				t.Fatalf("offset %d ± %d, the model has [%d, %d]", got.Offset, got.Uncertainty, lo, hi)
			}
			ended, _ := e.At(now)
			next, _ := e.At(now + 1)
			if got, _ := e.At(sent); got != ended || next.Uncertainty != ended.Uncertainty+1 { // rounded up
				t.Fatalf("before the sample ended %+v is estimated, at its end %+v, and 1 ns later %+v", got, ended, next)
			}
		}
	})
}
