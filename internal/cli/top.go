package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/regiond/regiond/quota"
)

// Top is the command `top`.
func Top() *cobra.Command {
	q := quota.TopQuery{Window: quota.TopWindows[0]}
	c := &cobra.Command{
		Use:   "top",
		Short: "Who was denied or used most",
		Long: `Shows which tenants and partitions were denied or used most in the last minute or hour,
once, or with --watch again and again until an interrupt. The page of the admin listener
shows it live.`,
		Example: `  regiond top
  regiond top --by used --scope global --window 1h
  regiond top --watch --limit 5`,
		Args: NoArgs,
	}
	f := c.Flags()
	f.TextVar(&q.By, "by", quota.TopDenied, "what to `rank` by: denied or used units")
	f.TextVar(&q.Scope, "scope", quota.ScopeRegion, "`scope`: region alone, or global, what all regions counted")
	policy := policyFlag(c, "only the rows of this `policy`")
	f.DurationVar(&q.Window, "window", q.Window, "`duration`, 1m or 1h")
	f.IntVar(&q.Rows, "limit", 20, "`rows` at most")
	watch := f.Bool("watch", false, "print again until an interrupt")
	every := f.Duration("every", time.Second, "how often --watch prints, at least 100ms")
	Complete(c, "by", "denied", "used")
	Complete(c, "scope", "region", "global")
	Complete(c, "window", "1m", "1h")
	return calls(c, "admin", func(c *cobra.Command, t *target, _ []string) error {
		q.Policy = *policy
		switch {
		case !slices.Contains(quota.TopWindows[:], q.Window):
			return fmt.Errorf("--window is 1m or 1h, not %v", q.Window)
		case q.Rows < 1 || q.Rows > quota.MaxTopRows:
			return fmt.Errorf("--limit is 1 to %d, not %d", quota.MaxTopRows, q.Rows)
		case *every < 100*time.Millisecond:
			return errors.New("--every is at least 100ms")
		case *watch:
			return t.watchTop(c, &q, *every)
		}
		return t.printTop(c, &q)
	})
}

// watchTop prints again and again until an interrupt. When regiond is away it says so and goes on asking.
func (t *target) watchTop(c *cobra.Command, q *quota.TopQuery, every time.Duration) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c.SetContext(ctx)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if err := t.printTop(c, q); err != nil && ctx.Err() == nil {
			fmt.Fprintln(c.ErrOrStderr(), "regiond top: "+err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if t.format == "text" {
			fmt.Fprintln(c.OutOrStdout())
		}
	}
}

// printTop asks regiond once.
func (t *target) printTop(c *cobra.Command, q *quota.TopQuery) error {
	query := url.Values{
		"by": {q.By.String()}, "scope": {q.Scope.String()},
		"window": {q.Window.String()}, "limit": {strconv.Itoa(q.Rows)},
	}
	if q.Policy != "" {
		query.Set("policy", q.Policy)
	}
	var v quota.TopReport
	return t.show(c, "/v1/top?"+query.Encode(), &v, func() bool { return v.WindowMS != 0 }, func(w io.Writer) {
		fmt.Fprintln(w, topSummary(&v))
		for _, line := range slices.Concat(topLines(v.Rows, v.Total), topNotes(&v)) {
			fmt.Fprintln(w, line)
		}
	})
}

// topSummary is a report in a line.
func topSummary(v *quota.TopReport) string {
	where := "in region " + printable(v.Region)
	if v.Scope == quota.ScopeGlobal {
		where = "in " + printable(strings.Join(v.Regions, ", "))
	}
	processes := ""
	if v.Processes > 1 {
		processes = fmt.Sprintf(", %d processes", v.Processes)
	}
	covers := (time.Duration(v.CoversMS) * time.Millisecond).Round(time.Second)
	return fmt.Sprintf("%d units %v in the last %v %s%s", v.Total, v.By, covers, where, processes)
}

// topNotes say what the rows do not.
func topNotes(v *quota.TopReport) (notes []string) {
	if v.OthersAtMost > 0 {
		notes = append(notes, fmt.Sprintf("Nobody else has more than %d.", v.OthersAtMost))
	}
	if len(v.Absent) > 0 {
		notes = append(notes, "Not counted: "+printable(strings.Join(v.Absent, ", "))+".")
	}
	for _, note := range v.Notes {
		notes = append(notes, printable(note))
	}
	return notes
}

// topLines is the table: a line of titles, and one for each row.
func topLines(rows []quota.TopRow, total int64) []string {
	cells := [][]string{{"AT LEAST", "AT MOST", "OF ALL", "TENANT", "POLICY", "LIMIT", "PARTITION"}}
	for i := range rows {
		r := &rows[i]
		share := "-"
		if total > 0 {
			share = fmt.Sprintf("%.1f%%", 100*float64(r.AtLeast)/float64(total))
		}
		tenant := r.Tenant
		if tenant == "" {
			tenant = "(unlisted, shared)"
		}
		cells = append(cells, []string{
			strconv.FormatInt(r.AtLeast, 10), strconv.FormatInt(r.AtMost, 10), share,
			printable(tenant), printable(r.Policy), printable(r.Limit), printable(partitionText(r.Partition)),
		})
	}
	var widths [7]int
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], min(len(cell), widestName))
		}
	}
	lines := make([]string, len(cells))
	for n, row := range cells {
		var b strings.Builder
		for i, cell := range row {
			if len(cell) > widestName && i < len(row)-1 { // nothing comes after the last
				cell = cell[:widestName-2] + ".."
			}
			if i < 3 {
				fmt.Fprintf(&b, "%*s  ", widths[i], cell)
			} else {
				fmt.Fprintf(&b, "%-*s  ", widths[i], cell)
			}
		}
		lines[n] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// widestName is the most columns that a name has, unless it is the last.
const widestName = 40

// printable replaces what could move a terminal's cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// partitionText is a partition for people: "user=42 ip=192.0.2.1", "-" for a tenant's only one. What it
// cannot read it returns as it is.
func partitionText(partition string) string {
	p, ok := quota.ParsePartition(partition)
	if !ok {
		return partition
	}
	var words []string
	for _, d := range slices.Concat(p.By, p.When) {
		words = append(words, d.Name+"="+cmp.Or(d.Value, "(none)"))
	}
	return cmp.Or(strings.Join(words, " "), "-")
}
