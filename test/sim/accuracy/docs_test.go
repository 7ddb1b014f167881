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
		{Workload: workload("steady 0.8×"), Regions: 3, RTT: 80 * time.Millisecond, Window: time.Minute},
		{Workload: workload("steady 0.8×"), Regions: 2, RTT: 20 * time.Millisecond, Window: 10 * time.Second},
		{Workload: workload("steady 1.2×"), Regions: 3, RTT: 80 * time.Millisecond, Window: time.Minute},
		{Workload: workload("flash crowd 20×"), Regions: 2, RTT: 160 * time.Millisecond, Window: 10 * time.Second},
		{Workload: workload("flash crowd 20×"), Regions: 3, RTT: 80 * time.Millisecond, Window: time.Second},
		{Workload: workload("moving hot region 10×"), Regions: 3, RTT: 160 * time.Millisecond, Window: 10 * time.Second},
		{Workload: workload("steady 10×"), Regions: 3, RTT: 160 * time.Millisecond, Window: time.Minute},
		{Workload: workload("steady 3×"), Regions: 3, RTT: 80 * time.Millisecond, Window: 10 * time.Second, MaxOvershoot: quota.Strict},
		{Workload: workload("flash crowd 20×"), Regions: 3, RTT: 80 * time.Millisecond, Window: 10 * time.Second, MaxOvershoot: tenPercent},
		{Workload: workload("steady 3×"), Regions: 3, RTT: 80 * time.Millisecond, Window: 10 * time.Second, Event: Restart},
	} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			got, err := Measure(c, Seed)
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
			for _, f := range []*Figures{&got.Reference} { // of which less is committed
				f.Asked, f.AllKnowing, f.P99, f.Mean, f.Aligned = 0, 0, 0, 0, 0
			}
			if got.Figures != want.Figures || got.Reference != want.Reference {
				t.Errorf("committed %+v\nmeasured  %+v\nif that is meant: make accuracy", want, got)
			}
		})
	}
}

// absolutePercent is how far the worst window of a minute goes over the limit at most, with up to ten regions.
const absolutePercent = 4.0

// TestPromises, over the whole committed grid.
func TestPromises(t *testing.T) {
	x := committed(t)
	for _, c := range Grid() {
		r, err := x.find(c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Admitted == 0 || r.Asked < r.Admitted || r.AllKnowing == 0 {
			t.Errorf("%v: %+v is not of a run", c, r.Figures)
		}
		if miss := r.misses(); miss != "" {
			t.Errorf("%v: %s", c, miss)
		}
		switch {
		case c.MaxOvershoot != 0:
			if 100*r.Admitted < 97*r.AllKnowing {
				t.Errorf("%v: %d units used where an all-knowing limiter uses %d", c, r.Admitted, r.AllKnowing)
			}
		case c.Workload.Name == "steady 0.8×" && r.Admitted != r.Asked:
			t.Errorf("%v: %d of %d denied", c, r.Asked-r.Admitted, r.Asked)
		case c.Window == time.Minute && c.Regions <= 10 && percentOf(r.Worst, Limit) > absolutePercent:
			t.Errorf("%v: %.1f %% over the limit", c, percentOf(r.Worst, Limit))
		}
	}
}
