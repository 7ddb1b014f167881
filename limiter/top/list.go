package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
)

// list is what a process, or several, counted of one kind in one window, largest first.
type list struct {
	rows   []quota.TopRow // no two of one name
	others int64          // the most units of any name that has no row
	total  int64          // of all names
	covers time.Duration
}

// list returns what the Recorder counted.
func (r *Recorder) list(by quota.TopBy, window time.Duration) list {
	r.mu.Lock()
	r.fold()
	g := r.series[by].window(window)
	l := list{others: plus(g.floor, g.lost), total: g.total, covers: r.now() - g.from}
	at := map[quota.TopRow]int{} // by name: after a reload with another algorithm or calendar a limit has another key
	for _, s := range g.heap {
		row := quota.TopRow{Limit: s.name.limit}
		_, _, row.Tenant, row.Policy, row.Partition, _ = store.ParseUsageKey(s.name.key)
		i, known := at[row]
		if !known {
			i = len(l.rows)
			at[row], l.rows = i, append(l.rows, row)
		}
		l.rows[i].AtLeast, l.rows[i].AtMost = plus(l.rows[i].AtLeast, s.low), plus(l.rows[i].AtMost, plus(s.count, g.lost))
	}
	r.mu.Unlock()
	l.sort()
	return l
}

func (l *list) sort() {
	slices.SortFunc(l.rows, func(a, b quota.TopRow) int {
		return cmp.Or(cmp.Compare(b.AtLeast, a.AtLeast), cmp.Compare(b.AtMost, a.AtMost), compareNames(&a, &b))
	})
}

func compareNames(a, b *quota.TopRow) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Policy, b.Policy),
		strings.Compare(a.Limit, b.Limit), strings.Compare(a.Partition, b.Partition))
}

// cut keeps the first rows.
func (l *list) cut(rows int) {
	for i := rows; i < len(l.rows); i++ {
		l.others = max(l.others, l.rows[i].AtMost)
	}
	l.rows = l.rows[:min(rows, len(l.rows))]
}

// combine adds up lists. Where one has no row of a name, the name may have as much there as any
// other that has none.
func combine(lists []list) list {
	var sum list
	at := map[quota.TopRow]int{} // by name
	for _, l := range lists {
		sum.others += l.others // of MaxPeers, these do not overflow
		sum.total += l.total
		sum.covers = max(sum.covers, l.covers)
	}
	for _, l := range lists {
		for _, row := range l.rows {
			name := row
			name.AtLeast, name.AtMost = 0, 0
			i, known := at[name]
			if !known {
				i = len(sum.rows)
				at[name], sum.rows = i, append(sum.rows, name)
				sum.rows[i].AtMost = sum.others
			}
			s := &sum.rows[i]
			s.AtLeast += row.AtLeast
			s.AtMost += row.AtMost - l.others
		}
	}
	sum.sort()
	return sum
}

// Report answers a query by what this process counted, the only one of its region.
func (r *Recorder) Report(q quota.TopQuery, region string) quota.TopReport {
	v := report(q, []list{r.list(q.By, q.Window)})
	v.Region, v.Regions = region, []string{region}
	return v
}

// report adds up the lists of processes.
func report(q quota.TopQuery, lists []list) quota.TopReport {
	sum := combine(lists)
	if q.Policy != "" { // what bounded other names still does
		sum.rows = slices.DeleteFunc(sum.rows, func(row quota.TopRow) bool { return row.Policy != q.Policy })
	}
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
