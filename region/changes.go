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
	var fields []string
	if before.Cluster != after.Cluster {
		fields = append(fields, "cluster")
	}
	changed := func(field string, differs bool) {
		if differs {
			fields = append(fields, "regions/"+name+"/"+field)
		}
	}
	if before.RLS.Compat != after.RLS.Compat {
		fields = append(fields, "rls/compat")
	}
	changed("http", a.HTTP != b.HTTP)
	changed("grpc", a.GRPC != b.GRPC)
	changed("admin", a.Admin != b.Admin)
	changed("gossip", !reflect.DeepEqual(withoutKeys(a.Gossip), withoutKeys(b.Gossip)) || a.keyed() != b.keyed())
	redis := b.Redis
	redis.PasswordFile = a.Redis.PasswordFile // is read again
	changed("redis", !reflect.DeepEqual(a.Redis, redis))
	changed("nats", !reflect.DeepEqual(a.NATS, b.NATS))
	if (before.Access.CertFile == "") != (after.Access.CertFile == "") {
		fields = append(fields, "access/cert_file")
	}
	if (before.Access.AdminCertFile == "") != (after.Access.AdminCertFile == "") {
		fields = append(fields, "access/admin_cert_file")
	}
	return fields
}

// withoutKeys leaves out what is read again.
func withoutKeys(g *Gossip) Gossip {
	if g == nil {
		return Gossip{}
	}
	return Gossip{Bind: g.Bind, Advertise: g.Advertise}
}
