package loansim

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Demand is a shape of demand: rates by region and time, in units of what each region may use if all use the same.
type Demand struct {
	Name string
	rate func(o *Options, i int, t float64) float64 // t in windows
	peak float64                                    // of rate, times R where all is asked in one region
}

func flat(name string, m float64) Demand {
	return Demand{name, func(*Options, int, float64) float64 { return m }, m}
}

// Demands are the shapes of the table.
var Demands = []Demand{
	flat("0.8x", 0.8), flat("1.2x", 1.2), flat("3x", 3), flat("10x", 10),
	{"one hot", func(o *Options, i int, t float64) float64 {
		if i == 0 {
			return 3 * float64(o.Regions)
		}
		return 0.02
	}, 0},
	{"hot moves", func(o *Options, i int, t float64) float64 {
		if int(t/0.7)%o.Regions == i {
			return 2 * float64(o.Regions)
		}
		return 0.1
	}, 0},
	{"flash", func(o *Options, i int, t float64) float64 {
		if ph := math.Mod(t, 2); ph > 1 && ph < 1.1 {
			return 100
		}
		return 0.1
	}, 100},
	{"flash in one", func(o *Options, i int, t float64) float64 {
		if ph := math.Mod(t, 2); int(t/2)%o.Regions == i && ph > 1 && ph < 1.1 {
			return 100
		}
		return 0.1
	}, 100},
}

// Result of a World under demand.
type Result struct {
	Utilisation float64 // of what an all-knowing limiter admits, in percent
	Over        int64   // above the bound, in the worst window
	Messages    float64 // a second, all regions
	Hours       float64 // of simulated time, times regions
}

// Play has a world meet demand for some windows after the first.
func Play(o Options, d Demand, windows int) Result {
	w := NewWorld(o)
	all := Oracle{window: o.Window, bound: o.Bound}
	warm := max(o.Window, 2_000_000)
	var got, could int64
	unit := float64(o.Bound) / float64(o.Window) / float64(o.Regions)
	peak := max(d.peak, 3*float64(o.Regions)) * unit
	next, rngs := make([]float64, o.Regions), make([]*rand.Rand, o.Regions)
	for i := range rngs {
		rngs[i] = rand.New(rand.NewPCG(uint64(o.Seed), uint64(100+i)))
	}
	end := warm + int64(windows)*o.Window
	for w.now < end {
		w.Step()
		for i, rng := range rngs {
			for next[i] < float64(w.now) {
				if next[i] > 0 && rng.Float64() < d.rate(&o, i, float64(w.now)/float64(o.Window))*unit/peak {
					yes, best := w.Check(i, 1), all.fits(w.now, 1)
					if w.now > warm {
						got, could = got+int64(bit(yes)), could+int64(bit(best))
					}
				}
				next[i] += rng.ExpFloat64() / peak
			}
		}
	}
	s := float64(w.now) / 1e6
	return Result{100 * float64(got) / float64(max(1, could)), w.Oracle.Worst, float64(w.Wants+w.Grants+w.Returns) / s, s / 3600 * float64(o.Regions)}
}

// Fault plays one world of random faults and random demand, and returns it.
func Fault(seed int64, length int64) *World {
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	pick := func(v ...int64) int64 { return v[rng.IntN(len(v))] }
	o := Options{
		Seed: seed, Regions: int(pick(2, 3, 4, 5)), Bound: pick(3, 10, 60, 300), Window: pick(1, 3, 10) * 1_000_000,
		Delay: pick(5, 60, 150) * ms, Loss: 0.05, Repeat: 0.05, Late: 0.02, Faults: true,
	}
	w := NewWorld(o)
	rates := make([]float64, o.Regions)
	for w.now < length {
		w.Step()
		for i := range rates {
			if rng.Float64() < float64(ms)/float64(2*o.Window) {
				rates[i] = float64(pick(0, 0, 5, 50, 100, 300)) / 100 * float64(o.Bound) / float64(o.Window)
			}
			for n := rates[i] * ms; rng.Float64() < n; n-- {
				cost := int64(1)
				if rng.Float64() < 0.1 {
					cost += rng.Int64N(4)
				}
				w.Check(i, cost)
			}
		}
	}
	return w
}

// Hours is how much was played, times regions.
func (w *World) Hours() float64 { return float64(w.now) / 3.6e9 * float64(w.Regions) }

// String is one line about a world.
func (w *World) String() string {
	return fmt.Sprintf("seed %d: %d regions, %d units in %d s, delay %d ms: worst window %+d, %d above; %d wants, %d grants, %d returns, %d stores lost, %d rolled back, %d steps, %d freezes",
		w.Seed, w.Regions, w.Bound, w.Window/1_000_000, w.Delay/ms, w.Oracle.Worst, w.Oracle.Windows, w.Wants, w.Grants, w.Returns, w.Lost, w.Rolled, w.Stepped, w.Frozen)
}

// Reclaim says how long a region that begins to use its share waits for it, while another uses twice the limit.
func Reclaim(units, window int64) string {
	w := NewWorld(Options{Seed: 3, Regions: 3, Bound: units, Window: window, Delay: 120 * ms})
	rng := rand.New(rand.NewPCG(3, 3))
	rate := float64(units) / float64(window)
	draw := func(i int, rate float64) (asked, got int64) {
		for n := rate * ms; n > 0; n-- {
			if rng.Float64() < n {
				asked, got = asked+1, got+int64(bit(w.Check(i, 1)))
			}
		}
		return asked, got
	}
	for w.now < 5*window {
		w.Step()
		draw(0, 2*rate)
	}
	begin, first := w.now, int64(0)
	var asked, got [2]int64
	for w.now < begin+2*window {
		w.Step()
		draw(0, 2*rate)
		a, g := draw(1, rate/3)
		k := bit(w.now > begin+window)
		if asked[k], got[k] = asked[k]+a, got[k]+g; g > 0 && first == 0 {
			first = w.now
		}
	}
	if first == 0 {
		return "no admission in two windows"
	}
	return fmt.Sprintf("first admission after %d ms; of what it asks for, which is its share, %d %% in the first window, %d %% in the second",
		(first-begin)/ms, 100*got[0]/max(1, asked[0]), 100*got[1]/max(1, asked[1]))
}
