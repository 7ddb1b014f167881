package clock

import (
	"math"
	"time"
)

// trendLength is how many samples the drift is measured over: a minute at one a
// second, in which 100 µs of error become a few ppm.
const trendLength = 64

// point is one sample as the trend sees it.
type point struct {
	at     time.Duration
	offset time.Duration
	within time.Duration // the offset is off by at most this; > 0
}

// trend is the course of the last samples' offsets, oldest overwritten first.
type trend struct {
	points [trendLength]point
	next   int // where the next one goes
	length int
}

func (t *trend) add(p point) {
	t.points[t.next] = p
	t.next = (t.next + 1) % trendLength
	t.length = min(t.length+1, trendLength)
}

// slope is the drift in ppm: the line of least squares through the points, each
// weighted by 1/error², so that a slow sample hardly counts. It is 0 while the
// points' errors could tilt the line by as much as known ppm or more.
func (t *trend) slope(known float64) float64 {
	if t.length < 2 {
		return 0
	}
	// Offsets are some 2⁶⁰ ns; float64 keeps their differences, not themselves.
	origin := t.points[0]
	var weights, x, y float64
	each := func(f func(w, x, y, e float64)) {
		for _, p := range t.points[:t.length] {
			e := float64(p.within)
			f(1/(e*e), float64(p.at-origin.at), float64(p.offset-origin.offset), e)
		}
	}
	each(func(w, px, py, _ float64) { weights += w; x += w * px; y += w * py })
	x, y = x/weights, y/weights
	var xx, xy, tilt float64
	each(func(w, px, py, e float64) {
		xx += w * (px - x) * (px - x)
		xy += w * (px - x) * (py - y)
		tilt += w * math.Abs(px-x) * e
	})
	const million = 1e6
	if xx == 0 || tilt/xx*million >= known {
		return 0
	}
	return math.Round(xy/xx*million*1000) / 1000 // further digits mean nothing
}
