package oracle_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/test/oracle"
)

// TestGlobalTwin holds Used and Late against sums over units laid out on a line.
func TestGlobalTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const regions, end = 3, 200
		window := rapid.Int64Range(1, 60).Draw(t, "W")
		late := rapid.Int64Range(0, 60).Draw(t, "late")
		g := oracle.NewGlobal(window)
		var line [regions][end]int64
		us := int64(0)
		for range rapid.IntRange(1, 20).Draw(t, "admissions") {
			us = min(us+rapid.Int64Range(0, 20).Draw(t, "after"), end-1)
			s := oracle.Spend{Region: rapid.IntRange(0, regions-1).Draw(t, "region"), US: us, Units: rapid.Int64Range(1, 9).Draw(t, "units")}
			line[s.Region][us] += s.Units
			j := g.Admit(s, late)
			used, recent := int64(0), int64(0)
			for r := range line {
				own := int64(0)
				for at := max(0, us-window+1); at <= us; at++ {
					own += line[r][at]
				}
				if got := g.Used(r, us); got != own {
					t.Fatalf("at %d region %d used %d, want %d", us, r, got, own)
				}
				used += own
				for at := max(0, us-late+1); at <= us && r != s.Region; at++ {
					recent += line[r][at]
				}
			}
			if j.Used != used || j.Late != recent {
				t.Fatalf("at %d: %+v, want %d used and %d late", us, j, used, recent)
			}
		}
	})
}
