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
		d.log.Warn(region.WhyAnew, "limits", strings.Join(anew, ", "))
	}
	if tenants := d.overrides.Ineffective(top, mostNamed); len(tenants) > 0 {
		d.log.Warn("the topology lacks a policy or limit that these overrides name, or allows less than they set: they are kept, and are in force as far as it has and allows it", "tenants", strings.Join(tenants, ", "))
	}
	if fields := d.config.Load().needRestart(d.started); len(fields) > 0 {
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
	}
	if err := d.propose(context.Background(), top); err != nil {
		return err
	}
	if err := d.limiter.Configure(d.limiterConfig(top)); err != nil {
		return err
	}
	c.fitListeners(d.config.Load())
	d.level.Set(top.LogLevel)
	d.config.Store(c)
	if d.replication == nil {
		d.manager.Configure(top)
		return nil
	}
	d.replication.configure(top)
	return d.replication.setKeys(c)
}

// mostNamed bounds the tenants that a line of the log names.
const mostNamed = 10

// The results of a reload, as metrics name them.
const (
	reloadOK     = "ok"
	reloadFailed = "failed"
)

// needRestart names the fields that have changed since the start and need a restart, and
// those that name a file whose contents have.
func (c *config) needRestart(started *config) []string {
	fields := region.RestartFields(started.topology, c.topology, c.region.Name)
	for _, f := range c.once {
		for _, before := range started.once {
			if before.field == f.field && before.path == f.path && before.sum != f.sum { // another path is another field
				fields = append(fields, "regions/"+c.region.Name+"/"+f.field)
			}
		}
	}
	return fields
}

// onceFile is a file that a process reads at its start only, and the field of a region that names it.
type onceFile struct {
	field, path string
	sum         [sha256.Size]byte
}

func readOnce(r *region.Region) (all []onceFile) {
	add := func(field, path string) {
		if path != "" {
			all = append(all, onceFile{field, path, fileSum(path)})
		}
	}
	add("redis/sentinel_password_file", r.Redis.SentinelPasswordFile)
	if r.Redis.TLS != nil {
		add("redis/tls/ca_file", r.Redis.TLS.CAFile)
	}
	if r.NATS.TLS != nil {
		add("nats/tls/ca_file", r.NATS.TLS.CAFile)
	}
	return all
}
