package accuracy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

const (
	// Limit is L in every cell. Multiples of demand and delays are what matter; how
	// many units a limit has does so only when a region's part is but a few.
	Limit = 600
	// Seed is what the table is made with.
	Seed = 1
)

// Cell is one point of the grid.
type Cell struct {
	Workload Workload
	Regions  int
	RTT      time.Duration // between any two regions
	Window   time.Duration
	// MaxOvershoot bounds what all regions admit; 0 for the estimate alone.
	MaxOvershoot quota.Overshoot
	// Event is what happens on the way.
	Event Event
}

// Event is what happens to the first region eventAt windows after the first check.
type Event string

const (
	// Restart kills its process and starts another: that knows only what peers send it.
	Restart Event = "restart"
	// Cut isolates it for a quarter of a window: what it admitted meanwhile arrives at once.
	Cut     Event = "cut"
	eventAt       = 1.35
)

// String names a cell as progress and tests do.
func (c Cell) String() string {
	name := fmt.Sprintf("%s, %d regions, RTT %v, W %v", c.Workload.Name, c.Regions, c.RTT, c.Window)
	if c.MaxOvershoot != 0 {
		name += fmt.Sprintf(", max_overshoot %v", c.MaxOvershoot)
	}
	if c.Event != "" {
		name += ", " + string(c.Event)
	}
	return name
}

// key is what makes a cell the same as another.
func (c Cell) key() string { return c.String() }

// Grid is every value with every other, in the order of measuring: the fewest regions
// first, since they take least time, and what the plots need before the rest. Of thirty
// regions, which take longest, it has one workload and window, and with a bound only
// what boundCells has.
func Grid() []Cell {
	plotted := centre().Workload
	rest := slices.DeleteFunc(Workloads(), func(w Workload) bool { return w.Name == plotted.Name })
	var cells []Cell
	for _, regions := range allRegions() {
		for _, w := range append([]Workload{plotted}, rest...) {
			for _, window := range allWindows() {
				for _, rtt := range allRTTs() {
					c := Cell{Workload: w, Regions: regions, RTT: rtt, Window: window}
					if !c.leftOut() {
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return slices.Concat(cells, eventCells(), boundCells())
}

// eventCells have an event: all steady workloads at the centre, and with its window shortened.
func eventCells() []Cell {
	var cells []Cell
	c := centre()
	for _, c.Window = range []time.Duration{time.Minute, 10 * time.Second} {
		for _, c.Workload = range Workloads() {
			if strings.HasPrefix(c.Workload.Name, "steady") {
				for _, c.Event = range []Event{Restart, Cut} {
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}

// leftOut reports whether an estimated cell is none of Grid.
func (c Cell) leftOut() bool {
	return c.Regions > 10 && (c.Workload.Name != centre().Workload.Name || c.Window != centre().Window)
}

// tenPercent is max_overshoot: 10%.
const tenPercent = quota.Strict + 10*100

func allBounds() []quota.Overshoot { return []quota.Overshoot{tenPercent, quota.Strict} }

// boundCells have a bound: all workloads and windows for the centre's regions and delay,
// and its window for other delays and for ten regions. Thirty regions are left out, and
// for other windows other delays and numbers of regions: they would take longer than all
// the rest.
func boundCells() []Cell {
	var cells []Cell
	add := func(c Cell) {
		for _, w := range Workloads() {
			for _, c.MaxOvershoot = range allBounds() {
				c.Workload = w
				cells = append(cells, c)
			}
		}
	}
	for _, window := range allWindows() {
		c := centre()
		c.Window = window
		add(c)
	}
	for _, rtt := range allRTTs() {
		if c := centre(); rtt != c.RTT {
			c.RTT = rtt
			add(c)
		}
	}
	c := centre()
	c.Regions = 10
	add(c)
	return cells
}

func allRegions() []int { return []int{2, 3, 10, 30} }

func allRTTs() []time.Duration {
	return []time.Duration{20 * time.Millisecond, 80 * time.Millisecond, 160 * time.Millisecond}
}

func allWindows() []time.Duration {
	return []time.Duration{time.Minute, 10 * time.Second, time.Second}
}

// centre is the cell around which Focus looks.
func centre() Cell {
	return Cell{Workload: workload("steady 10×"), Regions: 3, RTT: 80 * time.Millisecond, Window: time.Minute}
}

func workload(name string) Workload {
	for _, w := range Workloads() {
		if w.Name == name {
			return w
		}
	}
	panic("accuracy: no workload is called " + name)
}

// Focus is the part of Grid that shows most: all workloads at the centre, and then every
// other value of each factor alone.
func Focus() []Cell {
	var cells []Cell
	for _, w := range Workloads() {
		c := centre()
		c.Workload = w
		cells = append(cells, c)
	}
	for _, rtt := range allRTTs() {
		c := centre()
		if rtt != c.RTT {
			c.RTT = rtt
			cells = append(cells, c)
		}
	}
	for _, regions := range allRegions() {
		c := centre()
		if regions != c.Regions {
			c.Regions = regions
			cells = append(cells, c)
		}
	}
	for _, window := range allWindows() {
		c := centre()
		if window != c.Window {
			c.Window = window
			cells = append(cells, c)
		}
	}
	return cells
}

// runs is how many worlds a cell is measured in. Their first checks come a quarter
// and three quarters into a window of the store clocks: how a bucket fades depends on
// where in it the load began, and with demand far above the limit it stays so.
const runs = 2

// startsAt is where in a window a run begins, as a part of it.
func startsAt(run int) float64 { return (float64(run) + 0.5) / runs }

// lasts is how long arrivals come in each run. Short windows are simulated for more
// of their lengths, since they are the cheaper ones.
func (c Cell) lasts() time.Duration {
	switch {
	case c.Window < 5*time.Second:
		return 12 * c.Window
	case c.Window < 30*time.Second:
		return 4 * c.Window
	default:
		return c.Window * 27 / 10
	}
}

// limit is that of the cell.
func (c Cell) limit() quota.Limit {
	return quota.Limit{Name: "all", Units: Limit, Window: c.Window, Scope: quota.ScopeGlobal, MaxOvershoot: c.MaxOvershoot}
}
