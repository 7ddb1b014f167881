package region

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

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

// canonical is the text behind Hash: one fact per line, every string quoted, so
// that no two topologies that differ in a fact share a text. The first line is
// its version.
func (t *Topology) canonical() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "topology 1\ncluster %q\n", t.Cluster)
	if t.Revision > 0 {
		fmt.Fprintf(&b, "revision %d\n", t.Revision)
	}
	for i := range t.Regions {
		fmt.Fprintf(&b, "region %q weight %d\n", t.Regions[i].Name, t.Regions[i].Weight)
	}
	policies := slices.Clone(t.Policies)
	slices.SortFunc(policies, func(a, b quota.Policy) int { return strings.Compare(a.Name, b.Name) })
	for i := range policies {
		canonicalPolicy(&b, &policies[i])
	}
	if d := t.Tenants.Default; d != nil {
		canonicalTenant(&b, "unlisted", *d)
	}
	for _, id := range slices.Sorted(maps.Keys(t.Tenants.Listed)) {
		canonicalTenant(&b, strconv.Quote(id), t.Tenants.Listed[id])
	}
	fmt.Fprintf(&b, "max_unknown %d\n", t.MaxUnknown)
	if t.MaxValues != DefaultMaxValues {
		fmt.Fprintf(&b, "max_values %d\n", t.MaxValues)
	}
	if most := t.MostOverride(); most != int64(DefaultMaxOverride) {
		fmt.Fprintf(&b, "max_override %d\n", most)
	}
	if t.ForwardAuth != nil {
		canonicalForwardAuth(&b, t.ForwardAuth)
	}
	for i := range t.RLS.Domains {
		d := &t.RLS.Domains[i]
		fmt.Fprintf(&b, "domain %q sum %x %s tenant %q charge %s overrides %t on_partition %s on_store_loss %s on_overload %s overshoot %s\n", d.Name,
			d.Sum, d.Scope, d.Tenant, d.Charge, d.Overrides, d.OnPartition, d.OnStoreLoss, d.OnOverload, d.MaxOvershoot)
		if from := d.PolicyFrom; from != nil {
			fmt.Fprintf(&b, "policy_from descriptor %q all %t\n", from.Descriptor, from.Policies == nil)
			canonicalPolicyValues(&b, from.Policies)
		}
		if d.Metadata {
			b.WriteString("dynamic_metadata\n")
		}
		if d.Refunds {
			b.WriteString("refunds\n")
		}
		if d.MaxTTL > 0 {
			canonicalReservations(&b, d.MaxTTL, d.MaxHold)
		}
	}
	return b.Bytes()
}

// canonicalPolicy keeps the order of limits: answers list them in it. Numbers
// that mean "the default" are written as what they default to.
func canonicalPolicy(b *bytes.Buffer, p *quota.Policy) {
	percent := p.EnforcePercent
	if percent < 0 {
		percent = 100
	}
	fmt.Fprintf(b, "policy %q on_partition %s on_store_loss %s on_overload %s enforcement %s of %s%%\n", p.Name,
		p.OnPartition, p.OnStoreLoss, p.OnOverload, p.Enforcement, strconv.FormatFloat(percent, 'g', -1, 64))
	for i := range p.Limits {
		l := &p.Limits[i]
		fmt.Fprintf(b, "limit %q units %d us %d %s %s capacity %d by %q when %q\n", l.Name, l.Units,
			l.WindowUS(), l.Algorithm, l.Scope, l.Capacity(), l.By, l.When)
		if bound, ok := l.Bound(); ok {
			fmt.Fprintf(b, "bound %d\n", bound)
		}
		if l.Calendar != nil {
			fmt.Fprintf(b, "calendar %s\n", l.Calendar.AppendID(nil))
		}
		if l.Counts == quota.CountsTokens {
			b.WriteString("counts tokens\n")
		}
	}
	if p.Reserves() {
		canonicalReservations(b, p.MaxTTL, p.MaxHold)
	}
}

