package quota

import (
	"slices"
	"strconv"
	"strings"
)

// UsageQuery asks what tenants have used, page by page.
type UsageQuery struct {
	Cursor string // "" begins; else the Next of the page before
	Policy string // "" for all
	Rows   int    // about so many, 1…MaxUsageRows: a page may have more
}

// MaxUsageRows bounds UsageQuery.Rows.
const MaxUsageRows = 10_000

// UsagePage is the answer to a UsageQuery.
type UsagePage struct {
	Region string     `json:"region"` // that alone is counted
	Rows   []UsageRow `json:"rows"`
	Next   string     `json:"next_cursor,omitempty"` // "" at the end
}

// UsageRow is what one partition of a tenant has used of one limit in one region. It may be on several pages: the last counts.
type UsageRow struct {
	Tenant string `json:"tenant"` // "" for the partition that unlisted tenants beyond max_unknown share
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	// Dimensions are the values that are counted apart; "" for the partition that those beyond max_values share.
	Dimensions map[string]string `json:"dimensions,omitempty"`
	Scope      Scope             `json:"scope"`
	Units      int64             `json:"units"` // of the limit, or the tenant's override of it
	WindowMS   int64             `json:"window_ms,omitempty"`
	Calendar   string            `json:"calendar,omitempty"` // in place of WindowMS: hour, day, week or month
	// Used counts in the limit now, and Held is what open reservations hold besides.
	Used int64 `json:"used"`
	Held int64 `json:"held"`
	// EndsAt is when nothing of both counts any more if nothing is added, by the clock of the region's store.
	EndsAt   string `json:"ends_at"`
	Override string `json:"override,omitempty"` // the version of the tenant's
}

// Partition is what the text of one says.
type Partition struct {
	By   Dimensions // what its limits count by, in their order; the value is "" where the request had none
	When Dimensions // what they are for
	Spec string     // the text that all partitions of the same limits have, which is that of no dimensions
}

// ParsePartition reads what AppendPartition has written.
func ParsePartition(text string) (p Partition, ok bool) {
	names, rest, ok := strings.Cut(text, ":")
	cut := func(prefix string) {
		var found bool
		rest, found = strings.CutPrefix(rest, prefix)
		ok = ok && found
	}
	take := func(name string) (d Dimension) {
		if d.Name = name; strings.HasPrefix(rest, "-") {
			cut("-")
			return d
		}
		length, value, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(length)
		if ok = ok && err == nil && n >= 0 && n <= len(value); ok {
			d.Value, rest = value[:n], value[n:]
		}
		return d
	}
	for i, name := range strings.FieldsFunc(strings.TrimPrefix(names, "#"), func(r rune) bool { return r == ',' }) {
		if i > 0 {
			cut(",")
		}
		p.By = append(p.By, take(name))
	}
	cut(":")
	p.Spec = names + ":" + strings.Join(slices.Repeat([]string{"-"}, len(p.By)), ",") + ":" + rest
	for ok && rest != "" {
		if len(p.When) > 0 {
			cut(",")
		}
		var name string
		name, rest, _ = strings.Cut(rest, "=")
		p.When = append(p.When, take(name))
	}
	return p, ok
}
