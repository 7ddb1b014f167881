package quota_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

func TestPartitionClockAt(t *testing.T) {
	const (
		hour   = 3_600_000_000
		newest = hour + 1000
		window = 5000
	)
	for _, row := range []struct {
		name                 string
		time, newest, offset int64
		now, kept            int64
	}{
		{"nothing was ever charged", 1000, 0, 0, 1000, 0},
		{"time goes on", 1000, 900, 0, 1000, 0},
		{"time has come to the newest stamp", 1000, 1000, 0, 1000, 0},
		{"a microsecond behind", 999, 1000, 0, 1000, 0},
		{"almost a second behind", 1000, 1_000_999, 0, 1_000_999, 0},
		{"a second behind", 1000, 1_001_000, 0, 1_001_000, 1_000_000},
		{"an hour behind", 1000, newest, 0, newest, hour},
		{"and going on", 1500, newest, hour, hour + 1500, hour},
		{"a second back", 1000 - 1_000_000, newest, hour, newest, hour + 1_000_000},
		{"hardly back", 1400, newest, hour, hour + 1400, hour},
		{"hardly back, before the newest stamp", 500, newest, hour, newest, hour},
		{"past the newest stamp, with something still used", newest + window - 1, newest, hour, newest + window - 1 + hour, hour},
		{"nothing used by time either", newest + window, newest, hour, newest + window, 0},
	} {
		got := quota.PartitionClockAt(row.time, row.newest, row.offset, row.newest+window)
		want := quota.PartitionClock{Time: row.time, Now: row.now, Offset: row.kept}
		if got != want {
			t.Errorf("%s: %+v, want %+v", row.name, got, want)
		}
	}
}

// TestUntil lets time pass microsecond by microsecond until the clock shows due,
// which is while something is used, and looks again later: it still does.
func TestUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.Int64Range(0, 30) // so that edges meet
		time, newest, window := 1+few.Draw(t, "time"), few.Draw(t, "newest"), few.Draw(t, "window")
		k := quota.PartitionClockAt(time, newest, few.Draw(t, "offset"), newest+window)
		due := min(k.Now+few.Draw(t, "due"), newest+window)
		at := func(wait int64) int64 { return quota.PartitionClockAt(time+wait, newest, k.Offset, newest+window).Now }
		want := int64(0)
		for at(want) < due {
			want++
		}
		if got := k.Until(due); got != want {
			t.Fatalf("%+v shows %d after %d, want %d", k, due, got, want)
		}
		if later := want + few.Draw(t, "later"); at(later) < due {
			t.Fatalf("%+v showed %d after %d and shows %d after %d", k, due, want, at(later), later)
		}
	})
}

// TestSwingDoesNotRunAhead swings time between two rates of lateness and charges
// at each moment: however often, the clock gains no more than one swing.
func TestSwingDoesNotRunAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		swing := rapid.Int64Range(1, 400_000).Draw(t, "swing")
		late, newest, offset := int64(0), int64(0), int64(0)
		if rapid.Bool().Draw(t, "an hour ahead already") {
			offset = 3_600_000_000
		}
		ahead := offset
		for honest := int64(1_000_000); honest < 5_000_000; {
			honest += rapid.Int64Range(1, 100_000).Draw(t, "pause")
			if rapid.IntRange(0, 3).Draw(t, "swings") == 0 {
				late = swing - late
			}
			k := quota.PartitionClockAt(honest-late, newest, offset, newest+60_000_000)
			if k.Now > honest+swing+ahead {
				t.Fatalf("the clock shows %d at %d, a swing is %d", k.Now, honest, swing)
			}
			newest, offset = k.Now, k.Offset
		}
	})
}
