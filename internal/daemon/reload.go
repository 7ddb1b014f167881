package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

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
		d.reloads.Add(1, "result", reloadFailed)
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
	d.reloads.Add(1, "result", reloadOK)
	d.log.Info("reloaded", "why", why, "config_hash", top.Hash(), "before", before.Hash())
	if anew := region.StartAnew(before, top); len(anew) > 0 {
		d.log.Warn("these limits start anew, since their usage is kept under what changed: their name, algorithm, by or when", "limits", strings.Join(anew, ", "))
	}
	if fields := d.restarts.fields(d.config.Load()); len(fields) > 0 {
		d.log.Warn("these changes need a restart", "fields", strings.Join(fields, ", "))
	}
	return d.watched(top)
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
	fields := region.RestartFields(r.started, now.topology, now.region.Name)
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
