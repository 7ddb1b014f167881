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

// ParsePartition reads what AppendPartition has written: the dimensions that have values, and the text that all partitions of the
// same limits have, which is that of no dimensions.
func ParsePartition(text string) (dims Dimensions, spec string, ok bool) {
	names, rest, found := strings.Cut(text, ":")
	if !found {
		return nil, "", false
	}
	var by []string
	if list := strings.TrimPrefix(names, "#"); list != "" {
		by = strings.Split(list, ",")
	}
	for i, name := range by {
		if i > 0 {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				return nil, "", false
			}
		}
		if after, missing := strings.CutPrefix(rest, "-"); missing {
			rest = after
			continue
		}
		length, value, _ := strings.Cut(rest, ".")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(value) {
			return nil, "", false
		}
		dims, rest = append(dims, Dimension{Name: name, Value: value[:n]}), value[n:]
	}
	when, ok := strings.CutPrefix(rest, ":")
	if len(by) == 0 {
		return nil, names + "::" + when, ok
	}
	return dims, names + ":" + strings.Join(slices.Repeat([]string{"-"}, len(by)), ",") + ":" + when, ok
}
