package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"reflect"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// reload reads the topology and its files again. A mistake keeps what is in force. It
// returns the files to watch from then on.
func (d *Daemon) reload(why string) []string {
	before := d.config.Load().topology
	if d.options.Config == "" {
		d.log.Info("nothing to reload: serving without a configuration file")
		return nil
	}
	top, warnings, err := d.options.LoadTopology()
	if err == nil {
		err = d.apply(top)
	}
	if err != nil {
		d.reloads.count(reloadFailed)
		d.log.Error("reload: the configuration in force stays", "why", why, "config_hash", before.Hash(), "error", err)
		files := d.watched(before)
		if top != nil { // the mistake may be in a file that only this topology names
			for _, f := range d.watched(top) {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		}
		return files
	}
	for _, w := range warnings {
		d.log.Warn(w.Text(d.options.Config))
	}
	d.reloads.count(reloadOK)
	d.log.Info("reloaded", "why", why, "config_hash", top.Hash(), "before", before.Hash())
	if anew := startAnew(before, top); len(anew) > 0 {
		d.log.Warn("these limits start anew, since their usage is kept under what changed: their name, algorithm, by or when", "limits", strings.Join(anew, ", "))
	}
	if fields := d.restarts.fields(d.config.Load()); len(fields) > 0 {
		d.log.Warn("these changes need a restart", "fields", strings.Join(fields, ", "))
	}
	return d.watched(top)
}

// startAnew returns the limits of top whose usage is kept under another key than before: those with another algorithm or
// partition, and where a policy has lost a limit those with a new name, which is in the key of all but a sliding_log's log, and
// in that of what other regions count.
func startAnew(before, top *region.Topology) (anew []string) {
	for i := range top.Policies {
		p := &top.Policies[i]
		at := slices.IndexFunc(before.Policies, func(o quota.Policy) bool { return o.Name == p.Name })
		if at < 0 {
			continue
		}
		old := before.Policies[at].Limits
		lost := slices.ContainsFunc(old, func(o quota.Limit) bool { return !slices.ContainsFunc(p.Limits, named(o.Name)) })
		for j := range p.Limits {
			l := &p.Limits[j]
			same := slices.IndexFunc(old, named(l.Name))
			inKey := l.Algorithm != quota.SlidingLog || l.Scope == quota.ScopeGlobal && len(top.Regions) > 1
			if same < 0 && lost && inKey || same >= 0 && (old[same].Algorithm != l.Algorithm || !quota.SamePartition(&old[same], l)) {
				anew = append(anew, p.Name+"."+l.Name)
			}
		}
	}
	return anew
}

func named(name string) func(quota.Limit) bool {
	return func(l quota.Limit) bool { return l.Name == name }
}

func (d *Daemon) watched(top *region.Topology) []string {
	return watchedFiles(d.options.Config, top, d.options.Region)
}

// apply puts a topology in force, or returns an error and changes nothing.
func (d *Daemon) apply(top *region.Topology) error {
	c, err := readConfig(top, d.options.Region)
	if err != nil {
		return err
	}
	if len(top.Regions) > 1 && d.replication == nil {
		return errors.New("a second region needs a restart: this process was started without a connection to others")
	}
	if d.replication != nil {
		if err := d.replication.checkKeys(c); err != nil {
			return err
		}
		if err := d.replication.state.Adopt(context.Background(), top); err != nil {
			return err
		}
	}
	if err := d.limiter.Configure(d.limiterConfig(top)); err != nil {
		return err
	}
	c.fitListeners(d.config.Load())
	d.level.Set(top.LogLevel)
	d.config.Store(c)
	if d.replication == nil {
		return nil
	}
	d.replication.configure(top)
	return d.replication.setKeys(c)
}

// The results of a reload, as metrics name them.
const (
	reloadOK     = "ok"
	reloadFailed = "failed"
)

// reloadMetrics show whether the configuration in force is the one in the file.
type reloadMetrics struct{ reloads metric.Int64Counter }

func newReloadMetrics(m metric.Meter, hash func() string) (reloadMetrics, error) {
	reloads, err := m.Int64Counter("regiond.config.reloads", metric.WithUnit("{reload}"),
		metric.WithDescription("Reloads of the topology, by result."))
	_, err2 := m.Int64ObservableGauge("regiond.config.info", metric.WithDescription("1, labelled with the hash of the configuration in force."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1, metric.WithAttributes(attribute.String("hash", hash())))
			return nil
		}))
	if err := errors.Join(err, err2); err != nil {
		return reloadMetrics{}, err
	}
	for _, result := range []string{reloadOK, reloadFailed} { // from the start, for rate()
		reloads.Add(context.Background(), 0, metric.WithAttributes(attribute.String("result", result)))
	}
	return reloadMetrics{reloads}, nil
}

func (m reloadMetrics) count(result string) {
	m.reloads.Add(context.Background(), 1, metric.WithAttributes(attribute.String("result", result)))
}

// restartCheck remembers what a process was started with, to name what a reload does
// not put in force.
type restartCheck struct {
	started *region.Topology
	sums    map[string][sha256.Size]byte // contents of the files that are read once, by path
}

func newRestartCheck(c *config) restartCheck {
	r := restartCheck{started: c.topology, sums: map[string][sha256.Size]byte{}}
	for _, f := range readOnce(c.region) {
		r.sums[f.path] = fileSum(f.path)
	}
	return r
}

// fields names the fields that have changed since the start and need a restart, and
// those that name a file whose contents have.
func (r restartCheck) fields(now *config) []string {
	fields := restartFields(r.started, now.topology, now.region.Name)
	for _, f := range readOnce(now.region) {
		if sum, ok := r.sums[f.path]; ok && sum != fileSum(f.path) { // another path is another field
			fields = append(fields, "regions/"+now.region.Name+"/"+f.field)
		}
	}
	return fields
}

// fieldFile is a file and the field of a region that names it.
type fieldFile struct{ field, path string }

// readOnce are the files that a process reads at its start only.
func readOnce(r *region.Region) []fieldFile {
	files := []fieldFile{{"redis/sentinel_password_file", r.Redis.SentinelPasswordFile}}
	if r.Redis.TLS != nil {
		files = append(files, fieldFile{"redis/tls/ca_file", r.Redis.TLS.CAFile})
	}
	if r.NATS.TLS != nil {
		files = append(files, fieldFile{"nats/tls/ca_file", r.NATS.TLS.CAFile})
	}
	return slices.DeleteFunc(files, func(f fieldFile) bool { return f.path == "" })
}

// keyed reports whether a region has shared keys; which, is read again.
func keyed(r *region.Region) bool { return r.Gossip != nil && r.Gossip.KeyFile != "" }

func withoutKeys(g *region.Gossip) region.Gossip {
	if g == nil {
		return region.Gossip{}
	}
	return region.Gossip{Bind: g.Bind, Advertise: g.Advertise}
}

// restartFields names what a running process cannot change.
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
	if before.RLS.Compat != after.RLS.Compat {
		fields = append(fields, "rls/compat")
	}
	changed("http", a.HTTP != b.HTTP)
	changed("grpc", a.GRPC != b.GRPC)
	changed("admin", a.Admin != b.Admin)
	changed("gossip", !reflect.DeepEqual(withoutKeys(a.Gossip), withoutKeys(b.Gossip)) || keyed(a) != keyed(b))
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
