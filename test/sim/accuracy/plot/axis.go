package plot

import "math"

// Axis is one direction of a chart.
type Axis struct {
	// Name says what it shows, with its unit.
	Name string
	// Ticks are the places with a line and a label; the axis reaches from the first to
	// the last. There are at least two.
	Ticks []Tick
	// Log spaces by ratio instead of by difference; all places are then above 0.
	Log bool
}

// Tick is a place on an axis.
type Tick struct {
	At    float64
	Label string
}

// place is where a value stands on an axis: 0 at its first tick, 1 at its last.
// Values beyond are at its ends.
func (a *Axis) place(v float64) float64 {
	first, last := a.Ticks[0].At, a.Ticks[len(a.Ticks)-1].At
	if a.Log {
		v, first, last = math.Log(max(v, first)), math.Log(first), math.Log(last)
	}
	return min(1, max(0, (v-first)/(last-first)))
}