func canonicalReservations(b *bytes.Buffer, maxTTL time.Duration, maxHold float64) {
	fmt.Fprintf(b, "max_ttl %s max_hold %s%%\n", maxTTL, strconv.FormatFloat(maxHold, 'g', -1, 64))
}

func canonicalTenant(b *bytes.Buffer, who string, t quota.Tenant) {
	enforcement := "as the policy"
	if t.Enforcement != nil {
		enforcement = t.Enforcement.String()
	}
	fmt.Fprintf(b, "tenant %s policy %q %s\n", who, t.Policy, enforcement)
}

// canonicalForwardAuth keeps the order of routes, where the first match wins, and of
// nothing else.
func canonicalForwardAuth(b *bytes.Buffer, f *quota.ForwardAuth) {
	fmt.Fprintf(b, "forward_auth missing %q tenant header %q\n", string(f.Missing), f.Tenant.Header)
	if from := f.PolicyFrom; from != nil {
		fmt.Fprintf(b, "policy_from header %q metadata %q all %t\n", from.Header, from.Metadata, from.Policies == nil)
		canonicalPolicyValues(b, from.Policies)
	}
	for _, s := range f.Dimensions {
		fmt.Fprintf(b, "dimension %q header %q client_ip %t hash %t\n", s.Name, s.Header, s.ClientIP, s.Hash)
	}
	proxies := make([]string, len(f.TrustedProxies))
	for i, p := range f.TrustedProxies {
		proxies[i] = p.String()
	}
	slices.Sort(proxies)
	fmt.Fprintf(b, "trusted_proxies %q\n", slices.Compact(proxies))
	if f.IPv6Prefix != quota.DefaultIPv6Prefix {
		fmt.Fprintf(b, "ipv6_prefix %d\n", f.IPv6Prefix)
	}
	for _, r := range f.Routes {
		methods := slices.Clone(r.Methods)
		slices.Sort(methods)
		fmt.Fprintf(b, "route %q methods %q path %q cost %d skip %t\n", r.Name, methods, r.Path, r.Cost, r.Skip)
	}
	if f.CaseSensitive {
		b.WriteString("case_sensitive\n")
	}
}

func canonicalPolicyValues(b *bytes.Buffer, policies map[string]string) {
	for _, value := range slices.Sorted(maps.Keys(policies)) {
		fmt.Fprintf(b, "value %q policy %q\n", value, policies[value])
	}
}

// WhyAnew is why limits of StartAnew start anew, for a warning that names them.
const WhyAnew = "these limits start anew, since their usage is kept under what changed: their name, algorithm, calendar, timezone, anchor, by or when"

// StartAnew returns the limits of top whose usage is kept under another key than before: those with another algorithm, calendar or
// partition, and where a policy has lost a limit those with a new name, which is in the key of all but a sliding_log's log, and
// in that of what other regions count.
func StartAnew(before, top *Topology) (anew []string) {
	for i := range top.Policies {
		p := &top.Policies[i]
		at := slices.IndexFunc(before.Policies, func(o quota.Policy) bool { return o.Name == p.Name })
		if at < 0 {
			continue
		}
		old := before.Policies[at].Limits
		lost := slices.ContainsFunc(old, func(o quota.Limit) bool { return !slices.ContainsFunc(p.Limits, limitNamed(o.Name)) })
		for j := range p.Limits {
			l := &p.Limits[j]
			same := slices.IndexFunc(old, limitNamed(l.Name))
			inKey := l.Algorithm != quota.SlidingLog || l.Scope == quota.ScopeGlobal && len(top.Regions) > 1
			if same < 0 && lost && inKey || same >= 0 && (old[same].Algorithm != l.Algorithm || !old[same].Calendar.Same(l.Calendar) || !quota.SamePartition(&old[same], l)) {
				anew = append(anew, p.Name+"."+l.Name)
			}
		}
	}
	return anew
}

func limitNamed(name string) func(quota.Limit) bool {
	return func(l quota.Limit) bool { return l.Name == name }
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
