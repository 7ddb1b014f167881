// Package daemon is regiond as `serve` runs it: what a topology describes for one
// region, bound, run and released.
//
//	daemon.go       the parts of a process, and its listeners
//	run.go          how they start and stop; signals
//	config.go       what is read of a topology and its files; tls.go its certificates
//	reload.go       how another is put in force; watch.go notices that there is one
//	replication.go  what connects it with other processes; replication_metrics.go shows that
//	status.go       GET /v1/regions and /readyz; page.go what the page shows
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/httpapi/plain"
	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/page"
	"github.com/regiond/regiond/internal/telemetry"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/limiter/memstore"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/view"
)

// Daemon is one process of one region.
type Daemon struct {
	options   Options
	log       *slog.Logger
	level     *slog.LevelVar
	telemetry *telemetry.Telemetry

	config   atomic.Pointer[config] // in force
	watcher  *watcher
	reloads  *instruments.Counter
	reopened *instruments.Counter
	started  *config // with which New was called

	limiter     *limiter.Limiter
	overrides   *overrides.Overlay
	shareSeal   component // nil where nothing is to be shared
	recorder    *top.Recorder
	redis       *redisstore.Store // nil when usage is kept in memory
	clock       *clock.Clock      // the store's
	state       *state.State      // the replication's, or one that knows of no other process
	replication *replication      // nil for one region without gossip
	ceilings    *view.Ceilings    // the replication's, or those of a region that knows of no other
	manager     *view.Manager     // likewise
	bounds      *boundWatch

	denials           *telemetry.DenialLog // nil while off
	stream            *page.Stream
	listeners         []listening // in the order in which they are served
	dataAt, adminAt   net.Listener
	grpcAt            net.Listener // of Envoy's services, where the region names it; nil without
	draining, serving atomic.Bool
}

