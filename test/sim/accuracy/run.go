package accuracy

import (
	"context"
	"fmt"
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
// each other, nothing was used yet and checks may begin.
type Builder func(c Cell, run int, seed uint64) (World, error)

// Result is a cell and what was found in all its runs.
type Result struct {
	Cell
	Figures
}

// Measure drives all runs of one cell to their ends.
func Measure(c Cell, seed uint64, build Builder) (Result, error) {
	results, err := Run(context.Background(), []Cell{c}, seed, build, 1)
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

func tallyOf(c Cell, run int, seed uint64, build Builder) (*tally, error) {
	j, err := drive(c, run, seed, build, func(int64, *Judge) {})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c, err)
	}
	return j.tally(c.lasts().Microseconds()), nil
}

// drive sends the arrivals of a run; before each it shows the judge, and until
// when that has seen everything.
func drive(c Cell, run int, seed uint64, build Builder, before func(us int64, j *Judge)) (*Judge, error) {
	w, err := build(c, run, seed)
	if err != nil {
		return nil, err
	}
	j := NewJudge(c.Regions, Limit, c.Window.Microseconds(), c.late().Microseconds())
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

// Run measures cells on that many workers and returns the results in the order of the
// cells.
func Run(ctx context.Context, cells []Cell, seed uint64, build Builder, workers int) ([]Result, error) {
	tallies := make([]*tally, runs*len(cells))
	var next atomic.Int64
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range max(1, workers) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(tallies) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				t, err := tallyOf(cells[i/runs], i%runs, seed, build)
				if err != nil {
					stop(err)
					return
				}
				tallies[i] = t
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	results := make([]Result, len(cells))
	for i := range cells {
		all := tallies[i*runs]
		for _, t := range tallies[i*runs+1 : (i+1)*runs] {
			all.join(t)
		}
		results[i] = Result{Cell: cells[i], Figures: all.figures(Limit)}
		l := cells[i].limit()
		if bound, ok := l.Bound(); ok { // neither buckets nor messages under way explain anything
			results[i].Unexplained = results[i].Worst - (bound - Limit)
		}
	}
	return results, nil
}
