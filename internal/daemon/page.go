package daemon

import (
	"maps"
	"slices"
	"strings"

	"github.com/regiond/regiond/internal/page"
	"github.com/regiond/regiond/quota"
)

// sample is what the page shows of this process.
func (d *Daemon) sample() page.Sample {
	regions := d.seen()
	v := page.Sample{Regions: regions, States: []page.State{{
		Region: d.options.Region, State: regions.Mode.Mode, Reason: strings.TrimSuffix(regions.Mode.Reason+": "+strings.Join(regions.Mode.About, ", "), ": "),
	}}}
	for i := range regions.Regions {
		if p := &regions.Regions[i]; !p.Self {
			v.States = append(v.States, page.State{Region: p.Region, State: p.State.String(), Reason: p.Text})
		}
	}
	if d.options.DemoState != nil {
		v.Demo = d.options.DemoState()
	}
	policies := d.config.Load().topology.Policies
	ratios := map[string]float64{}
	if d.replication != nil {
		for limit, ratio := range d.replication.worst.Take() {
			name, _, _ := strings.Cut(limit, ".")
			ratios[name] = max(ratios[name], ratio)
		}
		v.Limits = d.replication.limits(policies)
	}
	outcomes := d.limiter.Outcomes()
	var names []string
	for i := range policies {
		names = append(names, policies[i].Name)
	}
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		if !slices.Contains(names, name) && d.limiter.HasPolicy(name) { // of a rate limit domain, or else a reload has removed it
			names = append(names, name)
		}
	}
	for _, name := range names {
		v.Policies = append(v.Policies, page.Policy{Name: name, Allowed: outcomes[name].Allowed, Denied: outcomes[name].Denied, Ratio: ratios[name]})
	}
	return v
}

// limits are the global limits of policies, as this region holds them.
func (r *replication) limits(policies []quota.Policy) []page.Limit {
	v := r.ceilings.View()
	usage := r.ceilings.Ledger().UsageStats()
	var all []page.Limit
	for i := range policies {
		for j := range policies[i].Limits {
			l := &policies[i].Limits[j]
			if l.Scope != quota.ScopeGlobal {
				continue
			}
			one := page.Limit{
				Policy: policies[i].Name, Name: l.Name, Units: l.Units, WindowMS: l.Window.Milliseconds(), Share: v.Share(l.Units),
			}
			if l.MaxOvershoot > 0 {
				one.MaxOvershoot = l.MaxOvershoot.String()
			}
			one.Lent, one.Borrowed = r.tender.Lent(one.Policy, one.Name)
			for k := range usage {
				if usage[k].Limit == one.Policy+"."+one.Name {
					one.Partitions, one.Used = usage[k].Partitions, usage[k].Units
				}
			}
			all = append(all, one)
		}
	}
	return all
}
