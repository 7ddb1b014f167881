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

// Each row is one more sample; uncertainties are after it, at its end.
func TestEstimatorLedger(t *testing.T) {
	var e clock.Estimator
	if _, known := e.At(0); known {
		t.Fatal("something is known before the first sample")
	}
	for _, row := range []struct {
		sent, took  time.Duration
		server      time.Duration // TIME − epoch when it was read
		offset      time.Duration // − epoch
		uncertainty time.Duration
		step        time.Duration
	}{
		// The first puts the offset between 9 ms less and 1 ms more than 10 s, and
		// within 10 ms either clock may drift 5 µs; TIME is cut to the microsecond.
		{sent: 0, took: 10 * ms, server: 10*s + 1*ms, offset: 9996*ms + 500, uncertainty: 5*ms + 5500},
		// A slow one says less than is known: 500 µs more of drift allowed.
		{sent: 910 * ms, took: 90 * ms, server: 10930 * ms, offset: 9996*ms + 500, uncertainty: 5*ms + 5500 + 495*us},
		// A quick one says more.
		{sent: 1999 * ms, took: 1 * ms, server: 11998 * ms, offset: 9998*ms + 500*us + 500, uncertainty: 501 * us},
		// Nine milliseconds away is less than a step, but no longer what it was.
		{sent: 2999 * ms, took: 1 * ms, server: 13007 * ms, offset: 10007*ms + 500*us + 500, uncertainty: 501 * us},
		// An hour back is a step, and at once what is known.
		{
			sent: 3998 * ms, took: 2 * ms, server: 14006*ms - time.Hour,
			offset: 10007*ms - time.Hour + 500, uncertainty: 1*ms + 1500, step: -time.Hour + 1*ms + 502*us + 500,
		},
	} {
		received := row.sent + row.took
		step, err := e.Observe(clock.Sample{Sent: row.sent, Received: received, ServerUS: epochUS + row.server.Microseconds()})
		if err != nil || step != row.step {
			t.Errorf("at %v: step %v, %v; want %v", received, step, err, row.step)
		}
		got, known := e.At(received)
		if offset := got.Offset - epochUS*us; !known || offset != row.offset || got.Uncertainty != row.uncertainty || got.Age != 0 {
			t.Errorf("at %v: offset %v ± %v, age %v; want %v ± %v, age 0",
				received, offset, got.Uncertainty, got.Age, row.offset, row.uncertainty)
		}
	}
}

func TestUncertaintyGrowsWithAge(t *testing.T) {
	var e clock.Estimator
	if _, err := e.Observe(clock.Sample{Sent: 1 * s, Received: 1 * s, ServerUS: epochUS}); err != nil {
		t.Fatal(err)
	}
	const year = 365 * 24 * time.Hour
	for _, row := range []struct{ age, uncertainty time.Duration }{
		{-5 * s, 500}, // the local clock was read before the sample ended
		{0, 500},
		{1, 501}, // rounded up
		{1 * s, 500*us + 500},
		{time.Hour, 1800*ms + 500},
		{year, year/2000 + 500}, // ns × ppm does not fit in 64 bits
	} {
		got, _ := e.At(1*s + row.age)
		if got.Uncertainty != row.uncertainty || got.Age != max(0, row.age) {
			t.Errorf("after %v: ± %v, age %v; want ± %v", row.age, got.Uncertainty, got.Age, row.uncertainty)
		}
	}
}

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

// The threshold separates steps from slews, counted from the end of the uncertainty.
func TestStepThreshold(t *testing.T) {
	for _, row := range []struct {
		by    time.Duration // how far TIME is ahead of where it was expected
		steps bool
	}{
		{0, false},
		{10*ms + 1*us + 500*us, false}, // at the threshold: allowance 500 µs, resolution 1 µs
		{10*ms + 1*us + 501*us, true},
		{-10*ms - 1*us - 500*us, false},
		{-10*ms - 1*us - 501*us, true},
	} {
		var e clock.Estimator
		if _, err := e.Observe(clock.Sample{ServerUS: epochUS}); err != nil {
			t.Fatal(err)
		}
		step, err := e.Observe(clock.Sample{Sent: s, Received: s, ServerUS: epochUS + (s + row.by).Microseconds()})
		if err != nil || (step != 0) != row.steps {
			t.Errorf("TIME %v ahead: step %v, %v; want a step: %v", row.by, step, err, row.steps)
		}
		if got, _ := e.At(s); got.Offset != epochUS*us+row.by+500 && row.by != 0 {
			t.Errorf("TIME %v ahead: offset off by %v, want the sample's own", row.by, got.Offset-epochUS*us-row.by)
		}
	}
}

