package accuracy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is a cell and what was found in all its runs.
type Result struct {
	Cell
	Figures
	// Reference is what was found in a perfect world: what transit alone costs. There is none for a bound.
	Reference Figures
}

// Measure drives all runs of one cell to their ends.
func Measure(c Cell, seed uint64) (Result, error) {
	results, err := Run(context.Background(), []Cell{c}, seed, 1)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// tallyOf drives a run of a cell to its end: the arrivals ask a world, and the judge sees each answer.
func tallyOf(c Cell, run int, seed uint64, perfect bool) (*tally, error) {
	w, err := simulated(c, run, seed, perfect)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	j := NewJudge(Limit, c.Window.Microseconds())
	began := w.Now()
	come := newArrivals(c.Workload, seed*runs+uint64(run), c.Regions, c.Window)
	for a := come.next(); a.US < c.lasts().Microseconds(); a = come.next() {
		w.RunUntil(began + time.Duration(a.US)*time.Microsecond)
		storeUS := w.StoreUS(a.Region)
		allowed := w.Check(a.Region, tenant, 1).Decision.Allowed
		j.Take(Check{US: a.US, StoreUS: storeUS, Region: a.Region, Admitted: allowed})
	}
	return j.tally(c.lasts().Microseconds()), nil
}

// job is a run of a cell, and where its tally goes.
type job struct {
	cell    Cell
	run     int
	perfect bool
	tally   *tally
}

// Run measures cells on that many workers and returns the results in the order of the
// cells.
func Run(ctx context.Context, cells []Cell, seed uint64, workers int) ([]Result, error) {
	var jobs []job
	for _, c := range cells {
		for run := range runs {
			jobs = append(jobs, job{cell: c, run: run})
			if c.MaxOvershoot == 0 {
				jobs = append(jobs, job{cell: c, run: run, perfect: true})
			}
		}
	}
	if err := work(ctx, jobs, seed, workers); err != nil {
		return nil, err
	}
	results := make([]Result, 0, len(cells))
	for _, c := range cells {
		r := Result{Cell: c}
		n := slices.IndexFunc(jobs, func(j job) bool { return j.cell.key() != c.key() })
		if n < 0 {
			n = len(jobs)
		}
		r.Figures = joined(jobs[:n], false)
		if c.MaxOvershoot == 0 {
			r.Reference = joined(jobs[:n], true)
		}
		results, jobs = append(results, r), jobs[n:]
	}
	return results, nil
}

// joined is what the perfect jobs found together, or the others.
func joined(jobs []job, perfect bool) Figures {
	all := tally{all: Figures{Worst: -Limit, Aligned: -Limit}}
	for _, j := range jobs {
		if j.perfect == perfect {
			all.join(j.tally)
		}
	}
	return all.figures(Limit)
}

// work does jobs on that many workers.
func work(ctx context.Context, jobs []job, seed uint64, workers int) error {
	var next atomic.Int64
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				j := &jobs[i]
				var err error
				if j.tally, err = tallyOf(j.cell, j.run, seed, j.perfect); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
