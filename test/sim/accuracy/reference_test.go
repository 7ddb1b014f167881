package accuracy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// naive is the reference model of a Judge: it counts in the list of all checks.
type naive struct {
	limit, window int64
	all           []Check
}

func (d *naive) count(us, width int64, of func(Check) bool) int64 {
	n := int64(0)
	for _, c := range d.all {
		if c.US > us-width && c.US <= us && of(c) {
			n++
		}
	}
	return n
}

func admitted(c Check) bool { return c.Admitted }

// figures goes through all checks, and for P99 and Mean through all microseconds.
func (d *naive) figures(endUS int64) Figures {
	f := Figures{Worst: -d.limit, Aligned: -d.limit}
	var known []int64
	all := d.all
	for i, c := range all {
		d.all = all[:i+1]
		f.Asked++
		inside := 0
		for _, us := range known {
			if us > c.US-d.window {
				inside++
			}
		}
		if int64(inside) < d.limit {
			known = append(known, c.US)
		}
		if !c.Admitted {
			if d.count(c.US, d.window, func(Check) bool { return true }) <= d.limit {
				f.Needless++
			}
			continue
		}
		f.Admitted++
		f.Worst = max(f.Worst, d.count(c.US, d.window, admitted)-d.limit)
		f.Aligned = max(f.Aligned, d.aligned(c)-d.limit)
	}
	f.AllKnowing = int64(len(known))
	d.all = all
	f.Mean, f.P99 = d.overTime(endUS)
	return f
}

func (d *naive) aligned(last Check) int64 {
	n := int64(0)
	for _, c := range d.all {
		if c.Admitted && c.StoreUS/d.window == last.StoreUS/d.window {
			n++
		}
	}
	return n
}

func (d *naive) overTime(endUS int64) (mean float64, p99 int64) {
	var over []int64
	sum := int64(0)
	for us := range endUS {
		o := max(0, d.count(us, d.window, admitted)-d.limit)
		over = append(over, o)
		sum += o
	}
	slices.Sort(over)
	return float64(sum) / float64(endUS), over[len(over)-1-len(over)/100]
}

// TestJudgeAgreesWithReference: on random histories, with clocks that differ, every
// figure is what counting by hand gives.
func TestJudgeAgreesWithReference(t *testing.T) {
	seen := Figures{}
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 0))
		regions, limit := 1+dice.IntN(4), int64(1+dice.IntN(12))
		window := int64(10 * (1 + dice.IntN(20)))
		j := NewJudge(limit, window)
		d := &naive{limit: limit, window: window}
		us, ahead := int64(0), make([]int64, regions)
		for i := range ahead {
			ahead[i] = dice.Int64N(5 * window)
		}
		for range 120 {
			us += dice.Int64N(12)
			region := dice.IntN(regions)
			c := Check{US: us, StoreUS: us + ahead[region], Region: region, Admitted: dice.IntN(3) > 0}
			if !c.Admitted && dice.IntN(2) == 0 {
				ahead[region] += dice.Int64N(3) // a store clock that gains
			}
			j.Take(c)
			d.all = append(d.all, c)
		}
		us += dice.Int64N(window)
		got, want := j.Figures(us), d.figures(us)
		if got != want {
			t.Fatalf("seed %d, %d regions, limit %d, window %d:\n got %+v\nwant %+v", seed, regions, limit, window, got, want)
		}
		seen.Needless += got.Needless
		seen.P99 = max(seen.P99, got.P99)
		seen.Worst = max(seen.Worst, got.Worst)
	}
	if seen.Needless == 0 || seen.P99 == 0 || seen.Worst == 0 {
		t.Errorf("the histories never had all that is judged: %+v", seen)
	}
}
