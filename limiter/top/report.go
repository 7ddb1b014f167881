package top

import (
	"fmt"
	"slices"

	"github.com/regiond/regiond/quota"
)

// Report answers a query by what this process counted, the only one of its region.
func (r *Recorder) Report(q quota.TopQuery, region string) quota.TopReport {
	v := report(q, []list{r.list(q.By, q.Window)})
	v.Region, v.Regions = region, []string{region}
	return v
}

// report adds up the lists of processes.
func report(q quota.TopQuery, lists []list) quota.TopReport {
	sum := combine(lists)
	sum.of(q.Policy)
	var notes []string
	if slices.ContainsFunc(sum.rows, func(row quota.TopRow) bool { return row.AtMost >= most }) || sum.total >= most {
		notes = []string{fmt.Sprintf("Counts of a process stop at %d units: who has as many may have more.", int64(most))}
	}
	sum.cut(q.Rows)
	return quota.TopReport{
		By: q.By, Policy: q.Policy, WindowMS: q.Window.Milliseconds(), CoversMS: sum.covers.Milliseconds(), Scope: q.Scope,
		Processes: len(lists), Rows: append([]quota.TopRow{}, sum.rows...), OthersAtMost: sum.others, Total: sum.total, Notes: notes,
	}
}
