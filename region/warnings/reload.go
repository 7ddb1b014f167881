package warnings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// OfReload warns of what a reload from before makes start anew: in one warning each all limits whose usage is kept under another
// key, all tenants that have another policy, and all values of policy_from that give one.
func OfReload(before, top *region.Topology) (warnings []region.Problem) {
	for _, w := range []struct {
		why   string
		names []string
	}{
		{
			"these limits start anew, since their usage is kept under what changed: the name of their policy, or their name, " +
				"kind, algorithm, calendar, timezone, anchor, counts, by or when; for the other regions alone, a sliding_log with " +
				"another name and what is global now", limitsAnew(before, top),
		},
		{"these tenants start anew, since they have another policy, under which their usage is counted apart", tenantsAnew(before, top)},
		{
			"tenants with these values of policy_from start anew, since they have another policy, under which their usage is " +
				"counted apart", valuesAnew(before, top),
		},
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

// limitsAnew are the limits of top whose usage is not kept: those that had another key before; where a policy is gone, those of
// each new one, which may be the same renamed; and where a policy has lost a limit also those with a new name. A domain's get their
// names from its descriptors, and are never renamed.
func limitsAnew(before, top *region.Topology) (anew []string) {
	gone := slices.ContainsFunc(before.Policies, func(p quota.Policy) bool { return top.Policy(p.Name) == nil })
	was := map[string]*quota.Policy{}
	for _, p := range before.EveryPolicy() {
		was[p.Name] = p
	}
	for i, p := range top.EveryPolicy() {
		old, lost, domain := was[p.Name], false, i >= len(top.Policies)
		if old != nil && !domain {
			lost = slices.ContainsFunc(old.Limits, func(l quota.Limit) bool { return p.Limit(l.Name) == nil })
		}
		for j := range p.Limits {
			l := &p.Limits[j]
			starts := gone && !domain
			if old != nil {
				starts = (lost || old.Limit(l.Name) != nil) && !kept(old, l, len(top.Regions) > 1)
			}
			if starts {
				anew = append(anew, p.Name+"."+l.Name)
			}
		}
	}
	return anew
}

// kept reports whether usage under a policy as it was counts under a limit: in the region, where all logs of a partition are one,
// and in others, which count global limits by name.
func kept(was *quota.Policy, l *quota.Limit, others bool) bool {
	under := func(same func(old *quota.Limit) bool) bool {
		return slices.ContainsFunc(was.Limits, func(old quota.Limit) bool {
			return same(&old) && old.Calendar.ID() == l.Calendar.ID() && quota.SamePartition(&old, l)
		})
	}
	return under(func(old *quota.Limit) bool {
		return old.Algorithm == l.Algorithm && (old.Name == l.Name || l.Algorithm == quota.SlidingLog)
	}) && (!others || l.Scope != quota.ScopeGlobal || under(func(old *quota.Limit) bool {
		return old.Name == l.Name && old.Scope == quota.ScopeGlobal
	}))
}

// apart reports whether usage under a policy before does not count under another one now; "" is none. Of a policy that is new
// where the former is gone, limitsAnew has the limits.
func apart(before, top *region.Topology, was, now string) bool {
	return was != "" && now != "" && was != now && (before.Policy(now) != nil || top.Policy(was) != nil)
}

// tenantsAnew are the tenants that had another policy before, sorted, and region.DefaultTenant first for those that are not listed.
func tenantsAnew(before, top *region.Topology) (anew []string) {
	moved := func(id string) bool { return apart(before, top, policyOf(before, id), policyOf(top, id)) }
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

// valuesAnew are the values of policy_from, sorted, by which a tenant that is not listed had another policy before.
func valuesAnew(before, top *region.Topology) (anew []string) {
	was, now := policyValues(before), policyValues(top)
	own, other := policyOf(before, region.DefaultTenant), policyOf(top, region.DefaultTenant)
	for _, all := range []map[string]map[string]string{was, now} {
		for at, values := range all {
			for value := range values {
				if apart(before, top, cmp.Or(was[at][value], own), cmp.Or(now[at][value], other)) {
					anew = append(anew, value)
				}
			}
		}
	}
	slices.Sort(anew)
	return slices.Compact(anew)
}

// policyValues are the policies by value of each policy_from, by the name of its domain; "" is that of forward_auth.
func policyValues(top *region.Topology) map[string]map[string]string {
	every, all := map[string]string{}, map[string]map[string]string{}
	for i := range top.Policies {
		every[top.Policies[i].Name] = top.Policies[i].Name
	}
	add := func(domain string, policies map[string]string) {
		if all[domain] = policies; policies == nil {
			all[domain] = every
		}
	}
	if f := top.ForwardAuth; f != nil && f.PolicyFrom != nil {
		add("", f.PolicyFrom.Policies)
	}
	for i := range top.RLS.Domains {
		if from := top.RLS.Domains[i].PolicyFrom; from != nil {
			add(top.RLS.Domains[i].Name, from.Policies)
		}
	}
	return all
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
