//go:build linux

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// What a new binary may cost in comparison with an old one.
const (
	mostCPU   = 1.05
	leastRate = 0.90
)

// compare alternates two binaries, each on a Redis of its own since versions may store usage in other ways, and prints the medians of the ratios of
// processor time per check, regiond's, and of checks per second. A ratio beyond its
// bound is an error.
func compare(s *stage, oldBinary string, out io.Writer) error {
	fresh := s.serve(setup{})[0]
	s.regiond = oldBinary
	old := s.serve(setup{})[0]
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "check\told µs\tnew µs\tof Redis\tprocessor time\trate\t")
	failed := 0
	for _, row := range []struct {
		name    string
		kind    kind
		tenants int
		each    int
		want    string
	}{
		{"one regional limit", wide, tenants, 1, wantAllowed},
		{"two limits of one partition", two, tenants, 1, wantAllowed},
		{"two partitions", split, tenants, 1, wantAllowed},
		{"a global limit", global, tenants, 1, wantAllowed},
		{"one tenant", wide, 1, 1, wantAllowed},
		{"denied and remembered", narrow, denied, 1, ""},
		{"batches of ten", wide, tenants, 10, wantAllowed},
	} {
		load := func(r *region, prefix string) *load {
			return s.load(prefix+": "+row.name, r.process, r.redis, batches(prefix, row.kind, row.tenants, row.each), row.want)
		}
		a, b := load(old, "o"), load(fresh, "n")
		alternate(25, saturated, 250*time.Millisecond, a, b)
		cpu, speed := b.ratio(a, ownTime), b.ratio(a, rate)
		verdict := ""
		if cpu > mostCPU || speed < leastRate {
			verdict, failed = "NOT MET", failed+1
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.3f\t%.3f\t%s\n", row.name, a.median(ownTime), b.median(ownTime), b.median(redisTime), cpu, speed, verdict)
	}
	fmt.Fprintf(t, "bound\t\t\t\t≤ %.2f\t≥ %.2f\t\n", mostCPU, leastRate)
	if err := t.Flush(); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d rows are beyond their bounds", failed)
	}
	return nil
}