// TestDrift: a minute of samples, half of them slow, measures the drift to a few
// ppm; two samples claim nothing; a step does not look like drift.
func TestDrift(t *testing.T) {
	for _, ppm := range []int64{-480, -30, 0, 7, 480, 2000} { // 2000: beyond the allowance, shown all the same
		var e clock.Estimator
		observe := func(i int, stepped time.Duration) float64 {
			t.Helper()
			read := time.Duration(i) * s
			took := 200 * us
			if i%2 == 1 {
				took = 80 * ms
			}
			server := read + read*time.Duration(ppm)/1_000_000 + stepped
			sample := clock.Sample{Sent: read, Received: read + took, ServerUS: epochUS + server.Microseconds()}
			if _, err := e.Observe(sample); err != nil {
				t.Fatal(err)
			}
			got, _ := e.At(sample.Received)
			return got.Drift
		}
		if got := observe(0, 0); got != 0 {
			t.Errorf("%d ppm: drift %v from one sample", ppm, got)
		}
		for i := 1; i < 60; i++ {
			observe(i, 0)
		}
		if got := observe(60, 0); math.Abs(got-float64(ppm)) > 3 {
			t.Errorf("%d ppm: drift is %.2f after a minute", ppm, got)
		}
		if got := observe(61, time.Hour); got != 0 {
			t.Errorf("%d ppm: drift is %.2f at a step, want to begin again", ppm, got)
		}
		for i := 62; i < 122; i++ {
			observe(i, time.Hour)
		}
		if got := observe(122, time.Hour); math.Abs(got-float64(ppm)) > 3 {
			t.Errorf("%d ppm: drift is %.2f a minute after a step", ppm, got)
		}
	}
}

// referenceModel is the obvious estimator: it keeps every sample since the clock last
// moved and intersects the offsets that they allow.
type referenceModel struct{ samples []clock.Sample }

func (w *referenceModel) allowed(at time.Duration) (lo, hi time.Duration) {
	lo, hi = math.MinInt64, math.MaxInt64
	for _, p := range w.samples {
		server := time.Duration(p.ServerUS) * us
		drift := (at - p.Sent) / 2000 // 500 ppm since TIME may have been read at the earliest
		lo = max(lo, server-p.Received-drift)
		hi = min(hi, server+us-p.Sent+drift)
	}
	return lo, hi
}

func (w *referenceModel) observe(p clock.Sample) {
	w.samples = append(w.samples, p)
	if lo, hi := w.allowed(p.Received); lo > hi {
		w.samples = []clock.Sample{p}
	}
}

// Times are multiples of 2 µs, so that 500 ppm of them is whole nanoseconds and
// both must agree to the last.
func TestEstimatorEqualsReferenceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, w := &clock.Estimator{}, &referenceModel{}
		var now, server time.Duration
		micros := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * 2 * us
		}
		for range rapid.IntRange(1, 40).Draw(t, "samples") {
			gap, out, back := micros("gap", 2_000_000), micros("out", 30_000), micros("back", 30_000)
			server += time.Duration(rapid.SampledFrom([]int{0, 0, 0, 0, 1, -1, 7, -40}).Draw(t, "moved")) * 5 * ms
			sent := now + gap
			read := sent + out
			now = read + back
			sample := clock.Sample{Sent: sent, Received: now, ServerUS: epochUS + (read + server).Microseconds()}
			if _, err := e.Observe(sample); err != nil {
				t.Fatal(err)
			}
			w.observe(sample)
			at := now + micros("later", 2_000_000)
			lo, hi := w.allowed(at)
			got, _ := e.At(at)
			if got.Offset != lo+(hi-lo)/2 || got.Uncertainty != (hi-lo+1)/2 {
				t.Fatalf("offset %d ± %d, the model has [%d, %d]", got.Offset, got.Uncertainty, lo, hi)
			}
		}
	})
}
