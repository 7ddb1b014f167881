package oracle

import (
	"cmp"
	"slices"
)

// Admission is units that a store admitted, at a time of its own clock.
type Admission struct {
	US   int64 // µs since the epoch
	Cost int64 // units
}

// Span is a window (End−W, End] and the units admitted in it.
type Span struct {
	End   int64 // µs
	Units int64
}

// Window finds the half-open window (t−W, t] with the most units in it and
// reports whether that is at most limit. The admissions may be in any order. It
// looks only at windows that end at an admission: moving the end of any other
// window back to the last admission inside it loses none of them.
func Window(admissions []Admission, limit, window int64) (worst Span, ok bool) {
	sorted := slices.Clone(admissions)
	slices.SortFunc(sorted, func(a, b Admission) int { return cmp.Compare(a.US, b.US) })
	for last, end := range sorted {
		if last+1 < len(sorted) && sorted[last+1].US == end.US {
			continue // the window ends at the last admission of this microsecond
		}
		units := int64(0)
		for i := last; i >= 0 && sorted[i].US > end.US-window; i-- {
			units += sorted[i].Cost
		}
		if units > worst.Units {
			worst = Span{End: end.US, Units: units}
		}
	}
	return worst, worst.Units <= limit
}
