package plot

import (
	"fmt"
	"strings"
)

// Lines is a chart of one or more series over an axis.
type Lines struct {
	Title string
	X, Y  Axis
	// Series has at most four.
	Series []Series
	// Mark is a value of Y with a line of its own and a name; without a name there is none.
	Mark     float64
	MarkName string
	// Bare leaves out the markers, for series of very many points.
	Bare bool
}

// Series is one line of a chart.
type Series struct {
	Name   string
	Points []Point
}

// Point is one value of a series.
type Point struct{ X, Y float64 }

// linesHeight is that of a whole chart of lines.
const linesHeight = 380.0

// SVG draws the chart.
func (l *Lines) SVG() string {
	c := newCanvas(l.Title, linesHeight)
	var names []string
	for _, s := range l.Series {
		names = append(names, s.Name)
	}
	c.legend(names, true, !l.Bare)
	l.axes(c)
	if l.MarkName != "" {
		y := l.y(l.Mark)
		c.line(left, y, right, y, "mark")
		c.text(right, y+17, "end", "soft", l.MarkName)
	}
	for i, s := range l.Series {
		l.draw(c, i, s.Points)
	}
	return c.end()
}

func (l *Lines) x(v float64) float64 { return left + l.X.place(v)*(right-left) }

func (l *Lines) y(v float64) float64 {
	low := linesHeight - bottom
	return low - l.Y.place(v)*(low-top)
}

func (l *Lines) axes(c *canvas) {
	low := linesHeight - bottom
	for _, t := range l.Y.Ticks {
		c.line(left, l.y(t.At), right, l.y(t.At), "grid")
		c.text(left-8, l.y(t.At)+4.5, "end", "soft", t.Label)
	}
	for _, t := range l.X.Ticks {
		c.line(l.x(t.At), low, l.x(t.At), low+5, "axis")
		c.text(l.x(t.At), low+20, "middle", "soft", t.Label)
	}
	c.line(left, low, right, low, "axis")
	c.text((left+right)/2, linesHeight-14, "middle", "", l.X.Name)
	middle := (low + top) / 2
	fmt.Fprintf(c, `<text x="18" y="%s" text-anchor="middle" transform="rotate(-90 18 %s)">%s</text>`+"\n", at(middle), at(middle), escape(l.Y.Name))
}

func (l *Lines) draw(c *canvas, series int, points []Point) {
	var path strings.Builder
	for i, p := range points {
		step := "L"
		if i == 0 {
			step = "M"
		}
		path.WriteString(step + at(l.x(p.X)) + " " + at(l.y(p.Y)))
	}
	fmt.Fprintf(c, `<path d="%s" class="line s%d"%s/>`+"\n", path.String(), series, dash(series))
	if l.Bare {
		return
	}
	for _, p := range points {
		c.marker(series, l.x(p.X), l.y(p.Y))
	}
}
