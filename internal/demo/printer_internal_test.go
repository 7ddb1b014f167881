package demo

import (
	"strings"
	"testing"
)

// TestPrinter: a table is printed once for each set of cuts, when every region knows of it.
func TestPrinter(t *testing.T) {
	var out strings.Builder
	p, want := &printer{out: &out}, 0
	for i, step := range []struct {
		cut    []string
		modes  string
		prints int
	}{
		{nil, "joining joining", 0},
		{nil, "global joining", 0},
		{nil, "global global", 1},
		{nil, "global global", 0},
		{[]string{"eu"}, "global global", 0},
		{[]string{"eu"}, "partitioned global", 0},
		{[]string{"eu"}, "partitioned partitioned", 1},
		{[]string{"eu"}, "partitioned joining", 0},
		{[]string{"eu", "us"}, "partitioned partitioned", 1},
		{nil, "partitioned partitioned", 0},
		{nil, "global global", 1},
		{nil, "partitioned global", 0},
		{nil, "global global", 0},
	} {
		s := &PageState{Cut: step.cut}
		for _, mode := range strings.Fields(step.modes) {
			s.Regions = append(s.Regions, PageSite{Mode: mode})
		}
		p.look(s)
		want += step.prints
		if got := strings.Count(out.String(), "REGION"); got != want || p.table != Table(s) {
			t.Fatalf("look %d, %+v: %d tables, want %d", i, step, got, want)
		}
	}
}
