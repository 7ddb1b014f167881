package accuracy

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// Report measures Focus and prints it, in seconds.
func Report(ctx context.Context, out io.Writer, build Builder, workers int) error {
	results, err := Run(ctx, Focus(), Seed, build, workers)
	if err != nil {
		return err
	}
	t, err := focusTable(newIndex(results))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Accuracy of a global limit of %d units, against a limiter that knows every region at once:\n\n", Limit)
	if err := t.text(out); err != nil {
		return err
	}
	return Unexplained(results)
}

// Unexplained is an error that names each cell in which an admission lies further
// past the limit than the buckets' bias and news under way explain.
func Unexplained(results []Result) error {
	bad := ""
	for _, r := range results {
		if r.Unexplained > 0 {
			bad += fmt.Sprintf("\n  %v: %d units", r.Cell, r.Unexplained)
		}
	}
	if bad == "" {
		return nil
	}
	return fmt.Errorf("admitted past the limit, and neither the buckets nor news under way explain it:%s", bad)
}

// Documents says how Document goes about it.
type Documents struct {
	// Folder is where the page is, and below it its figures and plots.
	Folder string
	// Resume keeps the figures that an earlier run stored before it was stopped.
	// They are right only if nothing has changed since.
	Resume  bool
	Build   Builder
	Workers int
	// Progress is told how many cells of how many are done. It may be nil.
	Progress func(done, of int)
}

// batch is how many cells are measured before their figures are stored.
const batch = 12

// Document measures Grid, stores the figures and renders page and plots from them.
// What was measured before it was stopped is stored too.
func Document(ctx context.Context, d Documents) error {
	moments, err := timeline(Seed, d.Build)
	if err != nil {
		return err
	}
	var results []Result
	if d.Resume {
		if results, err = d.stored(); err != nil {
			return err
		}
	}
	have := newIndex(results)
	left := slices.DeleteFunc(Grid(), func(c Cell) bool {
		_, ok := have[c.key()]
		return ok
	})
	for cells := range slices.Chunk(left, batch) {
		more, err := Run(ctx, cells, Seed, d.Build, d.Workers)
		if err != nil {
			return err
		}
		results = append(results, more...)
		if err := writeFigures(d.Folder, results, moments); err != nil {
			return err
		}
		if d.Progress != nil {
			d.Progress(len(results), len(Grid()))
		}
	}
	if err := WriteRendered(d.Folder); err != nil {
		return err
	}
	return Unexplained(results)
}

func (d *Documents) stored() ([]Result, error) {
	return fromFile(filepath.Join(d.Folder, figuresDir, gridFile), ReadCSV)
}
