package daemon

import (
	"context"
	"crypto/sha256"
	"strings"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/warnings"
)

// reload reads the topology and its files again. A mistake keeps what is in force. It
// returns the files to watch from then on.
func (d *Daemon) reload(why string) []string {
	before, hash := d.config.Load().topology, d.hash()
	if d.options.Config == "" {
		d.log.Info("nothing to reload: serving without a configuration file")
		return nil
	}
	top, found, err := d.options.LoadTopology()
	if err == nil {
		err = d.apply(top)
	}
	if err != nil {
		d.reloads.Add(1, "result", "failed")
		d.log.Error("reload: the configuration in force stays", "why", why, "config_hash", hash, "error", err)
		files := d.watched(before)
		if top != nil { // the mistake may be in a file that only this topology names
			files = append(files, d.watched(top)...)
		}
		return files
	}
	for _, w := range append(found, warnings.OfReload(before, top)...) {
		d.log.Warn(w.Text(d.options.Config))
	}
	d.reloads.Add(1, "result", "ok")
	d.log.Info("reloaded", "why", why, "config_hash", d.hash(), "before", hash)
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
		return state.ErrAlone
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

// needRestart names the fields that have changed since the start and need a restart, and
// those that name a file whose contents have.
func (c *config) needRestart(started *config) []string {
	fields := region.RestartFields(started.topology, c.topology, c.region.Name)
	before := onceFiles(started.region)
	for i, file := range onceFiles(c.region) {
		if file == before[i] && c.once[i] != started.once[i] { // another path is another field
			fields = append(fields, "regions/"+c.region.Name+"/"+file[0])
		}
	}
	return fields
}

// onceFiles are those that a process reads at its start only: the field of the region that names one, and its path, "" for none.
func onceFiles(r *region.Region) [3][2]string {
	var redis, nats region.TLS
	if r.Redis.TLS != nil {
		redis = *r.Redis.TLS
	}
	if r.NATS.TLS != nil {
		nats = *r.NATS.TLS
	}
	return [3][2]string{
		{"redis/sentinel_password_file", r.Redis.SentinelPasswordFile}, {"redis/tls/ca_file", redis.CAFile}, {"nats/tls/ca_file", nats.CAFile},
	}
}

// readOnce is what is in onceFiles.
func readOnce(r *region.Region) (all [3][sha256.Size]byte) {
	for i, file := range onceFiles(r) {
		all[i] = fingerprint(file[1])
	}
	return all
}
