package quota_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

func TestTickAt(t *testing.T) {
	for _, row := range []struct {
		name                 string
		time, newest, offset int64
		now, kept            int64
	}{
		{"nothing was ever charged", 1000, 0, 0, 1000, 0},
		{"time goes on", 1000, 900, 0, 1000, 0},
		{"time has come to the newest stamp", 1000, 1000, 0, 1000, 0},
		{"a microsecond behind", 999, 1000, 0, 1000, 1},
		{"an hour behind", 1000, 3_600_001_000, 0, 3_600_001_000, 3_600_000_000},
		{"and going on", 1500, 3_600_001_000, 3_600_000_000, 3_600_001_500, 3_600_000_000},
		{"back further", 500, 3_600_001_000, 3_600_000_000, 3_600_001_000, 3_600_000_500},
		{"caught up", 3_600_001_000, 3_600_001_000, 3_600_000_000, 3_600_001_000, 0},
		{"caught up but for a microsecond", 3_600_000_999, 3_600_001_000, 3_600_000_000, 7_200_000_999, 3_600_000_000},
	} {
		got := quota.TickAt(row.time, row.newest, row.offset)
		want := quota.Tick{Time: row.time, Now: row.now, Newest: row.newest, Offset: row.kept}
		if got != want {
			t.Errorf("%s: %+v, want %+v", row.name, got, want)
		}
	}
}

// TestTickNeverBehindNewest charges now and then while time does what it likes:
// stamps never go back, and a distance is kept only while time is behind.
func TestTickNeverBehindNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		time, newest, offset := int64(1_000_000), int64(0), int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "moments") {
			time = max(1, time+rapid.Int64Range(-2000, 2000).Draw(t, "move"))
			k := quota.TickAt(time, newest, offset)
			if k.Now < newest || k.Now != time+k.Offset || (k.Offset > 0) != (time < newest) {
				t.Fatalf("time %d, newest %d, offset %d: %+v", time, newest, offset, k)
			}
			offset = k.Offset
			if rapid.Bool().Draw(t, "charge") {
				newest = k.Now
			}
		}
	})
}

// TestUntil lets time pass microsecond by microsecond until the clock shows due.
func TestUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.Int64Range(0, 30) // so that edges meet
		time := 1 + few.Draw(t, "time")
		k := quota.TickAt(time, few.Draw(t, "newest"), few.Draw(t, "offset"))
		due := k.Now + few.Draw(t, "due")
		want := int64(0)
		for quota.TickAt(time+want, k.Newest, k.Offset).Now < due {
			want++
		}
		if got := k.Until(due); got != want {
			t.Fatalf("%+v shows %d after %d, want %d", k, due, got, want)
		}
	})
}

// TestSwingDoesNotRunAhead swings time between two rates of lateness and charges
// at each moment: the partition's clock is never ahead of the earlier of them.
func TestSwingDoesNotRunAhead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		swing := rapid.Int64Range(1, 400_000).Draw(t, "swing")
		late, newest, offset := int64(0), int64(0), int64(0)
		for real := int64(1_000_000); real < 5_000_000; {
			real += rapid.Int64Range(1, 100_000).Draw(t, "pause")
			if rapid.IntRange(0, 3).Draw(t, "swings") == 0 {
				late = swing - late
			}
			k := quota.TickAt(real-late, newest, offset)
			if k.Now > real+swing {
				t.Fatalf("the clock shows %d at %d, a swing is %d", k.Now, real, swing)
			}
			newest, offset = k.Now, k.Offset
		}
	})
}
