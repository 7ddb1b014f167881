package global

import (
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/wire"
)

// book is what the ledger needs to know of the limits in force. Immutable.
type book struct {
	names   map[*quota.Limit]string // of global limits, "<policy>.<limit>"
	limits  map[string]*quota.Limit // by that name
	units   []int64                 // each L once
	regions int
}

func newBook(top *region.Topology) *book {
	b := &book{names: map[*quota.Limit]string{}, limits: map[string]*quota.Limit{}, regions: len(top.Regions)}
	seen := map[int64]bool{}
	for i := range top.Policies {
		p := &top.Policies[i]
		for j := range p.Limits {
			l := &p.Limits[j]
			if l.Scope != quota.ScopeGlobal {
				continue
			}
			name := limitName(p.Name, l.Name)
			b.names[l], b.limits[name] = name, l
			if !seen[l.Units] {
				b.units = append(b.units, l.Units)
			}
			seen[l.Units] = true
		}
	}
	return b
}

func limitName(policy, limit string) string { return policy + "." + limit }

// limit is L of a limit in force.
func (b *book) limit(name string) (units int64, ok bool) {
	l, ok := b.limits[name]
	if !ok {
		return 0, false
	}
	return l.Units, true
}

// series is what the ledger counts a store's counter under; false for one of a limit
// that is not in force. Buckets may have had another length, under the configuration
// before or in a sibling that has not reloaded. The key does not say how long their window
// was: they count for the one in force, or for their own length if that is longer.
func (b *book) series(key wire.Key, c *quota.CounterKey) (ledger.Series, bool) {
	name := limitName(c.Policy, c.Limit)
	l, known := b.limits[name]
	if !known || c.BucketUS > quota.MaxWindow.Microseconds() {
		return ledger.Series{}, false
	}
	window := min(max(l.WindowUS(), c.BucketUS), (quota.MaxGlobalBuckets-1)*c.BucketUS)
	return ledger.Series{ID: key.CounterID(c), Limit: name, Units: l.Units, WindowUS: window, BucketUS: c.BucketUS}, true
}
