package warnings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// OfReload warns of what a reload from before makes start anew: one warning for all limits whose usage is kept under another key, and
// one for all tenants that have another policy.
func OfReload(before, top *region.Topology) (warnings []region.Problem) {
	for _, w := range []struct {
		why   string
		names []string
	}{
		{
			"these limits start anew, since their usage is kept under what changed: the name of their policy, or their name, algorithm, calendar, " +
				"timezone, anchor, by or when", limitsAnew(before, top),
		},
		{"these tenants start anew, since they have another policy, under which their usage is counted apart", tenantsAnew(before, top)},
	} {
		if n := len(w.names); n > mostNamed {
			w.names = append(w.names[:mostNamed], fmt.Sprintf("and %d more", n-mostNamed))
		}
		if len(w.names) > 0 {
			warnings = append(warnings, region.Problem{Detail: w.why + ": " + strings.Join(w.names, ", ")})
		}
	}
	return warnings
}

// mostNamed bounds the names in a warning of OfReload.
const mostNamed = 10

// limitsAnew are the limits of top whose usage is kept under another key than before: those with another algorithm, calendar or
// partition; where a policy is gone, those of each new one, which may be the same renamed; and where a policy has lost a limit those with
// a new name, which is in the key of all but a sliding_log's log, and in that of what other regions count.
func limitsAnew(before, top *region.Topology) (anew []string) {
	gone := slices.ContainsFunc(before.Policies, func(p quota.Policy) bool { return top.Policy(p.Name) == nil })
	for i := range top.Policies {
		p := &top.Policies[i]
		was, lost := before.Policy(p.Name), false
		if was != nil {
			lost = slices.ContainsFunc(was.Limits, func(l quota.Limit) bool { return p.Limit(l.Name) == nil })
		}
		for j := range p.Limits {
			l := &p.Limits[j]
			var starts bool
			if was == nil {
				starts = gone
			} else if old := was.Limit(l.Name); old == nil {
				starts = lost && (l.Algorithm != quota.SlidingLog || l.Scope == quota.ScopeGlobal && len(top.Regions) > 1)
			} else {
				starts = old.Algorithm != l.Algorithm || !old.Calendar.Same(l.Calendar) || !quota.SamePartition(old, l)
			}
			if starts {
				anew = append(anew, p.Name+"."+l.Name)
			}
		}
	}
	return anew
}

// tenantsAnew are the tenants that had another policy before, sorted, and region.DefaultTenant first for those that are not listed. Of a policy
// that is new where theirs is gone, limitsAnew has the limits.
func tenantsAnew(before, top *region.Topology) (anew []string) {
	moved := func(id string) bool {
		was, now := policyOf(before, id), policyOf(top, id)
		return was != "" && now != "" && was != now && (before.Policy(now) != nil || top.Policy(was) != nil)
	}
	for id := range top.Tenants.Listed {
		if moved(id) {
			anew = append(anew, id)
		}
	}
	for id := range before.Tenants.Listed {
		if _, listed := top.Tenants.Listed[id]; !listed && moved(id) {
			anew = append(anew, id)
		}
	}
	slices.Sort(anew)
	if moved(region.DefaultTenant) {
		anew = slices.Insert(anew, 0, region.DefaultTenant)
	}
	return anew
}

// policyOf is the name of a tenant's policy, "" where it has none.
func policyOf(top *region.Topology, id string) string {
	if own, listed := top.Tenants.Listed[id]; listed {
		return own.Policy
	}
	if top.Tenants.Default != nil {
		return top.Tenants.Default.Policy
	}
	return ""
}
