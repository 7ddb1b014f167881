package accuracy

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"
)

// Workload is a way to ask for a limit: how much in all, and where. Arrivals are
// Poisson, each of one unit.
type Workload struct {
	// Name is how tables call it.
	Name string
	// peak is the most that demand ever returns.
	peak float64
	// demand is how much is asked for in all regions together, as multiples of L per
	// W; at is how many windows have passed since the first arrival could be.
	demand func(at float64) float64
	// hot is the region that gets hotShare of the demand, or none.
	hot func(at float64, regions int) int
}

const (
	// hotShare is the hot region's part of the demand; the others share the rest evenly.
	hotShare = 0.7
	// everywhere is no hot region.
	everywhere = -1
	// moveEvery is how long the hot region stays, in windows. It is no round figure, so
	// that moves meet every phase of the buckets.
	moveEvery = 47.0 / 60
	// A flash crowd ends every crowdEvery windows, having lasted crowdLasts of one, and
	// asked for four limits; before it there is little.
	crowdEvery = 1.3
	crowdLasts = 0.2
	crowdQuiet = 0.3
	crowdPeak  = 20
)

// Workloads returns those of the table, in its order.
func Workloads() []Workload {
	return []Workload{
		steady("steady 0.8×", 0.8),
		steady("steady 1.2×", 1.2),
		steady("steady 3×", 3),
		steady("steady 10×", 10),
		{Name: "hot region 10×", peak: 10, demand: always(10), hot: func(float64, int) int { return 0 }},
		{Name: "flash crowd 20×", peak: crowdPeak, demand: crowd, hot: nowhere},
		{Name: "moving hot region 10×", peak: 10, demand: always(10), hot: func(at float64, regions int) int { return int(at/moveEvery) % regions }},
	}
}

func steady(name string, times float64) Workload {
	return Workload{Name: name, peak: times, demand: always(times), hot: nowhere}
}

func always(times float64) func(float64) float64 { return func(float64) float64 { return times } }

func nowhere(float64, int) int { return everywhere }

// crowd is quiet but for the last crowdLasts of each crowdEvery windows.
func crowd(at float64) float64 {
	if math.Mod(at, crowdEvery) >= crowdEvery-crowdLasts {
		return crowdPeak
	}
	return crowdQuiet
}

// Arrival is one check.
type Arrival struct {
	US     int64 // since the first arrival could be
	Region int
}

// arrivals gives the checks of a workload one by one, in order.
type arrivals struct {
	w       Workload
	dice    *rand.Rand
	regions int
	window  float64 // µs
	meanUS  float64 // between two at the peak
	us      int64
}

// newArrivals seeds them with all that they depend on, and with nothing else: see
// the package's comment.
func newArrivals(w Workload, seed uint64, regions int, window time.Duration) *arrivals {
	width := float64(window.Microseconds())
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.Name)) // a hash takes everything
	return &arrivals{
		w: w, regions: regions, window: width,
		dice:   rand.New(rand.NewPCG(seed, h.Sum64()^uint64(regions)<<48^uint64(window))),
		meanUS: width / (w.peak * float64(Limit)),
	}
}

// next draws at the peak's rate and keeps as many as the demand then is.
func (a *arrivals) next() Arrival {
	for {
		a.us += int64(math.Round(-math.Log1p(-a.dice.Float64()) * a.meanUS))
		at := float64(a.us) / a.window
		if a.dice.Float64()*a.w.peak < a.w.demand(at) {
			return Arrival{US: a.us, Region: a.region(a.w.hot(at, a.regions))}
		}
	}
}

func (a *arrivals) region(hot int) int {
	if hot == everywhere || a.regions == 1 {
		return a.dice.IntN(a.regions)
	}
	if a.dice.Float64() < hotShare {
		return hot
	}
	return (hot + 1 + a.dice.IntN(a.regions-1)) % a.regions
}
