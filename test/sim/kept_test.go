package sim

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// TestKept: a campaign that is interrupted goes on with the worlds that it has not played, and one of which a world did not
// hold plays that again.
func TestKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kept")
	play := func(most time.Duration) Report {
		k, err := OpenKept(path)
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		return Campaign(context.Background(), nil, Plan{Strict: true, Seed: 1, Lasts: 10 * time.Second, Only: "cut"}, most, k)
	}
	first := play(time.Minute)
	if first.Err != nil || first.Worlds == 0 || first.RegionTime < time.Minute {
		t.Fatalf("%+v", first)
	}
	if again := play(time.Minute); again.Worlds != first.Worlds || again.RegionTime != first.RegionTime || again.Stats.Events > 0 {
		t.Errorf("at its end the campaign was %+v, and when it was begun again %+v", first, again)
	}
	if more := play(2 * first.RegionTime); more.Worlds <= first.Worlds || more.RegionTime < 2*first.RegionTime {
		t.Errorf("for twice as long the campaign was %+v, before %+v", more, first)
	}
	k, err := OpenKept(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.add(Plan{Seed: 1 << 40}, &Report{RegionTime: time.Hour, Failed: []Failure{{Violation: Violation{Name: "B-1 bound"}}}}); err != nil {
		t.Fatal(err)
	}
	_ = k.Close()
	if k, err = OpenKept(path); err != nil || k.done[1<<40] || !k.done[1] || k.report.RegionTime >= time.Hour {
		t.Errorf("%+v, %v", k, err)
	}
}
