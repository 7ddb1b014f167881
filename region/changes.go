package region

import (
	"reflect"
	"slices"

	"github.com/regiond/regiond/quota"
)

// StartAnew returns the limits of top whose usage is kept under another key than before: those with another algorithm or
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
			if same < 0 && lost && inKey || same >= 0 && (old[same].Algorithm != l.Algorithm || !quota.SamePartition(&old[same], l)) {
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
