// Package daemon is regiond as `serve` runs it: what a topology describes for one
// region, bound, run and released.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
)

// Daemon is one process of one region.
type Daemon struct {
	options   Options
	log       *slog.Logger
	level     *slog.LevelVar
	telemetry *telemetry
	tracing   *tracing // nil while off

	config   atomic.Pointer[config] // in force
	watcher  *watcher
	reloads  reloadMetrics
	restarts restartCheck

	limiter     *limiter.Limiter
	redis       *redisstore.Store // nil when usage is kept in memory
	clock       *clock.Tracker
	replication *replication // nil for one region without gossip

	data, admin       *http.Server
	dataAt, adminAt   net.Listener
	draining, serving atomic.Bool
}

// New builds a daemon and binds its listeners. It starts nothing: call Run, or Close.
func New(o *Options, top *region.Topology, log *slog.Logger, level *slog.LevelVar) (*Daemon, error) {
	d, err := assemble(o, top, log, level)
	if err != nil {
		return nil, err
	}
	if err := d.listen(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// assemble makes a daemon without listeners.
func assemble(o *Options, top *region.Topology, log *slog.Logger, level *slog.LevelVar) (_ *Daemon, err error) {
	d := &Daemon{options: *o, log: log, level: level}
	if d.options.Region == "" {
		d.options.Region = top.Regions[0].Name
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	// A file that changes after this and before it is read is read again in vain, which
	// is better than not at all.
	d.watcher = newWatcher(watchedFiles(o.Config, top, d.options.Region), d.reload, log)
	c, err := readConfig(top, d.options.Region)
	if err != nil {
		return nil, err
	}
	c.fitListener(c.tls)
	d.config.Store(c)
	d.restarts = newRestartCheck(c)
	level.Set(top.LogLevel)
	if err := d.openTelemetry(); err != nil {
		return nil, err
	}
	s, timeUS, err := d.openStore(c)
	if err != nil {
		return nil, err
	}
	if d.clock, err = clock.New(clock.Options{
		Read: timeUS, Logger: d.log.With("component", "clock"), Meter: d.telemetry.meter("clock"),
	}); err != nil {
		return nil, err
	}
	if c.hasPeers() {
		if d.replication, err = newReplication(d.replicationOptions(s)); err != nil {
			return nil, err
		}
	}
	d.limiter, err = limiter.New(limiter.Options{
		Store: s, Config: d.limiterConfig(top), Logger: d.log.With("component", "limiter"), Meter: d.telemetry.meter("limiter"),
	})
	return d, err
}

func (d *Daemon) openTelemetry() (err error) {
	if d.telemetry, err = newTelemetry(&d.options, d.log); err != nil {
		return err
	}
	m := d.telemetry.meter("regiond")
	if d.tracing, err = newTracing(d.telemetry.resource, m, d.log.With("component", "tracing")); err != nil {
		return err
	}
	if d.tracing != nil {
		d.log = slog.New(traceHandler{d.log.Handler()})
	}
	if d.reloads, err = newReloadMetrics(m, d.hash); err != nil {
		return err
	}
	return watchProcess(m, d.options.Version, d.options.Commit, d.ready)
}

func (d *Daemon) hash() string { return d.config.Load().topology.Hash() }

// timeUS is the store's clock now; this host's until the store's was read once.
func (d *Daemon) timeUS() int64 {
	if r := d.clock.Reading(); r.NowUS > 0 {
		return r.NowUS
	}
	return time.Now().UnixMicro()
}

// openStore returns where usage is kept, and the clock there.
func (d *Daemon) openStore(c *config) (store.Store, func(context.Context) (int64, error), error) {
	r := c.region.Redis
	if r.Embedded {
		m := memstore.New(memstore.Options{Now: d.options.memoryUS})
		return m, m.TimeUS, nil
	}
	trust, err := clientTLS(r.TLS)
	if err != nil {
		return nil, nil, fmt.Errorf("region %s: redis: %w", c.region.Name, err)
	}
	sentinelPassword, err := readSecret(r.SentinelPasswordFile)
	if err != nil {
		return nil, nil, fmt.Errorf("region %s: redis: sentinels: %w", c.region.Name, err)
	}
	d.redis, err = redisstore.New(redisstore.Options{
		Mode: r.Mode, Addrs: r.Addrs, Master: r.Master, TLS: trust, Dial: d.options.dialRedis,
		SentinelUsername: r.SentinelUsername, SentinelPassword: sentinelPassword,
		Credentials: func() (string, string) { return r.Username, d.config.Load().password },
		ClientName:  "regiond/" + c.region.Name + "/" + d.options.Instance,
		Budget:      d.options.Budget,
		Epoch:       state.Key,
		Lost: func() {
			if d.replication != nil {
				d.replication.state.Lose()
			}
		},
		Logger: d.log.With("component", "redis"),
		Tracer: d.tracing.tracer("limiter"),
		Meter:  d.telemetry.meter("limiter"),
	})
	if err != nil {
		return nil, nil, err
	}
	return d.redis, d.redis.TimeUS, nil
}

func (d *Daemon) replicationOptions(s store.Store) replicationOptions {
	o := replicationOptions{
		instance: d.options.Instance, gossipAt: d.options.Gossip, processes: d.options.Processes, version: d.options.Version,
		wrapBus: d.options.WrapBus, transport: d.options.Transport,
		config: d.config.Load, timeUS: d.timeUS, store: s,
		log: d.log, meter: d.telemetry.meter, tracing: d.tracing,
	}
	if d.redis != nil {
		o.storeTotals, o.eval = d.redis.Counters, d.redis.Eval
	}
	return o
}

func (d *Daemon) limiterConfig(top *region.Topology) limiter.Config {
	if d.replication == nil {
		return LimiterConfig(top, d.options.Region, nil, func() int64 { return d.options.Processes })
	}
	return LimiterConfig(top, d.options.Region, d.replication.ceilings, d.replication.manager.Processes)
}

// listen binds both listeners.
func (d *Daemon) listen() error {
	c := d.config.Load()
	o := httpapi.Options{
		Limiter: d.limiter, Ready: d.ready, Regions: d.regions,
		Settings: func() *httpapi.Settings { return d.config.Load().settings },
		Metrics:  d.telemetry.handler(), Logger: d.log.With("component", "httpapi"), Meter: d.telemetry.meter("httpapi"),
		Deadline: d.options.Deadline, Tracing: d.tracing.api(c.tenantSecret()),
	}
	o.Address = cmp.Or(d.options.HTTP, c.region.HTTP)
	data, err := httpapi.NewData(o)
	if err != nil {
		return err
	}
	most, err := connectionBound(d.options.MaxConnections, fileLimit(), memoryLimit())
	if err != nil {
		return err
	}
	if d.data, d.dataAt, err = d.server(data, "http", o.Address, most); err != nil {
		return err
	}
	if c.tls != nil {
		d.dataAt = tlsListener(d.dataAt, func() *tls.Config { return d.config.Load().tls })
	}
	o.Address = cmp.Or(d.options.Admin, c.region.Admin)
	admin, err := httpapi.NewAdmin(o)
	if err != nil {
		return err
	}
	d.admin, d.adminAt, err = d.server(admin, "admin", o.Address, adminConnections)
	return err
}

// server makes the server of a listener, and binds that.
func (d *Daemon) server(h http.Handler, name, addr string, most int) (*http.Server, net.Listener, error) {
	bound, err := httpapi.NewConnections(name, most, d.telemetry.meter("httpapi"))
	if err != nil {
		return nil, nil, err
	}
	l, err := bind(name, addr)
	if err != nil {
		return nil, nil, err
	}
	return httpapi.NewServer(h, d.log, bound), bound.Listen(l), nil
}

func bind(name, addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w; choose another with --%s", name, err, name)
	}
	return l, nil
}

// DataAddr is the address of the data listener.
func (d *Daemon) DataAddr() net.Addr { return d.dataAt.Addr() }

// AdminAddr is the address of the admin listener.
func (d *Daemon) AdminAddr() net.Addr { return d.adminAt.Addr() }

// Metrics are what /metrics shows.
func (d *Daemon) Metrics() prometheus.Gatherer { return d.telemetry.registry }

// Peek returns what a request would get. It spends nothing and is not counted.
func (d *Daemon) Peek(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return d.limiter.Peek(ctx, r)
}

// Close releases what New opened, last opened first. Run does so itself.
func (d *Daemon) Close() error {
	var errs []error
	for _, l := range []net.Listener{d.adminAt, d.dataAt} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.redis != nil {
		errs = append(errs, d.redis.Close())
	}
	if d.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		errs = append(errs, d.tracing.shutdown(ctx), d.telemetry.shutdown(ctx))
	}
	return errors.Join(errs...)
}