// New builds a daemon and binds its listeners. It starts nothing: call Run, or Close.
func New(o *Options, topology *region.Topology, log *slog.Logger, level *slog.LevelVar) (*Daemon, error) {
	d, err := assemble(o, topology, log, level)
	if err != nil {
		return nil, err
	}
	if err := d.listen(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// assemble makes a daemon without listeners.
func assemble(o *Options, topology *region.Topology, log *slog.Logger, level *slog.LevelVar) (_ *Daemon, err error) {
	d := &Daemon{options: *o, log: log, level: level}
	if d.options.Region == "" {
		d.options.Region = topology.Regions[0].Name
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	// A file that changes after this and before it is read is read again in vain, which
	// is better than not at all.
	d.watcher = newWatcher(watchedFiles(o.Config, topology, d.options.Region), d.reload, log)
	c, err := readConfig(topology, d.options.Region)
	if err != nil {
		return nil, err
	}
	d.config.Store(c)
	d.started = c
	level.Set(topology.LogLevel)
	if d.telemetry, err = telemetry.New(o.Version, d.options.Region, o.Instance, log); err != nil {
		return nil, err
	}
	d.log = d.telemetry.Log()
	if err := d.instrument(); err != nil {
		return nil, err
	}
	if d.denials, err = telemetry.OpenDenialLog(&d.options.DenialLog, c.region.Name, c.keys.Partitions,
		d.telemetry.Meter("regiond"), d.log.With("component", "denials")); err != nil {
		return nil, err
	}
	if d.clock, err = clock.New(clock.Options{Logger: d.log.With("component", "clock"), Meter: d.telemetry.Meter("clock")}); err != nil {
		return nil, err
	}
	s, stateOf, err := d.openStore(c)
	if err != nil {
		return nil, err
	}
	if d.recorder, err = top.NewRecorder(nil, d.telemetry.Meter("limiter")); err != nil {
		return nil, err
	}
	if c.hasPeers() {
		if d.replication, err = newReplication(d, s, stateOf); err != nil {
			return nil, err
		}
		d.state, d.ceilings, d.manager = d.replication.state, d.replication.ceilings, d.replication.manager
	} else {
		self := quota.Process{Region: d.options.Region, Instance: d.options.Instance, Boot: time.Now().UnixMicro()}
		stateOf.Members, stateOf.Alone, stateOf.Now = members.New(self), true, d.clock.Now
		d.state = state.New(stateOf)
		if d.ceilings, err = view.NewCeilings(view.CeilingOptions{
			Self: self, Now: d.clock.Now, TimeUS: d.timeUS, Key: c.partitionKey(), Topology: topology, Store: d.state.Store, Window: d.state.Window,
		}); err != nil {
			return nil, err
		}
		d.manager = view.NewManager(view.ManagerOptions{
			Ceilings: d.ceilings, Members: members.New(self), // so that it waits for no sibling
			HeartbeatSoon: func() {}, State: d.state, Processes: d.options.Processes, Logger: d.log.With("component", "view"),
		})
	}
	if d.bounds, err = newBoundWatch(d); err != nil {
		return nil, err
	}
	if d.overrides, err = overrides.New(overrides.Options{
		Region: d.options.Region, Eval: stateOf.Eval, TimeUS: d.timeUS, Now: time.Now,
		Topology: func() *region.Topology { return d.config.Load().topology }, Logger: d.log.With("component", "overrides"),
		Meter: d.telemetry.Meter("overrides"),
	}); err != nil {
		return nil, err
	}
	var seal *limiter.Seal
	seal, d.shareSeal = newSeal(c, stateOf.Eval)
	if d.limiter, err = limiter.New(limiter.Options{
		Store: s, Config: d.limiterConfig(topology), Top: d.recorder, Seal: seal, Overrides: d.overrides, TimeUS: d.timeUS,
		Logger: d.log.With("component", "limiter"), Meter: d.telemetry.Meter("limiter"),
	}); err != nil {
		return nil, err
	}
	if d.replication != nil {
		d.replication.bind(d.limiter.ResetAll)
	}
	d.stream = page.New(d.sample)
	return d, nil
}

func (d *Daemon) hash() string { return d.config.Load().hash }

// timeUS is the store's clock now; this host's until the store's was read once.
func (d *Daemon) timeUS() int64 {
	if r := d.clock.Reading(); r.NowUS > 0 {
		return r.NowUS
	}
	return time.Now().UnixMicro()
}

// openStore returns where usage is kept, and what the region's state needs of it.
func (d *Daemon) openStore(c *config) (store.Store, state.Options, error) {
	o := state.Options{Clock: d.clock, Logger: d.log.With("component", "state")}
	r := c.region.Redis
	if r.Embedded {
		o.Lost = d.options.DemoState == nil // with the process before; a demo had none
		m := memstore.New(memstore.Options{Now: d.options.memoryUS})
		o.TimeUS = m.TimeUS
		return m, o, nil
	}
	trust, err := clientTLS(r.TLS)
	if err != nil {
		return nil, o, fmt.Errorf("region %s: redis: %w", c.region.Name, err)
	}
	d.redis, err = redisstore.New(redisstore.Options{
		Mode: r.Mode, Addrs: r.Addrs, Master: r.Master, TLS: trust, Dial: d.options.dialRedis,
		SentinelUsername: r.SentinelUsername, SentinelPassword: c.sentinelPassword,
		Credentials: func() (string, string) { return r.Username, d.config.Load().password },
		ClientName:  "regiond/" + c.region.Name + "/" + d.options.Instance,
		Budget:      d.options.Budget,
		Epoch:       state.Key,
		Unknown:     d.readAnew,
		Clock:       d.clock,
		Logger:      d.log.With("component", "redis"),
		Tracer:      d.telemetry.Tracer("limiter"),
		Meter:       d.telemetry.Meter("limiter"),
	})
	if err != nil {
		return nil, o, err
	}
	o.Eval, o.Primaries, o.OnLoss = d.redis.Eval, d.redis.Primaries, d.redis.CountLoss
	return d.redis, o, nil
}

// readAnew reads the region's state on a server that may be another one. The first turn is not for it.
func (d *Daemon) readAnew(ctx context.Context) {
	if d.state.Snapshot().Read {
		d.state.Turn(ctx)
	}
}

// reopen is httpapi.Options.Reopen.
func (d *Daemon) reopen(ctx context.Context, region string) (refused string, err error) {
	if region != d.options.Region {
		return fmt.Sprintf("this process is of region %s: ask one of region %s", d.options.Region, region), nil
	}
	switch err = d.state.Reopen(ctx); {
	case errors.Is(err, state.ErrOpen):
		return err.Error(), nil
	case err == nil:
		d.reopened.Add(1)
	}
	return "", err
}

func (d *Daemon) limiterConfig(topology *region.Topology) limiter.Config {
	var g limiter.Global
	if d.replication != nil {
		g = d.ceilings
	} else if len(bounded(topology)) > 0 {
		g = lone{d.ceilings}
	}
	return LimiterConfig(topology, d.options.Region, g, d.manager.Processes)
}

// listen binds the listeners.
func (d *Daemon) listen() error {
	c := d.config.Load()
	o := httpapi.Options{
		Limiter: d.limiter, Usage: d.limiter.Usage, Ready: d.ready, Regions: func() any { return d.seen() }, Top: d.top, Reopen: d.reopen, Overrides: d.overrides,
		Settings: func() *httpapi.Settings { return d.config.Load().settings },
		Metrics:  d.telemetry.Handler(), Logger: d.log.With("component", "httpapi"), Meter: d.telemetry.Meter("httpapi"),
		Page: page.Files(), Events: d.stream, Demo: d.options.Demo,
		Deadline: d.options.Deadline, Tracing: d.tracing(c.tenantSecret()),
	}
	if d.denials != nil {
		o.Denied = d.denials.Write
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
	bound, at, err := d.bind("http", o.Address, most)
	if err != nil {
		return err
	}
	var server server = plain.New(data, d.log)
	if c.tls != nil {
		server, at = httpapi.NewServer(data, d.log, bound), tlsListener(at, func() *tls.Config { return d.config.Load().tls })
	}
	d.dataAt = d.serves(server, at)
	if err := d.listenGRPC(c, data, &o, most); err != nil {
		return err
	}
	o.Address = cmp.Or(d.options.Admin, c.region.Admin)
	if d.replication != nil && len(c.keys.Shared) > 0 {
		o.ResetEverywhere = d.replication.resets.Everywhere
	}
	admin, err := httpapi.NewAdmin(o)
	if err != nil {
		return err
	}
	if bound, at, err = d.bind("admin", o.Address, adminConnections); err != nil {
		return err
	}
	if c.adminTLS != nil {
		at = tlsListener(at, func() *tls.Config { return d.config.Load().adminTLS })
	}
	overHTTP := httpapi.NewServer(admin, d.log, bound)
	overHTTP.RegisterOnShutdown(d.stream.Close) // it waits for what is under way
	d.adminAt = d.serves(overHTTP, at)
	return nil
}

// serves has a server answer on a listener.
func (d *Daemon) serves(s server, at net.Listener) net.Listener {
	d.listeners = append(d.listeners, listening{s, at})
	return at
}

// tracing is how the APIs trace; nil while tracing is off. secret keys the hash of tenant ids, since
// a reader who knows it can test guesses.
func (d *Daemon) tracing(secret []byte) *httpapi.Tracing {
	tracer := d.telemetry.Tracer("httpapi")
	if tracer == nil {
		return nil
	}
	return &httpapi.Tracing{Tracer: tracer, Distrust: d.telemetry.LinksParents(), Tenant: d.telemetry.Tenant(secret)}
}

// listenGRPC binds the listeners of Envoy's services, if the region has any.
func (d *Daemon) listenGRPC(c *config, data *httpapi.Handler, api *httpapi.Options, most int) (err error) {
	address, compat := cmp.Or(d.options.GRPC, c.region.GRPC), c.topology.RLS.Compat
	if address == "" && compat == (region.Compat{}) {
		return nil
	}
	o := grpcapi.Options{
		Limiter: d.limiter, Authorize: data, Ready: d.ready, Region: c.region.Name, Deadline: d.options.Deadline, Tracing: api.Tracing, Denied: api.Denied,
		Settings: func() *grpcapi.Settings { return d.config.Load().grpc },
		Logger:   d.log.With("component", "grpcapi"), Meter: d.telemetry.Meter("grpcapi"),
	}
	if c.tls != nil {
		o.TLS = func() *tls.Config { return d.config.Load().tls }
	}
	s, err := grpcapi.New(o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = s.Close() // it never fails
		}
	}()
	bound, err := conn.New("grpc", most, d.telemetry.Meter("httpapi"))
	if err != nil {
		return err
	}
	if address != "" {
		at, err := open("grpc", address, "choose another with --grpc", bound)
		if err != nil {
			return err
		}
		d.grpcAt = d.serves(s, at)
	}
	if compat == (region.Compat{}) {
		return nil
	}
	overHTTP := s.Compat(d.log, bound)
	for _, l := range []struct {
		name, address string
		server        server
	}{{"grpc", compat.GRPC, s}, {"http", compat.HTTP, overHTTP}, {"debug", compat.Debug, overHTTP}} {
		at, err := open("compat "+l.name, l.address, fmt.Sprintf("move it with rls: {compat: {%s: \"host:port\"}}", l.name), bound)
		if err != nil {
			return err
		}
		if l.server != server(s) && o.TLS != nil {
			at = tlsListener(at, func() *tls.Config {
				own := o.TLS().Clone()
				own.NextProtos = []string{"http/1.1"}
				return own
			})
		}
		d.serves(l.server, at)
	}
	return nil
}

// listening is a server with one of its listeners.
type listening struct {
	server server
	at     net.Listener
}

// server is what answers on a listener.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// bind opens a listener of bounded connections.
func (d *Daemon) bind(name, addr string, most int) (*conn.Bound, net.Listener, error) {
	bound, err := conn.New(name, most, d.telemetry.Meter("httpapi"))
	if err != nil {
		return nil, nil, err
	}
	l, err := open(name, addr, "choose another with --"+name, bound)
	return bound, l, err
}

// open opens a listener whose connections count for bound. advice says what to do where its port is taken.
func open(name, addr, advice string, bound *conn.Bound) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w; %s", name, err, advice)
	}
	return bound.Listen(l), nil
}

// DataAddr is the address of the data listener.
func (d *Daemon) DataAddr() net.Addr { return d.dataAt.Addr() }

// GRPCAddr is the address of the listener of Envoy's services; nil without one.
func (d *Daemon) GRPCAddr() net.Addr {
	if d.grpcAt == nil {
		return nil
	}
	return d.grpcAt.Addr()
}

// AdminAddr is the address of the admin listener.
func (d *Daemon) AdminAddr() net.Addr { return d.adminAt.Addr() }

// Outcomes are how many requests of each policy this process has allowed and denied; what it shed is neither.
func (d *Daemon) Outcomes() map[string]limiter.Outcomes { return d.limiter.Outcomes() }

// Peek returns what a request would get. It spends nothing and is not counted.
func (d *Daemon) Peek(ctx context.Context, r quota.Request) (quota.Decision, error) {
	return d.limiter.Peek(ctx, r)
}

// Close releases what New opened, last opened first. Run does so itself.
func (d *Daemon) Close() error {
	errs := []error{d.cutOff()}
	for _, l := range d.listeners {
		if err := l.at.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, d.denials.Close())
	if d.redis != nil {
		errs = append(errs, d.redis.Close())
	}
	if d.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		errs = append(errs, d.telemetry.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
