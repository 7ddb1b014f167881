package quota_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/quota"
)

func TestTickAt(t *testing.T) {
	const hour = 3_600_000_000
	for _, row := range []struct {
		name         string
		time, newest int64
		kept         quota.Stepped
		now, offset  int64
		seen         int64 // 0 for time
	}{
		{"nothing was ever charged", 1000, 0, quota.Stepped{}, 1000, 0, 0},
		{"time goes on", 1000, 900, quota.Stepped{}, 1000, 0, 0},
		{"time has come to the newest stamp", 1000, 1000, quota.Stepped{}, 1000, 0, 0},
		{"a microsecond behind", 999, 1000, quota.Stepped{}, 1000, 1, 0},
		{"an hour behind", 1000, hour + 1000, quota.Stepped{}, hour + 1000, hour, 0},
		{"and going on", 1500, hour + 1000, quota.Stepped{Offset: hour, Seen: 1000}, hour + 1500, hour, 0},
		{"a second back", 500, hour + 1000, quota.Stepped{Offset: hour, Seen: 1_000_500}, hour + 1_000_500, hour + 1_000_000, 0},
		{"hardly back", 1400, hour + 1000, quota.Stepped{Offset: hour, Seen: 1500}, hour + 1400, hour, 1500},
		{"hardly back, before the newest stamp", 500, hour + 1000, quota.Stepped{Offset: hour, Seen: 1500}, hour + 1000, hour, 1500},
		{"set right again", hour + 1500, hour + 1000, quota.Stepped{Offset: hour, Seen: 1500}, hour + 1500, 0, 0},
		{"set right but for a microsecond", hour + 1499, hour + 1000, quota.Stepped{Offset: hour, Seen: 1500}, 2*hour + 1499, hour, 0},
		{"asked all the while, past the newest stamp", hour + 2000, hour + 1000, quota.Stepped{Offset: hour, Seen: hour + 1900}, 2*hour + 2000, hour, 0},
		{"quiet for as long as the offset", 1030, 1020, quota.Stepped{Offset: 20, Seen: 1010}, 1030, 0, 0},
	} {
		got := quota.TickAt(row.time, row.newest, row.kept)
		want := quota.Tick{Time: row.time, Now: row.now}
		if row.offset > 0 {
			want.Stepped = quota.Stepped{Offset: row.offset, Seen: max(row.time, row.seen)}
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", row.name, got, want)
		}
	}
}

// TestTickNeverBehindNewest charges now and then while time does what it likes:
// stamps never go back.
func TestTickNeverBehindNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		time, newest, kept := int64(1_000_000), int64(0), quota.Stepped{}
		for range rapid.IntRange(1, 40).Draw(t, "moments") {
			time = max(1, time+rapid.Int64Range(-2000, 2000).Draw(t, "move"))
			k := quota.TickAt(time, newest, kept)
			if k.Now < newest || k.Now != max(newest, time+k.Stepped.Offset) || k.Stepped.Offset < 0 {
				t.Fatalf("time %d, newest %d, kept %+v: %+v", time, newest, kept, k)
			}
			if rapid.Bool().Draw(t, "noted") {
				kept = k.Stepped
			}
			if rapid.Bool().Draw(t, "charge") {
				newest, kept = k.Now, k.Stepped
			}
		}
	})
}

// TestUntil lets time pass microsecond by microsecond until the clock shows due.
func TestUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.Int64Range(0, 30) // so that edges meet
		time, newest := 1+few.Draw(t, "time"), few.Draw(t, "newest")
		kept := quota.Stepped{}
		if rapid.Bool().Draw(t, "stepped") && newest > 0 {
			kept.Offset = 1 + few.Draw(t, "offset")
			kept.Seen = newest - kept.Offset + few.Draw(t, "since")
		}
		k := quota.TickAt(time, newest, kept)
		due := k.Now + few.Draw(t, "due")
		want := int64(0)
		for quota.TickAt(time+want, newest, k.Stepped).Now < due {
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
		late, newest, kept := int64(0), int64(0), quota.Stepped{}
		if rapid.Bool().Draw(t, "an hour ahead already") {
			kept = quota.Stepped{Offset: 3_600_000_000, Seen: 1_000_000}
		}
		ahead := kept.Offset
		for honest := int64(1_000_000); honest < 5_000_000; {
			honest += rapid.Int64Range(1, 100_000).Draw(t, "pause")
			if rapid.IntRange(0, 3).Draw(t, "swings") == 0 {
				late = swing - late
			}
			k := quota.TickAt(honest-late, newest, kept)
			if k.Now > honest+swing+ahead {
				t.Fatalf("the clock shows %d at %d, a swing is %d", k.Now, honest, swing)
			}
			newest, kept = k.Now, k.Stepped
		}
	})
}

// TestStepBackDoesNotStall asks often after one step back: the clock goes on as
// if nothing had happened, for as long as somebody asks.
func TestStepBackDoesNotStall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.Int64Range(1, 3_600_000_000).Draw(t, "step")
		newest := int64(10_000_000_000)
		kept := quota.TickAt(newest-step, newest, quota.Stepped{}).Stepped
		for honest := newest; honest < newest+1_000_000; {
			honest += rapid.Int64Range(0, min(step-1, 50_000)).Draw(t, "pause") + 1
			k := quota.TickAt(honest-step, newest, kept)
			if honest-step-kept.Seen < step && k.Now != honest {
				t.Fatalf("the clock shows %d at %d after a step of %d", k.Now, honest, step)
			}
			kept = k.Stepped
		}
	})
}
