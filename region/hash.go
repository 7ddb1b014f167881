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
