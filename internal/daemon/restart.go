package daemon

import (
	"crypto/sha256"
	"slices"

	"github.com/regiond/regiond/region"
)

// needRestart names what a reload has not put in force: fields that changed, and
// files of which the content did.
func (d *Daemon) needRestart(top *region.Topology) []string {
	fields := restartFields(d.started, top, d.options.Region)
	r, _ := top.Region(d.options.Region)
	for _, f := range readOnce(r) {
		if sum, ok := d.sums[f.path]; ok && sum != fileSum(f.path) { // another path is another field
			fields = append(fields, "regions/"+r.Name+"/"+f.field)
		}
	}
	return fields
}

// fieldFile is a file and the field of a region that names it.
type fieldFile struct{ field, path string }

// readOnce are the files that a process reads at its start only.
func readOnce(r *region.Region) []fieldFile {
	files := []fieldFile{{"redis/sentinel_password_file", r.Redis.SentinelPasswordFile}}
	if r.Gossip != nil {
		files = append(files, fieldFile{"gossip/key_file", r.Gossip.KeyFile})
	}
	if r.Redis.TLS != nil {
		files = append(files, fieldFile{"redis/tls/ca_file", r.Redis.TLS.CAFile})
	}
	if r.NATS.TLS != nil {
		files = append(files, fieldFile{"nats/tls/ca_file", r.NATS.TLS.CAFile})
	}
	return slices.DeleteFunc(files, func(f fieldFile) bool { return f.path == "" })
}

// sumsOf are the contents of such files, by path.
func sumsOf(files []fieldFile) map[string][sha256.Size]byte {
	sums := map[string][sha256.Size]byte{}
	for _, f := range files {
		sums[f.path] = fileSum(f.path)
	}
	return sums
}

// restartFields names what changed since the start that a running process cannot
// follow.
func restartFields(before, after *region.Topology, name string) []string {
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
	changed("http", a.HTTP != b.HTTP)
	changed("admin", a.Admin != b.Admin)
	changed("gossip", !equalPointers(a.Gossip, b.Gossip))
	changed("redis", a.Redis.Embedded != b.Redis.Embedded || !slices.Equal(a.Redis.Addrs, b.Redis.Addrs) ||
		a.Redis.Mode != b.Redis.Mode || a.Redis.Master != b.Redis.Master || a.Redis.Username != b.Redis.Username ||
		a.Redis.SentinelUsername != b.Redis.SentinelUsername || a.Redis.SentinelPasswordFile != b.Redis.SentinelPasswordFile ||
		!equalPointers(a.Redis.TLS, b.Redis.TLS))
	changed("nats", a.NATS.Embedded != b.NATS.Embedded || a.NATS.Gateway != b.NATS.Gateway || !slices.Equal(a.NATS.URLs, b.NATS.URLs) ||
		a.NATS.CredsFile != b.NATS.CredsFile || !equalPointers(a.NATS.TLS, b.NATS.TLS))
	if (before.Access.CertFile == "") != (after.Access.CertFile == "") {
		fields = append(fields, "access/cert_file")
	}
	return fields
}

func equalPointers[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
