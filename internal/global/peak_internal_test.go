package global

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPeakIsTheMostOfTheLastTenMinutes: a process that restarts, or is cut off, still
// decides by itself while Redis is away, so a ceiling is divided by the most processes
// that were there within peakFor. The twin keeps every count.
func TestPeakIsTheMostOfTheLastTenMinutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p peak
		if p.most() != 1 {
			t.Fatalf("before the first look there are %d processes, we are one", p.most())
		}
		var noted []countAt
		now := time.Minute
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			now += time.Duration(rapid.SampledFrom([]int64{0, 1, 60, 299, 300, 600, 601}).Draw(t, "seconds")) * time.Second
			count := rapid.Int64Range(1, 5).Draw(t, "count")
			p.note(now, count)
			noted = append(noted, countAt{now, count})
			most := int64(0)
			for _, c := range noted {
				if now-c.at <= peakFor {
					most = max(most, c.count)
				}
			}
			if got := p.most(); got != most {
				t.Fatalf("%v: %d of %v, want %d", now, got, noted, most)
			}
			if len(p.counts) > 5 {
				t.Fatalf("%d counts are kept of 5 that differ", len(p.counts))
			}
		}
	})
}

// The ledger of the same: one of two processes restarts and is missed for ten minutes.
func TestPeakOutlivesARestart(t *testing.T) {
	var p peak
	for _, row := range []struct {
		at          time.Duration
		count, want int64
	}{
		{1 * time.Minute, 2, 2},
		{2 * time.Minute, 1, 2},
		{11 * time.Minute, 1, 2},
		{11*time.Minute + 1, 1, 1},
		{12 * time.Minute, 3, 3},
	} {
		p.note(row.at, row.count)
		if got := p.most(); got != row.want {
			t.Errorf("at %v: %d processes, want %d", row.at, got, row.want)
		}
	}
}
