package accuracy

import (
	"fmt"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/sim"
)

const (
	// jitter is the most that chance adds to a message's way, as a part of the way.
	jitter = 0.1
	// apart is how far the store clocks of neighbours in the topology differ, about as
	// much as clocks do that are kept by NTP across continents.
	apart = 7 * time.Millisecond
	// settled is how long regions have to find each other before the first check.
	settled = 5 * time.Second
	tenant  = "acme"
)

// simulated makes the world of a run of a cell, 0 to runs−1, in which all regions see each other,
// nothing was used yet and checks may begin: one process in each region, no faults but the cell's
// event, the way between any two the same. In a perfect one estimates fade as the units that they
// count leave the window.
func simulated(c Cell, run int, seed uint64, perfect bool) (*sim.World, error) {
	o := c.options(seed, c.skew(run))
	o.Perfect = perfect
	w := sim.New(o)
	w.RunUntil(settled)
	for i := range c.Regions {
		if a := w.Check(i, "nobody", 1); a.Decision.Mode != quota.ModeGlobal {
			return nil, fmt.Errorf("region %d is in mode %v %v after its start: %v", i, a.Decision.Mode, settled, a.Decision.Reason)
		}
	}
	c.schedule(w)
	return w, nil
}

// schedule has the cell's event happen.
func (c Cell) schedule(w *sim.World) {
	at := settled + time.Duration(eventAt*float64(c.Window))
	switch c.Event {
	case Restart:
		w.At(at, func() { w.Restart(0) })
	case Cut:
		w.At(at, func() { w.Isolate(0, true) })
		w.At(at+c.Window/4, func() { w.Isolate(0, false) })
	}
}

// skew is by how much all store clocks are set so that a run's first check can come
// at its moment in a window.
func (c Cell) skew(run int) time.Duration {
	alone := c
	alone.Regions = 1 // all store clocks begin alike
	w := sim.New(alone.options(0, 0))
	window := c.Window.Microseconds()
	at := (w.StoreUS(0) + settled.Microseconds()) % window
	return time.Duration((int64(float64(window)*startsAt(run))+window-at)%window) * time.Microsecond
}

func (c Cell) options(seed uint64, skew time.Duration) sim.Options {
	way := c.RTT / 2
	o := sim.Options{
		Seed: seed, Delay: way, Jitter: time.Duration(jitter * float64(way)),
		Policies: []quota.Policy{{Name: "standard", EnforcePercent: -1, Limits: []quota.Limit{
			c.limit(),
		}}},
	}
	for i := range c.Regions {
		o.Regions = append(o.Regions, sim.RegionOptions{Name: fmt.Sprintf("r%02d", i), Skew: skew + time.Duration(i)*apart})
	}
	return o
}
