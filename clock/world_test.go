package clock_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/regiond/regiond/clock"
)

// world is a Redis, a path to it and a local clock, whose truth the test knows.
// One seed is one history.
type world struct {
	rng    *rand.Rand
	local  time.Duration // the local monotonic clock
	server float64       // Redis's wall clock − epoch, ns, without what steps added
	moved  time.Duration // by steps
	mean   float64       // how much faster Redis runs in the mean
	ppm    float64       // and now
	path   path
	wander float64 // ppm by which the drift changes from second to second, at most 500 from the first
}

// path draws one way's delay: out to Redis, and back.
type path func(rng *rand.Rand) (out, back time.Duration)

func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rng.Int64N(int64(hi-lo)+1))
}

func lan(rng *rand.Rand) (out, back time.Duration) {
	return between(rng, 30*us, 150*us), between(rng, 30*us, 150*us)
}

func slow(rng *rand.Rand) (out, back time.Duration) {
	return between(rng, 10*ms, 200*ms), between(rng, 10*ms, 200*ms)
}

// asymmetric has all of its delay on the way back: the middle of a round trip is
// always wrong, by up to half of it.
func asymmetric(rng *rand.Rand) (out, back time.Duration) {
	return between(rng, 0, 10*us), between(rng, 40*ms, 60*ms)
}

// stalling is a path on which now and then something waits: a fork, a full
// buffer, a garbage collection.
func stalling(rng *rand.Rand) (out, back time.Duration) {
	out, back = lan(rng)
	switch rng.IntN(10) {
	case 0:
		out += between(rng, 0, 400*ms)
	case 1:
		back += between(rng, 0, 400*ms)
	}
	return out, back
}

// pass lets d of local time go by on both clocks.
func (w *world) pass(d time.Duration) {
	w.local += d
	w.server += float64(d) * (1 + w.ppm/1e6)
}

// time is Redis's true wall clock in ns since the epoch.
func (w *world) time() time.Duration {
	return epochUS*us + w.moved + time.Duration(math.Floor(w.server))
}

// offset is what the estimator is to find.
func (w *world) offset() time.Duration { return w.time() - w.local }

func (w *world) look() clock.Sample {
	out, back := w.path(w.rng)
	sent := w.local
	w.pass(out)
	read := w.time() / us // Redis cuts, it does not round
	w.pass(back)
	return clock.Sample{Sent: sent, Received: w.local, ServerUS: int64(read)}
}

// rest lets d go by, and the drift wander.
func (w *world) rest(d time.Duration) {
	w.pass(d)
	w.ppm = max(w.mean-500, min(w.mean+500, w.ppm+w.wander*(2*w.rng.Float64()-1)))
}

type scenario struct {
	name   string
	ppm    float64
	wander float64
	path   path
	loss   float64         // share of samples that never come
	steps  []time.Duration // one of them now and then; none: the clock never moves
	// within is the uncertainty that all samples but the first few must reach:
	// promises kept by claiming nothing would be worth nothing.
	within time.Duration
}

// Large steps are beyond any uncertainty of their world, so each must be found by
// the first sample behind it.
func scenarios() []scenario {
	large := []time.Duration{s, -s, time.Hour, -time.Hour}
	return []scenario{
		{name: "lan", path: lan, within: 151 * us},
		{name: "lan, fast clock", path: lan, ppm: 20_000, within: 154 * us},
		{name: "lan, slow clock", path: lan, ppm: -20_000, within: 151 * us},
		{name: "lan, fast and wandering", path: lan, ppm: 19_500, wander: 300, within: 154 * us},
		{name: "lan, wandering", path: lan, wander: 100, within: 151 * us},
		{name: "lan, loss", path: lan, ppm: 300, loss: 0.5, within: 151 * us},
		{name: "slow path", path: slow, ppm: -20_000, within: 201 * ms},
		{name: "asymmetric", path: asymmetric, ppm: -10_000, wander: 50, within: 31 * ms},
		{name: "stalling", path: stalling, ppm: 15_000, loss: 0.1, within: 12 * ms},
		{name: "lan, steps", path: lan, ppm: 12_000, wander: 50, steps: large, within: 151 * us},
		{name: "slow path, steps", path: slow, ppm: 20_000, loss: 0.2, steps: large, within: 201 * ms},
		{name: "asymmetric, steps", path: asymmetric, ppm: -500, steps: large, within: 31 * ms},
		{name: "stalling, steps", path: stalling, loss: 0.3, ppm: -200, steps: large, within: 201 * ms},
	}
}

