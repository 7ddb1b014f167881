package accuracy

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/regiond/regiond/quota"
)

// table is rows below a header, each as long as the header.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(row ...string) { t.rows = append(t.rows, row) }

// markdown writes the table as documents have it.
func (t *table) markdown() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(t.header)
	b.WriteString(strings.Repeat("|---", len(t.header)) + "|\n")
	for _, row := range t.rows {
		line(row)
	}
	return b.String()
}

// text writes the table as terminals have it.
func (t *table) text(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")) // Flush returns the error too
	}
	return w.Flush()
}

// index finds results by what their cells are.
type index map[string]Result

func newIndex(results []Result) index {
	x := index{}
	for _, r := range results {
		x[r.key()] = r
	}
	return x
}

// find fails on a cell that was not measured.
func (x index) find(c Cell) (Result, error) {
	r, ok := x[c.key()]
	if !ok {
		return r, fmt.Errorf("no figures for %v", c)
	}
	return r, nil
}

// focusTable has every figure of the cells of Focus.
func focusTable(x index) (*table, error) {
	t := &table{header: []string{
		"demand", "regions", "RTT", "W", "worst", "transit", "99 % of time", "mean", "aligned", "utilisation", "transit", "needless",
	}}
	for _, c := range Focus() {
		r, err := x.find(c)
		if err != nil {
			return nil, err
		}
		t.add(c.Workload.Name, fmt.Sprint(c.Regions), short(c.RTT), short(c.Window),
			signed(r.Worst), signed(r.Reference.Worst), signed(r.P99), fmt.Sprintf("+%.2f %%", 100*r.Mean/Limit), signed(r.Aligned),
			r.utilisation(), r.reference(), r.needless())
	}
	return t, nil
}

// byEvent has what counts of the cells with an event.
func byEvent(x index) *table {
	t := &table{header: []string{"event", "demand", "W", "worst", "transit", "utilisation", "transit", "needless"}}
	for _, c := range eventCells() {
		r := x[c.key()]
		t.add(string(c.Event), c.Workload.Name, short(c.Window), signed(r.Worst), signed(r.Reference.Worst), r.utilisation(), r.reference(), r.needless())
	}
	return t
}

// busy are the workloads that ask for more than the limit: the others cannot go over.
func busy() []Workload {
	var ws []Workload
	for _, w := range Workloads() {
		if w.peak > 1 {
			ws = append(ws, w)
		}
	}
	return ws
}

// byGeography has one figure for all regions and delays at the centre's window.
func byGeography(x index, figure func(Result) string) *table {
	t := &table{header: append([]string{"regions", "RTT"}, names(busy())...)}
	for _, regions := range allRegions() {
		for _, rtt := range allRTTs() {
			c := centre()
			c.Regions, c.RTT = regions, rtt
			t.add(append([]string{fmt.Sprint(regions), short(rtt)}, byDemand(x, c, figure)...)...)
		}
	}
	return t
}

// byWindow is the same for all windows and delays with the centre's regions.
func byWindow(x index, figure func(Result) string) *table {
	t := &table{header: append([]string{"W", "RTT"}, names(busy())...)}
	for _, window := range allWindows() {
		for _, rtt := range allRTTs() {
			c := centre()
			c.Window, c.RTT = window, rtt
			t.add(append([]string{short(window), short(rtt)}, byDemand(x, c, figure)...)...)
		}
	}
	return t
}

// byBound compares the estimate with bounds, for all cells of boundCells.
func byBound(x index) *table {
	t := &table{header: []string{"regions", "RTT", "W", "demand", "worst: estimate · 10 % · strict", "utilisation", "needless"}}
	for _, c := range boundCells() {
		if c.MaxOvershoot != quota.Strict {
			continue
		}
		var worst, used, needless []string
		for _, c.MaxOvershoot = range append([]quota.Overshoot{0}, allBounds()...) {
			r := x[c.key()]
			worst, used = append(worst, bare(r.Worst)), append(used, strings.TrimSuffix(r.utilisation(), " %"))
			needless = append(needless, strings.TrimSuffix(r.needless(), " %"))
		}
		join := func(all []string) string { return strings.Join(all, " · ") }
		t.add(fmt.Sprint(c.Regions), short(c.RTT), short(c.Window), c.Workload.Name, join(worst), join(used), join(needless))
	}
	return t
}

// byDemand is a figure of each busy workload, nothing where a cell is left out.
func byDemand(x index, c Cell, figure func(Result) string) []string {
	var row []string
	for _, c.Workload = range busy() {
		text := ""
		if !c.leftOut() {
			text = figure(x[c.key()])
		}
		row = append(row, text)
	}
	return row
}

func names(ws []Workload) []string {
	var all []string
	for _, w := range ws {
		all = append(all, w.Name)
	}
	return all
}

// signed is units as percent of the limit, to a tenth.
func signed(units int64) string {
	if units < 0 {
		return fmt.Sprintf("−%.1f %%", 100*float64(-units)/Limit)
	}
	return fmt.Sprintf("+%.1f %%", 100*float64(units)/Limit)
}

// bare is the same without the sign of percent, for tables full of it.
func bare(units int64) string { return strings.TrimSuffix(signed(units), " %") }

func (r Result) utilisation() string {
	return fmt.Sprintf("%.1f %%", percentOf(r.Admitted, r.AllKnowing))
}

// reference is the utilisation of the reference.
func (r Result) reference() string {
	return fmt.Sprintf("%.1f %%", percentOf(r.Reference.Admitted, r.AllKnowing))
}

// needless is denials that no limiter should have made, of all checks.
func (r Result) needless() string {
	if r.Needless == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3f %%", 100*float64(r.Needless)/float64(r.Asked))
}

// short is a time as people write it.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%d s", d/time.Second)
}
