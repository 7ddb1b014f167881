package sim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestGrowth: a log remembers when a counter grew, and takes nothing back.
func TestGrowth(t *testing.T) {
	log := growth{}.add(time.Second, 5).add(2*time.Second, 5).add(3*time.Second, 4).add(4*time.Second, 9)
	for _, row := range []struct {
		at        time.Duration
		by, since int64
	}{
		{time.Second - 1, 0, 9},
		{time.Second, 5, 4},
		{4*time.Second - 1, 5, 4},
		{4 * time.Second, 9, 0},
	} {
		if by, since := log.by(row.at), log.since(row.at); by != row.by || since != row.since {
			t.Errorf("by %v it is %d and grows by %d after that, want %d and %d", row.at, by, since, row.by, row.since)
		}
	}
	if len(log) != 2 || log.units() != 9 {
		t.Errorf("the log is %v, want two entries, the last of 9 units", log)
	}
}

// TestGuessed: the hull is at least each even growth between two entries, and one of them.
func TestGuessed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log, at, units := growth{}, time.Duration(0), int64(0)
		for range rapid.IntRange(1, 12).Draw(t, "entries") {
			at += time.Duration(rapid.IntRange(1, 9).Draw(t, "after"))
			units += rapid.Int64Range(1, 50).Draw(t, "units")
			log = log.add(at, units)
		}
		points := append(growth{{}}, log...)
		x := time.Duration(rapid.IntRange(0, int(at)+2).Draw(t, "x"))
		most := float64(log.by(x))
		for i, a := range points {
			for _, b := range points[i+1:] {
				if a.at <= x && x < b.at {
					most = max(most, float64(a.units)+float64(b.units-a.units)*float64(x-a.at)/float64(b.at-a.at))
				}
			}
		}
		if got := log.guessed(x, 0); got < int64(most) || got > int64(most)+1 {
			t.Fatalf("%v: by %d it is guessed to be %d at most, by all pairs %f", log, x, got, most)
		}
	})
}
