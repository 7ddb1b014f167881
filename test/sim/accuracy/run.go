package accuracy

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// World is some regions under one global limit. Nothing happens in it but in
// RunUntil and Check, which are called in the order of time.
type World interface {
	// Now is its time; checks begin then.
	Now() time.Duration
	// RunUntil lets everything happen up to a time.
	RunUntil(t time.Duration)
	// Check asks a region for one unit now, and reports whether it is allowed.
	Check(region int) bool
	// StoreUS is what the region's store clock shows now, µs.
	StoreUS(region int) int64
}

// Builder makes the world of a run of a cell, 0 to runs−1, in which all regions see
// each other, nothing was used yet and checks may begin. In a perfect one estimates fade as
// the units that they count leave the window.
type Builder func(c Cell, run int, seed uint64, perfect bool) (World, error)

// Result is a cell and what was found in all its runs.
type Result struct {
	Cell
	Figures
	// Reference is what was found in a perfect world: what transit alone costs. There is none for a bound.
	Reference Figures
}

// Measure drives all runs of one cell to their ends.
func Measure(c Cell, seed uint64, build Builder) (Result, error) {
	results, err := Run(context.Background(), []Cell{c}, seed, build, 1)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

func tallyOf(c Cell, run int, seed uint64, build Builder, perfect bool) (*tally, error) {
	j, err := drive(c, run, seed, build, perfect, func(int64, *Judge) {})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	return j.tally(c.lasts().Microseconds()), nil
}

// drive sends the arrivals of a run; before each it shows the judge, and until
// when that has seen everything.
func drive(c Cell, run int, seed uint64, build Builder, perfect bool, before func(us int64, j *Judge)) (*Judge, error) {
	w, err := build(c, run, seed, perfect)
	if err != nil {
		return nil, err
	}
	j := NewJudge(Limit, c.Window.Microseconds())
	began := w.Now()
	come := newArrivals(c.Workload, seed*runs+uint64(run), c.Regions, Limit, c.Window)
	for a := come.next(); a.US < c.lasts().Microseconds(); a = come.next() {
		before(a.US, j)
		w.RunUntil(began + time.Duration(a.US)*time.Microsecond)
		storeUS := w.StoreUS(a.Region)
		j.Take(Check{US: a.US, StoreUS: storeUS, Region: a.Region, Admitted: w.Check(a.Region)})
	}
	return j, nil
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
func Run(ctx context.Context, cells []Cell, seed uint64, build Builder, workers int) ([]Result, error) {
	var jobs []job
	for _, c := range cells {
		for run := range runs {
			jobs = append(jobs, job{cell: c, run: run})
			if c.MaxOvershoot == 0 {
				jobs = append(jobs, job{cell: c, run: run, perfect: true})
			}
		}
	}
	if err := work(ctx, jobs, seed, build, workers); err != nil {
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
func work(ctx context.Context, jobs []job, seed uint64, build Builder, workers int) error {
	var next atomic.Int64
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(jobs) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				j := &jobs[i]
				var err error
				if j.tally, err = tallyOf(j.cell, j.run, seed, build, j.perfect); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
