package accuracy

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// memoryWorld is a world in memory: one exact log of admissions that all regions share,
// or one for each region.
type memoryWorld struct {
	cell Cell
	now  time.Duration
	logs [][]time.Duration
}

func shared(c Cell, _ int, _ uint64, _ bool) (World, error) {
	return &memoryWorld{cell: c, now: 3 * time.Second, logs: make([][]time.Duration, 1)}, nil
}

// isolated but for the reference.
func isolated(c Cell, _ int, _ uint64, perfect bool) (World, error) {
	if perfect {
		return shared(c, 0, 0, true)
	}
	return &memoryWorld{cell: c, logs: make([][]time.Duration, c.Regions)}, nil
}

func (r *memoryWorld) Now() time.Duration       { return r.now }
func (r *memoryWorld) RunUntil(t time.Duration) { r.now = t }
func (r *memoryWorld) StoreUS(int) int64        { return r.now.Microseconds() }

func (r *memoryWorld) Check(region int) bool {
	log := &r.logs[region%len(r.logs)]
	for len(*log) > 0 && (*log)[0] <= r.now-r.cell.Window {
		*log = (*log)[1:]
	}
	if len(*log) >= Limit {
		return false
	}
	*log = append(*log, r.now)
	return true
}

// TestKnownResults: regions that share one exact log are never over,
// nor under, and those that know nothing of each other admit their limit each.
func TestKnownResults(t *testing.T) {
	for _, w := range Workloads() {
		c := centre()
		c.Workload = w
		exact, err := Measure(c, Seed, shared)
		if err != nil {
			t.Fatal(err)
		}
		if exact.Admitted != exact.AllKnowing || exact.Needless != 0 || exact.Worst > 0 || exact.Mean != 0 {
			t.Errorf("%s: one shared log is not exact: %+v", w.Name, exact.Figures)
		}
		if full := exact.Asked > 3*runs*Limit; full && exact.Worst != 0 {
			t.Errorf("%s: demand above the limit left the fullest window %d units below it", w.Name, -exact.Worst)
		}
		if quiet := w.peak < 1; quiet && exact.Admitted != exact.Asked {
			t.Errorf("%s: %d of %d were denied by a limiter that knows everything", w.Name, exact.Asked-exact.Admitted, exact.Asked)
		}
	}
	c := centre()
	alone, err := Measure(c, Seed, isolated)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(c.Regions-1) * Limit; alone.Worst != want {
		t.Errorf("%d isolated regions went %d units over; they must go %d over", c.Regions, alone.Worst, want)
	}
}

// TestWorkers: any number of workers gives the same results, and an error names its cell.
func TestWorkers(t *testing.T) {
	cells := Focus()[:6]
	one, err := Run(context.Background(), cells, Seed, shared, 1)
	if err != nil {
		t.Fatal(err)
	}
	many, err := Run(context.Background(), cells, Seed, shared, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i := range one {
		if one[i].Figures != many[i].Figures || one[i].key() != cells[i].key() || one[i].Asked == 0 {
			t.Errorf("%v: %+v on one worker, %+v on four", cells[i], one[i].Figures, many[i].Figures)
		}
	}
	none := errors.New("no such world")
	_, err = Run(context.Background(), cells, Seed, func(Cell, int, uint64, bool) (World, error) { return nil, none }, 2)
	if !errors.Is(err, none) || !strings.Contains(err.Error(), "regions") {
		t.Errorf("a world that cannot be made gave %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := Run(ctx, cells, Seed, shared, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that was stopped gave %v", err)
	}
}

// TestArrivals: as many in all as the demand says, as many in
// the hot region, in order, and the same for the same seed.
func TestArrivals(t *testing.T) {
	const windows, regions = 26.0, 5 // whole rounds of the crowd
	for _, w := range Workloads() {
		want, steps := 0.0, 100_000
		for i := range steps {
			want += w.demand(windows*float64(i)/float64(steps)) * Limit * windows / float64(steps)
		}
		come := newArrivals(w, Seed, regions, Limit, time.Minute)
		again := newArrivals(w, Seed, regions, Limit, time.Minute)
		got, hot, lastUS := 0, 0, int64(0)
		for {
			a := come.next()
			if b := again.next(); a != b {
				t.Fatalf("%s: one seed gave %v and %v", w.Name, a, b)
			}
			if a.US >= int64(windows*float64(time.Minute.Microseconds())) {
				break
			}
			if a.US < lastUS || a.Region < 0 || a.Region >= regions {
				t.Fatalf("%s: %v after %d µs", w.Name, a, lastUS)
			}
			lastUS = a.US
			got++
			if at := float64(a.US) / float64(time.Minute.Microseconds()); a.Region == max(0, w.hot(at, regions)) {
				hot++
			}
		}
		if off := math.Abs(float64(got)-want) / math.Sqrt(want); off > 4 {
			t.Errorf("%s: %d arrivals in %v windows, want about %.0f", w.Name, got, windows, want)
		}
		share := hotShare
		if w.hot(0, regions) == everywhere {
			share = 1.0 / regions
		}
		if off := math.Abs(float64(hot)-share*float64(got)) / math.Sqrt(share*float64(got)); off > 4 {
			t.Errorf("%s: %d of %d arrivals are at the hot region, want a share of %.2f", w.Name, hot, got, share)
		}
	}
}
