package accuracy

import (
	"context"
	"fmt"
	"io"
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

// Unexplained is an error that names each cell in which an admission lies further past
// the limit than the buckets' bias and messages under way explain.
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
	return fmt.Errorf("admitted past the limit, explained neither by buckets nor by messages under way:%s", bad)
}
