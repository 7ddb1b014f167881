package region

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Hash is 16 hexadecimal digits that are equal in two regions if both decide
// alike: same revision, same regions with the same weights in the same order, same
// policies, tenants, max_unknown, max_values, forward_auth and domains with the contents
// of their files. Comments, the order of keys, a default spelled out, addresses, stores,
// header formats and the paths of secrets do not change it.
func (t *Topology) Hash() string {
	sum := sha256.Sum256(t.canonical())
	return hex.EncodeToString(sum[:8])
}

// canonical is the text behind Hash: what decisions rest on, as JSON. What has the same meaning is in the same form.
func (t *Topology) canonical() []byte {
	policies := slices.SortedFunc(slices.Values(t.Policies), func(a, b quota.Policy) int { return strings.Compare(a.Name, b.Name) })
	for i := range policies {
		p := &policies[i]
		if p.EnforcePercent < 0 {
			p.EnforcePercent = 100
		}
		p.Limits = slices.Clone(p.Limits) // in their order, in which answers list them
		for j := range p.Limits {
			l := &p.Limits[j]
			l.Burst, l.Near = l.Capacity(), 0
		}
	}
	domains := slices.Clone(t.RLS.Domains)
	for i := range domains {
		d := &domains[i]
		d.Files, d.At, d.Rules = nil, "", nil // Sum is of what is in the files
		d.Tenant = slices.AppendSeq([]string(nil), slices.Values(d.Tenant))
	}
	var forward *quota.ForwardAuth
	if t.ForwardAuth != nil {
		f := *t.ForwardAuth
		f.TrustedProxies = slices.Compact(slices.SortedFunc(slices.Values(f.TrustedProxies), netip.Prefix.Compare))
		f.Routes = slices.Clone(f.Routes) // in their order, of which the first match wins
		for i := range f.Routes {
			f.Routes[i].Methods = slices.Sorted(slices.Values(f.Routes[i].Methods))
		}
		forward = &f
	}
	text, err := json.Marshal(struct {
		Cluster                         string
		Revision                        int64
		Regions                         []quota.Weight
		Policies                        []quota.Policy
		Tenants                         Tenants
		MaxUnknown, MaxValues, MaxTimes int64
		ForwardAuth                     *quota.ForwardAuth
		Domains                         []Domain
	}{t.Cluster, t.Revision, t.Weights(), policies, t.Tenants, t.MaxUnknown, t.MaxValues, t.MostOverride(), forward, domains})
	if err != nil {
		panic(fmt.Sprintf("region: a topology has no JSON: %v", err))
	}
	return text
}

// StartAnew warns of what a reload from before makes start anew: one warning for all limits whose usage is kept under another key, and
// one for all tenants that have another policy.
func StartAnew(before, top *Topology) (warnings []Problem) {
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
			warnings = append(warnings, Problem{Detail: w.why + ": " + strings.Join(w.names, ", ")})
		}
	}
	return warnings
}

// mostNamed bounds the names in a warning of StartAnew.
const mostNamed = 10

// limitsAnew are the limits of top whose usage is kept under another key than before: those with another algorithm, calendar or
// partition; where a policy is gone, those of each new one, which may be the same renamed; and where a policy has lost a limit those with
// a new name, which is in the key of all but a sliding_log's log, and in that of what other regions count.
func limitsAnew(before, top *Topology) (anew []string) {
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

// tenantsAnew are the tenants that had another policy before, sorted, and DefaultTenant first for those that are not listed. Of a policy
// that is new where theirs is gone, limitsAnew has the limits.
func tenantsAnew(before, top *Topology) (anew []string) {
	moved := func(id string) bool {
		was, now := before.Tenants.policyOf(id), top.Tenants.policyOf(id)
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
	if moved(DefaultTenant) {
		anew = slices.Insert(anew, 0, DefaultTenant)
	}
	return anew
}

// RestartFields names what a running process cannot change.
func RestartFields(before, after *Topology, name string) []string {
	a, _ := before.Region(name)
	b, _ := after.Region(name)
	redis := b.Redis
	redis.PasswordFile = a.Redis.PasswordFile // is read again
	var fields []string
	changed := func(field string, differs bool) {
		if differs {
			fields = append(fields, field)
		}
	}
	own := "regions/" + name + "/"
	changed("cluster", before.Cluster != after.Cluster)
	changed("rls/compat", before.RLS.Compat != after.RLS.Compat)
	changed(own+"http", a.HTTP != b.HTTP)
	changed(own+"grpc", a.GRPC != b.GRPC)
	changed(own+"admin", a.Admin != b.Admin)
	changed(own+"gossip", !reflect.DeepEqual(withoutKeys(a.Gossip), withoutKeys(b.Gossip)) || a.keyed() != b.keyed())
	changed(own+"redis", !reflect.DeepEqual(a.Redis, redis))
	changed(own+"nats", !reflect.DeepEqual(a.NATS, b.NATS))
	changed("access/cert_file", (before.Access.CertFile == "") != (after.Access.CertFile == ""))
	changed("access/admin_cert_file", (before.Access.AdminCertFile == "") != (after.Access.AdminCertFile == ""))
	return fields
}

func withoutKeys(g *Gossip) Gossip {
	if g == nil {
		return Gossip{}
	}
	return Gossip{Bind: g.Bind, Advertise: g.Advertise}
}