func eachWorld(t *testing.T, all []scenario, run func(t *testing.T, sc scenario, w *world)) {
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(4) {
				rng := rand.New(rand.NewPCG(seed, 2112))
				run(t, sc, &world{rng: rng, local: between(rng, 0, time.Hour), mean: sc.ppm, ppm: sc.ppm, wander: sc.wander, path: sc.path})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

const samples = 3000

// TestTruthIsWithinUncertainty: before and after every sample, except between a
// step and the sample that finds it; every step is found by the next sample, with
// its size; nothing else is ever called one.
func TestTruthIsWithinUncertainty(t *testing.T) {
	eachWorld(t, scenarios(), func(t *testing.T, sc scenario, w *world) {
		var e clock.Estimator
		var steps, found int
		var step time.Duration // not found yet
		for i := range samples {
			w.rest(time.Second)
			before, known := e.At(w.local)
			if wrong := (before.Offset - w.offset()).Abs(); known && wrong > before.Uncertainty {
				t.Fatalf("before sample %d: off by %v, said to be within %v", i, wrong, before.Uncertainty)
			}
			if len(sc.steps) > 0 && i > 0 && w.rng.IntN(50) == 0 {
				step = sc.steps[w.rng.IntN(len(sc.steps))]
				w.moved += step
				steps++
			}
			sample := w.look()
			for w.rng.Float64() < sc.loss { // lost: look again, later
				w.rest(time.Second)
				sample = w.look()
			}
			before, _ = e.At(w.local)
			got, err := e.Observe(sample)
			if err != nil {
				t.Fatal(err)
			}
			after, _ := e.At(w.local)
			if wrong := (after.Offset - w.offset()).Abs(); wrong > after.Uncertainty {
				t.Fatalf("after sample %d: off by %v, said to be within %v", i, wrong, after.Uncertainty)
			}
			if i > 10 && after.Uncertainty > sc.within {
				t.Fatalf("after sample %d: ± %v, want at most %v", i, after.Uncertainty, sc.within)
			}
			switch {
			case (got != 0) != (step != 0):
				t.Fatalf("sample %d: found a step of %v, there was one of %v", i, got, step)
			case got.Abs() > step.Abs() || (got-step).Abs() > 2*(before.Uncertainty+after.Uncertainty):
				t.Fatalf("sample %d: found a step of %v, there was one of %v (± %v ± %v)",
					i, got, step, before.Uncertainty, after.Uncertainty)
			case got != 0:
				found++
			}
			step = 0
		}
		if found != steps || len(sc.steps) > 0 && steps < samples/100 {
			t.Fatalf("%d steps found of %d, want them all, and some", found, steps)
		}
	})
}

// TestErrorIsAtMostTheLastRoundTrip: whatever happens to the clock, steps small
// enough to hide in the uncertainty and slews beyond the allowance included, a
// sample sets the error to at most its own round trip (and what drifts in it).
func TestErrorIsAtMostTheLastRoundTrip(t *testing.T) {
	small := []time.Duration{100 * us, -100 * us, ms, -ms, 9 * ms, -9 * ms, 50 * ms, -50 * ms, s, -time.Hour}
	all := scenarios()
	for i := range all {
		all[i].steps = small
	}
	eachWorld(t, all, func(t *testing.T, sc scenario, w *world) {
		var e clock.Estimator
		for i := range samples {
			w.rest(time.Second)
			if w.rng.IntN(4) == 0 {
				w.moved += sc.steps[w.rng.IntN(len(sc.steps))]
			}
			sample := w.look()
			if _, err := e.Observe(sample); err != nil {
				t.Fatal(err)
			}
			got, _ := e.At(w.local)
			trip := sample.Received - sample.Sent
			most := trip + trip/8 + 2*us // 10 % either way, one tick, rounding
			if wrong := (got.Offset - w.offset()).Abs(); wrong > most {
				t.Fatalf("after sample %d of %v: off by %v", i, trip, wrong)
			}
			if got.Uncertainty > most/2+us {
				t.Fatalf("after sample %d of %v: ± %v, which is worse than the sample alone", i, trip, got.Uncertainty)
			}
		}
	})
}
