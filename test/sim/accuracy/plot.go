package accuracy

import (
	"fmt"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Plot returns an SVG with the worst window and the utilisation of the estimate and of each
// bound, made from the stored figures: one group of bars for each workload at the centre.
func Plot(docs string) (string, error) {
	results, err := stored(docs)
	if err != nil {
		return "", err
	}
	x := newIndex(results)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", plotWidth, 2*panelHeight+legendHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, 2*panelHeight+legendHeight)
	for i, k := range plotted() {
		fmt.Fprintf(&b, `<rect x="%d" y="6" width="10" height="10" fill="%s"/><text x="%d" y="15">%s</text>`+"\n", 60+170*i, k.colour, 74+170*i, k.name)
	}
	c := centre()
	where := fmt.Sprintf("%d regions, RTT %s, W %s", c.Regions, short(c.RTT), short(c.Window))
	panel(&b, legendHeight, "worst window, percent above the limit; "+where, x, 80, func(r Result) float64 { return max(0, percentOf(r.Worst, Limit)) })
	panel(&b, legendHeight+panelHeight, "utilisation, percent of what an all-knowing limiter admits", x, 120, func(r Result) float64 { return percentOf(r.Admitted, r.AllKnowing) })
	b.WriteString("</svg>\n")
	return b.String(), nil
}

const (
	plotWidth    = 780
	panelHeight  = 200
	legendHeight = 24
	groupWidth   = 102
	barWidth     = 20
	plotHeight   = 140 // of a panel's highest bar
)

// kind is one colour of bars.
type kind struct {
	name, colour string
	bound        quota.Overshoot
}

func plotted() []kind {
	return []kind{
		{"estimate", "#c44", 0},
		{"max_overshoot: 10%", "#48c", tenPercent},
		{"max_overshoot: 0%", "#264", quota.Strict},
	}
}

func percentOf(n, of int64) float64 { return 100 * float64(n) / float64(of) }

// panel draws a group of bars for each workload, with the figure above each.
func panel(b *strings.Builder, top int, title string, x index, most float64, figure func(Result) float64) {
	base := top + panelHeight - 24
	fmt.Fprintf(b, `<text x="50" y="%d" font-weight="bold">%s</text>`+"\n", top+14, title)
	fmt.Fprintf(b, `<line x1="50" y1="%d" x2="%d" y2="%d" stroke="#888"/>`+"\n", base, plotWidth-10, base)
	for g, w := range Workloads() {
		left := 56 + groupWidth*g
		for i, k := range plotted() {
			c := centre()
			c.Workload, c.MaxOvershoot = w, k.bound
			r, ok := x[c.key()]
			if !ok {
				continue
			}
			v := figure(r)
			h := int(v / most * plotHeight)
			fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, left+(barWidth+2)*i, base-h, barWidth, h, k.colour)
			fmt.Fprintf(b, `<text x="%d" y="%d" font-size="8" text-anchor="middle">%.1f</text>`+"\n", left+(barWidth+2)*i+barWidth/2, base-h-2, v)
		}
		fmt.Fprintf(b, `<text x="%d" y="%d" font-size="9">%s</text>`+"\n", left, base+14, w.Name)
	}
}
