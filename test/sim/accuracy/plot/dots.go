package plot

import "slices"

// Dots is a chart of names, each with one value of every series beside it.
type Dots struct {
	Title string
	X     Axis
	// Series are the names of at most four.
	Series []string
	Rows   []Row
}

// Row is one name, and its values in the order of the series.
type Row struct {
	Name   string
	Values []float64
}

const (
	rowHeight = 30.0
	// nameWidth is room for the names; the frame begins right of it.
	nameWidth = 108.0
)

// SVG draws the chart.
func (d *Dots) SVG() string {
	low := top + rowHeight*float64(len(d.Rows))
	c := newCanvas(d.Title, low+bottom)
	c.legend(d.Series, false, true)
	for _, t := range d.X.Ticks {
		c.line(d.x(t.At), top, d.x(t.At), low, "grid")
		c.text(d.x(t.At), low+20, "middle", "soft", t.Label)
	}
	for i, r := range d.Rows {
		y := top + rowHeight*(float64(i)+0.5)
		c.text(left+nameWidth-14, y+4.5, "end", "", r.Name)
		c.line(d.x(slices.Min(r.Values)), y, d.x(slices.Max(r.Values)), y, "axis")
		for series, v := range r.Values {
			c.marker(series, d.x(v), y)
		}
	}
	c.line(left+nameWidth, low, right, low, "axis")
	c.text((left+nameWidth+right)/2, low+bottom-14, "middle", "", d.X.Name)
	return c.end()
}

func (d *Dots) x(v float64) float64 {
	return left + nameWidth + d.X.place(v)*(right-left-nameWidth)
}
