package accuracy

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report measures Focus and prints it, in seconds.
func Report(ctx context.Context, out io.Writer, workers int) error {
	results, err := Run(ctx, Focus(), Seed, workers)
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
	return Misses(results)
}

// What an estimate may cost beyond what transit alone does, in percent of the limit, of what
// an all-knowing limiter admits, and of all checks.
const (
	worstPercent    = 3.0
	leastPercent    = 1.5
	mostPercent     = 0.5
	needlessPercent = 0.3
)

// misses names what a result breaks of the page's promises; "" for nothing.
func (r *Result) misses() string {
	if l := r.limit(); r.MaxOvershoot != 0 {
		if bound, _ := l.Bound(); r.Worst > bound-Limit {
			return fmt.Sprintf("the worst window holds %d units, the bound is %d", Limit+r.Worst, bound)
		}
		return ""
	}
	f, ref := &r.Figures, &r.Reference
	var all []string
	miss := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if worst, by := percentOf(f.Worst, Limit), percentOf(ref.Worst, Limit); worst > max(0, by)+worstPercent {
		miss("worst window %+.1f %%, by the reference %+.1f", worst, by)
	}
	used, by := percentOf(f.Admitted, f.AllKnowing), percentOf(ref.Admitted, f.AllKnowing)
	// What the reference uses above the limit is no capacity. In windows below two seconds, of which validate warns,
	// it is most of what is used, and differs by more from seed to seed.
	if short := r.Window < 2*time.Second; used < min(by, 100)-leastPercent || used > by+mostPercent && !short {
		miss("utilisation %.1f %%, by the reference %.1f", used, by)
	}
	if needless, by := percentOf(f.Needless, f.Asked), percentOf(ref.Needless, f.Asked); needless > by+needlessPercent {
		miss("%.2f %% needless denials, by the reference %.2f", needless, by)
	}
	return strings.Join(all, "; ")
}

// Misses is an error that names each cell that breaks a promise of the page.
func Misses(results []Result) error {
	bad := ""
	for i := range results {
		if miss := results[i].misses(); miss != "" {
			bad += fmt.Sprintf("\n  %v: %s", results[i].Cell, miss)
		}
	}
	if bad == "" {
		return nil
	}
	return fmt.Errorf("less exact than promised:%s", bad)
}
