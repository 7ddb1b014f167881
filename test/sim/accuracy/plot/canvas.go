package plot

import (
	"fmt"
	"math"
	"strings"
)

const (
	width  = 760.0
	left   = 76.0 // of the frame that holds what is drawn
	right  = width - 20
	top    = 66.0
	bottom = 56.0 // below the frame, for the axis and its name
)

// style has each series' colour twice: s0 to s3, for the light and for the dark.
// Contrast with its background is at least 4.5 to 1 for all of them.
const style = `<style>
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#24292f}
.title{font-size:15px;font-weight:600}.soft{fill:#57606a}
.back{fill:#ffffff;stroke:#d0d7de}.grid{stroke:#d8dee4}.axis{stroke:#57606a}.mark{stroke:#57606a;stroke-dasharray:6 4}
.line{fill:none;stroke-width:2}
.s0{stroke:#0550ae}.s1{stroke:#bc4c00}.s2{stroke:#116329}.s3{stroke:#8250df}
.f0{fill:#0550ae}.f1{fill:#bc4c00}.f2{fill:#116329}.f3{fill:#8250df}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.soft{fill:#9ea7b3}
.back{fill:#0d1117;stroke:#30363d}.grid{stroke:#2b3138}.axis{stroke:#9ea7b3}.mark{stroke:#9ea7b3}
.s0{stroke:#79c0ff}.s1{stroke:#ffa657}.s2{stroke:#7ee787}.s3{stroke:#d2a8ff}
.f0{fill:#79c0ff}.f1{fill:#ffa657}.f2{fill:#7ee787}.f3{fill:#d2a8ff}
}
</style>
`

// most is how many series can be told apart.
const most = 4

// dashes are of the lines of each series.
var dashes = [most]string{"", "8 4", "2 4", "10 3 2 3"}

type canvas struct {
	strings.Builder
	height float64
}

func newCanvas(title string, height float64) *canvas {
	c := &canvas{height: height}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s" role="img" aria-label="%s">`+"\n",
		at(width), at(height), at(width), at(height), escape(title))
	c.WriteString(style)
	fmt.Fprintf(c, `<rect class="back" x="0.5" y="0.5" width="%s" height="%s" rx="6"/>`+"\n", at(width-1), at(height-1))
	c.text(left, 26, "start", "title", title)
	return c
}

func (c *canvas) end() string {
	c.WriteString("</svg>\n")
	return c.String()
}

// text writes at a point; anchor is start, middle or end.
func (c *canvas) text(x, y float64, anchor, class, text string) {
	fmt.Fprintf(c, `<text x="%s" y="%s" text-anchor="%s" class="%s">%s</text>`+"\n", at(x), at(y), anchor, class, escape(text))
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, `<line x1="%s" y1="%s" x2="%s" y2="%s" class="%s"/>`+"\n", at(x1), at(y1), at(x2), at(y2), class)
}

// marker is a shape of each series' own.
func (c *canvas) marker(series int, x, y float64) {
	const r = 4.5
	switch series % most {
	case 0:
		fmt.Fprintf(c, `<circle cx="%s" cy="%s" r="%s" class="f0"/>`+"\n", at(x), at(y), at(r))
	case 1:
		fmt.Fprintf(c, `<path d="M%s %sh%sv%sh%sz" class="f1"/>`+"\n", at(x-r), at(y-r), at(2*r), at(2*r), at(-2*r))
	case 2:
		fmt.Fprintf(c, `<path d="M%s %sl%s %sh%sz" class="f2"/>`+"\n", at(x), at(y-r-1), at(r+1), at(2*r+1), at(-2*r-2))
	default:
		fmt.Fprintf(c, `<path d="M%s %sl%s %sl%s %sl%s %sz" class="f3"/>`+"\n", at(x), at(y-r-1), at(r+1), at(r+1), at(-r-1), at(r+1), at(-r-1), at(-r-1))
	}
}

// legend names the series in a row below the title.
func (c *canvas) legend(names []string, lines, markers bool) {
	x := left
	for i, name := range names {
		if lines {
			fmt.Fprintf(c, `<path d="M%s 46h28" class="line s%d"%s/>`+"\n", at(x), i, dash(i))
		}
		if markers {
			c.marker(i, x+14, 46)
		}
		c.text(x+34, 50, "start", "soft", name)
		x += 34 + 7.2*float64(len([]rune(name))) + 22
	}
}

func dash(series int) string {
	if dashes[series] == "" {
		return ""
	}
	return fmt.Sprintf(` stroke-dasharray="%s"`, dashes[series])
}

// at is a coordinate, to a tenth of a pixel.
func at(v float64) string {
	text := fmt.Sprintf("%.1f", math.Round(v*10)/10)
	text = strings.TrimSuffix(text, ".0")
	if text == "-0" {
		return "0"
	}
	return text
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}
