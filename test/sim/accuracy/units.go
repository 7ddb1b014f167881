package accuracy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/test/sim"
)

// Few is a strict limit of few or large units, or a short window: what fixed shares do worse than one would think, and
// loans must not do worse than those.
type Few struct {
	Regions     int
	Units, Cost int64
	Window      time.Duration
	Times       float64 // what is asked for, as multiples of Units per window
	Asking      int     // how many of the regions are asked, evenly
	Windows     int     // of arrivals
}

// Fews are the limits that are measured.
func Fews() []Few {
	return []Few{
		{3, 100, 25, 10 * time.Second, 1.5, 3, 20},
		{10, 100, 25, 10 * time.Second, 1.5, 3, 20},
		{10, 100, 25, 10 * time.Second, 1.5, 10, 20},
		{10, 30, 1, time.Second, 1.3, 10, 30},
		{10, 3, 1, 10 * time.Second, 23, 10, 20},
		{3, 10, 1, time.Minute, 1.2, 3, 5},
		{3, 10, 1, time.Minute, 3, 3, 5},
		{10, Limit, 1, time.Minute, 1.2, 10, 3},
	}
}

func (f Few) String() string {
	return fmt.Sprintf("%d units of %v, cost %d, %.1f×, %d of %d regions ask", f.Units, f.Window, f.Cost, f.Times, f.Asking, f.Regions)
}

// FewResult is the sum of all worlds of a Few.
type FewResult struct {
	Few
	Admitted, Fixed, AllKnowing int64
	// Starved is how many regions, of all worlds, were asked and admitted nothing.
	Starved int
}

// Used is the part of what the all-knowing limiter admits that loans and fixed shares admit, in percent.
func (r *FewResult) Used() (loans, fixed float64) {
	return percentOf(r.Admitted, r.AllKnowing), percentOf(r.Fixed, r.AllKnowing)
}

// MeasureFew measures a limit in that many worlds, on that many workers.
func MeasureFew(ctx context.Context, f Few, worlds, workers int) (FewResult, error) {
	all, err := inWorlds(ctx, worlds, workers, f.play)
	sum := FewResult{Few: f}
	for _, r := range all {
		sum.Admitted += r.Admitted
		sum.Fixed += r.Fixed
		sum.AllKnowing += r.AllKnowing
		sum.Starved += r.Starved
	}
	return sum, err
}

// inWorlds plays that many worlds, each from a seed of its own, on that many workers.
func inWorlds[T any](ctx context.Context, worlds, workers int, play func(seed uint64) (T, error)) ([]T, error) {
	all, failed := make([]T, worlds), make([]error, worlds)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < worlds && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				all[i], failed[i] = play(uint64(i) + Seed)
			}
		})
	}
	wg.Wait()
	return all, errors.Join(append(failed, ctx.Err())...)
}

// play measures one world.
func (f Few) play(seed uint64) (r FewResult, err error) {
	c := Cell{Regions: f.Regions, RTT: centre().RTT, Window: f.Window}
	o := c.options(seed, 0)
	limit := &o.Policies[0].Limits[0]
	limit.Units, limit.MaxOvershoot = f.Units, quota.Strict
	w, err := sim.New(o)
	if err != nil {
		return r, err
	}
	w.RunUntil(settled)
	weights := make([]quota.Weight, f.Regions)
	for i := range weights {
		weights[i] = quota.Weight{Region: o.Regions[i].Name, Weight: 1}
	}
	window := f.Window.Microseconds()
	knowing, own := allKnowing{limit: f.Units, log: trail{width: window}}, make([]allKnowing, f.Regions)
	for i, units := range region.Shares(weights, f.Units) {
		own[i] = allKnowing{limit: units, log: trail{width: window}}
	}
	dice, asked, got := rand.New(rand.NewPCG(seed, 1)), make([]bool, f.Regions), make([]bool, f.Regions)
	mean := float64(window) * float64(f.Cost) / (f.Times * float64(f.Units))
	for us := int64(0); ; {
		if us += int64(math.Round(-math.Log1p(-dice.Float64()) * mean)); us >= int64(f.Windows)*window {
			break
		}
		at := dice.IntN(f.Asking) * f.Regions / f.Asking
		w.RunUntil(settled + time.Duration(us)*time.Microsecond)
		asked[at] = true
		if w.Check(at, tenant, f.Cost).Decision.Allowed {
			r.Admitted, got[at] = r.Admitted+f.Cost, true
		}
		knowing.charge(us, f.Cost)
		own[at].charge(us, f.Cost)
	}
	r.AllKnowing = knowing.admitted
	for i := range own {
		r.Fixed += own[i].admitted
		if asked[i] && !got[i] {
			r.Starved++
		}
	}
	return r, nil
}

// ReportFew measures those of Fews whose description contains a text, and prints them.
func ReportFew(ctx context.Context, out io.Writer, contains string, worlds, workers int) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "strict limit\tloans\tfixed shares\tasked and got nothing\t\n")
	for _, f := range Fews() {
		if !strings.Contains(f.String(), contains) {
			continue
		}
		r, err := MeasureFew(ctx, f, worlds, workers)
		if err != nil {
			return err
		}
		loans, fixed := r.Used()
		fmt.Fprintf(t, "%v\t%.1f %%\t%.1f %%\t%d of %d\t\n", f, loans, fixed, r.Starved, f.Asking*worlds)
	}
	return t.Flush()
}
