package accuracy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
)

// docs is the folder that the committed page is in.
const docs = "../../../docs"

// committed are the figures that the page is made from.
func committed(t *testing.T) index {
	t.Helper()
	results, err := stored(docs)
	if err != nil {
		t.Fatal(err)
	}
	return newIndex(results)
}

// TestPage: the tables of the committed page come from the committed figures.
func TestPage(t *testing.T) {
	want, err := Page(docs)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(docs, pageFile)); err != nil || string(got) != want {
		t.Errorf("%s is not made from its figures (%v): go run ./test/sim/cmd/accuracy -docs docs -render", pageFile, err)
	}
	want, err = Plot(docs)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(docs, plotFile)); err != nil || string(got) != want {
		t.Errorf("%s is not made from its figures (%v): go run ./test/sim/cmd/accuracy -docs docs -render", plotFile, err)
	}
}

// TestFiguresAreMeasured: cells of each kind have the committed figures.
func TestFiguresAreMeasured(t *testing.T) {
	x := committed(t)
	for _, c := range []Cell{
		{workload("steady 0.8×"), 3, 80 * time.Millisecond, time.Minute, 0},
		{workload("steady 0.8×"), 2, 20 * time.Millisecond, 10 * time.Second, 0},
		{workload("steady 1.2×"), 3, 80 * time.Millisecond, time.Minute, 0},
		{workload("flash crowd 20×"), 2, 160 * time.Millisecond, 10 * time.Second, 0},
		{workload("flash crowd 20×"), 3, 80 * time.Millisecond, time.Second, 0},
		{workload("moving hot region 10×"), 3, 160 * time.Millisecond, 10 * time.Second, 0},
		{workload("steady 10×"), 3, 160 * time.Millisecond, time.Minute, 0},
		{workload("steady 3×"), 3, 80 * time.Millisecond, 10 * time.Second, quota.Strict},
		{workload("flash crowd 20×"), 3, 80 * time.Millisecond, 10 * time.Second, tenPercent},
	} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			got, err := Measure(c, Seed, Simulated)
			if err != nil {
				t.Fatal(err)
			}
			want, err := x.find(c)
			if err != nil {
				t.Fatal(err)
			}
			// A mean is committed with fewer digits.
			if d := got.Mean - want.Mean; d > -0.001 && d < 0.001 {
				got.Mean = want.Mean
			}
			if got.Figures != want.Figures {
				t.Errorf("committed %+v\nmeasured  %+v\nif that is meant: make accuracy", want.Figures, got.Figures)
			}
		})
	}
}

// TestPromises, over the whole committed grid.
func TestPromises(t *testing.T) {
	x := committed(t)
	for _, c := range Grid() {
		r, err := x.find(c)
		if err != nil {
			t.Fatal(err)
		}
		over := percent(r.Worst)
		name := c.Workload.Name
		if r.Unexplained > 0 {
			t.Errorf("%v: %d units past the limit, the bias and messages under way", c, r.Unexplained)
		}
		if r.Admitted == 0 || r.Asked < r.Admitted || r.AllKnowing == 0 {
			t.Errorf("%v: %+v is not of a run", c, r.Figures)
		}
		if l := c.limit(); c.MaxOvershoot != 0 {
			if bound, _ := l.Bound(); r.Worst > bound-Limit {
				t.Errorf("%v: the worst window holds %d units, the bound is %d", c, Limit+r.Worst, bound)
			}
			if 100*r.Admitted < 97*r.AllKnowing {
				t.Errorf("%v: %d units used where an all-knowing limiter uses %d", c, r.Admitted, r.AllKnowing)
			}
			continue
		}
		// Demand below the limit is admitted in full.
		if name == "steady 0.8×" && r.Admitted != r.Asked {
			t.Errorf("%v: %d of %d denied", c, r.Asked-r.Admitted, r.Asked)
		}
		if c.Window < time.Minute {
			continue
		}
		// Buckets undercount what peers have used, and nothing else.
		if over >= 100 || c.Regions <= 3 && percent(r.Beyond) > 5 {
			t.Errorf("%v: %.1f %% over the limit, %.1f of it not bias", c, over, percent(r.Beyond))
		}
		// The limit is used.
		if c.Workload.peak > 2 && 100*r.Admitted < 95*r.AllKnowing {
			t.Errorf("%v: %d units used where an all-knowing limiter uses %d", c, r.Admitted, r.AllKnowing)
		}
	}
}

func percent(units int64) float64 { return 100 * float64(units) / Limit }
