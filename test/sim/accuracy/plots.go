package accuracy

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/regiond/regiond/test/sim/accuracy/plot"
)

// plots draws the pictures of the page; the keys are names of files.
func plots(x index, moments []moment) (map[string]string, error) {
	files := map[string]string{"timeline.svg": drawTimeline(moments)}
	for name, draw := range map[string]func(index) (string, error){
		"workloads.svg": drawWorkloads, "windows.svg": drawWindows, "regions.svg": drawRegions,
	} {
		svg, err := draw(x)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = svg
	}
	return files, nil
}

// percent is units as a part of the limit.
func percent(units int64) float64 { return 100 * float64(units) / Limit }

// linear is ticks from one value to another, each a step from the last, with a
// unit behind.
func linear(from, to, step float64, unit string) []plot.Tick {
	var ticks []plot.Tick
	for v := from; v <= to+step/2; v += step {
		ticks = append(ticks, plot.Tick{At: v, Label: fmt.Sprintf("%g%s", v, unit)})
	}
	return ticks
}

// drawWorkloads is how far over each workload goes at the centre.
func drawWorkloads(x index) (string, error) {
	d := plot.Dots{
		Title:  "Worst window over the limit, by how it is asked for",
		Series: []string{"two buckets (default)", "global_buckets: 11"},
	}
	most := 0.0
	for _, w := range busy() {
		row := plot.Row{Name: w.Name}
		for _, buckets := range allBuckets() {
			c := centre()
			c.Workload, c.Buckets = w, buckets
			r, err := x.find(c)
			if err != nil {
				return "", err
			}
			over := percent(max(0, r.Worst))
			row.Values, most = append(row.Values, over), max(most, over)
		}
		d.Rows = append(d.Rows, row)
	}
	d.X = plot.Axis{Name: "over the limit, % of L (3 regions, RTT 80 ms, W = 60 s)", Ticks: upTo(most)}
	return d.SVG(), nil
}

// upTo is ticks from 0 to what is not less than a value.
func upTo(most float64) []plot.Tick {
	step := 1.0
	for _, s := range []float64{1, 2, 5, 10, 20, 50, 100, 200, 500} {
		if step = s; most <= 8*s {
			break
		}
	}
	return linear(0, step*math.Ceil(max(most, step)/step), step, " %")
}

// drawWindows is why a global limit wants a window that is long beside the delay.
func drawWindows(x index) (string, error) {
	l := plot.Lines{
		Title: "Short windows cannot be held globally: worst window at ten times the demand",
		X:     plot.Axis{Name: "window W (3 regions, global_buckets: 11)", Log: true},
		Y:     plot.Axis{Name: "over the limit, % of L", Log: true, Ticks: percentTicks(0.3, 1, 3, 10, 30, 100, 300)},
	}
	for _, w := range slices.Backward(allWindows()) {
		l.X.Ticks = append(l.X.Ticks, plot.Tick{At: w.Seconds(), Label: short(w)})
	}
	for _, rtt := range allRTTs() {
		s := plot.Series{Name: "RTT " + short(rtt)}
		for _, window := range allWindows() {
			c := centre()
			c.RTT, c.Window, c.Buckets = rtt, window, 11
			r, err := x.find(c)
			if err != nil {
				return "", err
			}
			s.Points = append(s.Points, plot.Point{X: window.Seconds(), Y: percent(r.Worst)})
		}
		l.Series = append(l.Series, s)
	}
	return l.SVG(), nil
}

func percentTicks(values ...float64) []plot.Tick {
	var ticks []plot.Tick
	for _, v := range values {
		ticks = append(ticks, plot.Tick{At: v, Label: fmt.Sprintf("%g %%", v)})
	}
	return ticks
}

// drawRegions is what more regions cost.
func drawRegions(x index) (string, error) {
	l := plot.Lines{
		Title: "More regions: worst window at ten times the demand",
		X:     plot.Axis{Name: "regions (W = 60 s, global_buckets: 11)", Log: true},
		Y:     plot.Axis{Name: "over the limit, % of L"},
	}
	for _, n := range allRegions() {
		l.X.Ticks = append(l.X.Ticks, plot.Tick{At: float64(n), Label: fmt.Sprint(n)})
	}
	most := 0.0
	for _, rtt := range allRTTs() {
		s := plot.Series{Name: "RTT " + short(rtt)}
		for _, n := range allRegions() {
			c := centre()
			c.RTT, c.Regions, c.Buckets = rtt, n, 11
			r, err := x.find(c)
			if err != nil {
				return "", err
			}
			s.Points = append(s.Points, plot.Point{X: float64(n), Y: percent(max(0, r.Worst))})
			most = max(most, percent(r.Worst))
		}
		l.Series = append(l.Series, s)
	}
	l.Y.Ticks = upTo(most)
	return l.SVG(), nil
}

// drawTimeline is how two buckets forget when a hot region moves.
func drawTimeline(moments []moment) string {
	const step = 20 * time.Second // of the axis of time, which ends with a whole one
	l := plot.Lines{
		Title: "Used in the last minute: ten times the demand, a hot region that moves",
		X:     plot.Axis{Name: "time since the load began (3 regions, RTT 80 ms, W = 60 s)"},
		Y:     plot.Axis{Name: "used, % of L"},
		Mark:  100, MarkName: "the limit", Bare: true,
		Series: []plot.Series{{Name: "two buckets"}, {Name: "global_buckets: 11"}, {Name: "all-knowing"}},
	}
	last := moments[len(moments)-1].at.Truncate(step)
	most := 0.0
	for _, m := range moments {
		if m.at > last {
			break
		}
		for i, units := range m.units {
			l.Series[i].Points = append(l.Series[i].Points, plot.Point{X: m.at.Seconds(), Y: percent(units)})
			most = max(most, percent(units))
		}
	}
	l.X.Ticks = linear(0, last.Seconds(), step.Seconds(), " s")
	l.Y.Ticks = linear(0, 20*math.Ceil(most/20), 20, " %")
	return l.SVG()
}
