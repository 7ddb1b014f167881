package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/regiond/regiond/quota"
)

// topOptions are the flags of `top`.
type topOptions struct {
	target
	query  quota.TopQuery
	every  time.Duration
	format *string
}

func topFlags(args []string, stderr io.Writer) (*topOptions, error) {
	f := NewFlags("top", "top [--by denied|used] [--policy P] [--window 1m|1h] [--scope region|global] [--limit N] [-o json]", stderr)
	o := &topOptions{query: quota.TopQuery{Window: quota.TopWindows[0]}}
	o.flags(f, defaultAdmin, "admin")
	f.TextVar(&o.query.By, "by", quota.TopDenied, "what to rank by: `denied` or used units")
	f.TextVar(&o.query.Scope, "scope", quota.ScopeRegion, "`region` alone, or global: what all regions counted")
	f.StringVar(&o.query.Policy, "policy", "", "only the rows of this `policy`")
	f.DurationVar(&o.query.Window, "window", o.query.Window, "`1m` or 1h")
	f.IntVar(&o.query.Rows, "limit", 20, "`rows` at most, where no terminal bounds them")
	f.DurationVar(&o.every, "every", 2*time.Second, "how often a terminal is drawn anew")
	o.format = OutputFlag(f)
	words, err := Parse(f, args)
	switch {
	case err != nil:
	case len(words) > 0:
		err = fmt.Errorf("unexpected argument %q", words[0])
	case !slices.Contains(quota.TopWindows[:], o.query.Window):
		err = fmt.Errorf("--window is 1m or 1h, not %v", o.query.Window)
	case o.query.Rows < 1 || o.query.Rows > quota.MaxTopRows:
		err = fmt.Errorf("--limit is 1 to %d, not %d", quota.MaxTopRows, o.query.Rows)
	case o.every < 100*time.Millisecond:
		err = errors.New("--every is at least 100ms")
	}
	return o, err
}

// Top shows who was denied or used most: as a table that lives until a key ends it on a
// terminal, once anywhere else. Exit code 2 when regiond could not be asked.
func Top(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	o, err := topFlags(args, stderr)
	if err != nil {
		return ExitUsage, err
	}
	out, ok := stdout.(*os.File)
	if ok && *o.format == "text" && term.IsTerminal(int(out.Fd())) && term.IsTerminal(int(os.Stdin.Fd())) {
		if err := o.live(ctx, out); err != nil {
			return ExitUsage, err
		}
		return ExitOK, nil
	}
	body, v, err := o.rank(ctx, o.query)
	if err != nil {
		return ExitUsage, err
	}
	if *o.format == "json" {
		fmt.Fprintln(stdout, string(bytes.TrimSpace(body)))
		return ExitOK, nil
	}
	fmt.Fprintln(stdout, topSummary(&v))
	for _, line := range topLines(v.Rows, v.Total) {
		fmt.Fprintln(stdout, line)
	}
	for _, note := range topNotes(&v) {
		fmt.Fprintln(stdout, note)
	}
	return ExitOK, nil
}

// rank asks regiond once.
func (o *topOptions) rank(ctx context.Context, q quota.TopQuery) (body []byte, v quota.TopReport, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	values := url.Values{
		"by": {q.By.String()}, "scope": {q.Scope.String()}, "window": {q.Window.String()}, "limit": {strconv.Itoa(q.Rows)},
	}
	if q.Policy != "" {
		values.Set("policy", q.Policy)
	}
	if body, err = o.get(ctx, "/v1/top?"+values.Encode()); err != nil {
		return nil, v, err
	}
	if err := json.Unmarshal(body, &v); err != nil || v.WindowMS == 0 {
		return nil, v, fmt.Errorf("what answers at %s is not regiond's admin listener: %.200q", o.addr, body)
	}
	return body, v, nil
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
	return fmt.Sprintf("%d units %v in the last %v %s%s", v.Total, v.By, (time.Duration(v.CoversMS) * time.Millisecond).Round(time.Second), where, processes)
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
	names, rest, _ := strings.Cut(partition, ":")
	var words []string
	if names != "" {
		for i, name := range strings.Split(names, ",") {
			var value string
			var ok bool
			if i > 0 {
				rest, ok = strings.CutPrefix(rest, ",")
				if !ok {
					return partition
				}
			}
			if value, rest, ok = cutValue(rest); !ok {
				return partition
			}
			words = append(words, name+"="+value)
		}
	}
	rest, ok := strings.CutPrefix(rest, ":")
	for ok && rest != "" {
		name, after, found := strings.Cut(rest, "=")
		value, after, valid := cutValue(after)
		if !found || !valid {
			return partition
		}
		words, rest = append(words, name+"="+value), strings.TrimPrefix(after, ",")
	}
	switch {
	case !ok:
		return partition
	case len(words) == 0:
		return "-"
	}
	return strings.Join(words, " ")
}

// cutValue reads a value as quota.AppendPartition writes it.
func cutValue(text string) (value, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, "-"); ok {
		return "(none)", rest, true
	}
	length, rest, _ := strings.Cut(text, ".")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return "", text, false
	}
	return rest[:n], rest[n:], true
}
