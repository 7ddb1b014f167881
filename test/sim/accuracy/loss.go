package accuracy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/sim"
)

// lossTimes is what is asked for around a loss, as multiples of the limit.
const lossTimes = 1.2

// Loss is what was admitted in the window after one of three regions lost its data under a strict limit.
type Loss struct {
	Admitted, AllKnowing, Own, OwnAllKnowing int64         // by all regions, and by the one that lost
	First                                    time.Duration // from the loss to that region's first admission; the window where there was none
}

// MeasureLoss plays one world.
func MeasureLoss(window time.Duration, seed uint64) (r Loss, err error) {
	c := Cell{Regions: 3, RTT: centre().RTT, Window: window, Workload: steady("", lossTimes), MaxOvershoot: quota.Strict}
	w, err := sim.New(c.options(seed, 0))
	if err != nil {
		return r, err
	}
	w.RunUntil(settled)
	lost := (3 * window).Microseconds()
	w.At(settled+3*window, func() { w.Flush(0) })
	r.First = window
	knowing := allKnowing{limit: Limit, log: trail{width: window.Microseconds()}}
	come := newArrivals(c.Workload, seed, c.Regions, window)
	for a := come.next(); a.US < lost+window.Microseconds(); a = come.next() {
		w.RunUntil(settled + time.Duration(a.US)*time.Microsecond)
		before := knowing.admitted
		knowing.check(a.US)
		ideal, got := knowing.admitted-before, int64(0)
		if w.Check(a.Region, tenant, 1).Decision.Allowed {
			got = 1
		}
		if a.US < lost {
			continue
		}
		r.Admitted, r.AllKnowing = r.Admitted+got, r.AllKnowing+ideal
		if a.Region > 0 {
			continue
		}
		r.Own, r.OwnAllKnowing = r.Own+got, r.OwnAllKnowing+ideal
		if got > 0 {
			r.First = min(r.First, time.Duration(a.US-lost)*time.Microsecond)
		}
	}
	return r, nil
}

// ReportLosses measures what a loss costs, and prints it.
func ReportLosses(ctx context.Context, out io.Writer, worlds, workers int) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "three regions, %.1f×, in the window after the loss\tall\tthe region that lost\tits first admission, median\tlongest\t\n", lossTimes)
	for _, window := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute} {
		all, err := inWorlds(ctx, worlds, workers, func(seed uint64) (Loss, error) { return MeasureLoss(window, seed) })
		if err != nil {
			return err
		}
		var sum Loss
		var first []time.Duration
		for _, r := range all {
			sum.Admitted, sum.AllKnowing = sum.Admitted+r.Admitted, sum.AllKnowing+r.AllKnowing
			sum.Own, sum.OwnAllKnowing = sum.Own+r.Own, sum.OwnAllKnowing+r.OwnAllKnowing
			first = append(first, r.First)
		}
		slices.Sort(first)
		fmt.Fprintf(t, "%d in %v\t%.0f %%\t%.0f %%\t%.1f s\t%.1f s\t\n", Limit, window, percentOf(sum.Admitted, sum.AllKnowing),
			percentOf(sum.Own, sum.OwnAllKnowing), first[len(first)/2].Seconds(), first[len(first)-1].Seconds())
	}
	return t.Flush()
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
