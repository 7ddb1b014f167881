package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// Daemon is one process of one region:
//
//	gateways            operators          topology.yaml, secrets
//	   │ /v1/check          │ /metrics …          │ reload
//	   ▼                    ▼                     ▼
//	data listener       admin listener         watcher
//	   └──── httpapi ───────┘  ◀── settings ──────┤
//	            │ Check                           │
//	            ▼                                 │
//	         limiter  ◀── policies ───────────────┘
//	            │   ▲
//	            │   └── ceilings ── neighbours ◀── NATS, gossip ──▶ other regions
//	            │ Decide        (local memory while the store is away)
//	            ▼
//	     RedisStore or MemoryStore ◀── clock.Tracker reads its TIME
type Daemon struct {
	options   *Options
	log       *slog.Logger
	level     *slog.LevelVar
	telemetry *telemetry
	tracing   *tracing // nil while off
	reloads   reloadMetrics

	started *region.Topology  // what the listeners and the store were opened by
	seen    [sha256.Size]byte // fingerprint of the files in force; of New, then of watchFiles
	// What was in the files that are read once, by path, at the start.
	sums     map[string][sha256.Size]byte
	hangUps  chan struct{} // has an element when SIGHUP has asked for a reload
	topology atomic.Pointer[region.Topology]
	settings atomic.Pointer[httpapi.Settings]
	password atomic.Pointer[string]
	tls      *serverTLS // nil without a certificate

	limiter        *limiter.Limiter
	limiterMetrics *limiter.Metrics
	redis          *limiter.RedisStore // nil when usage is kept in memory
	clock          *clock.Tracker
	neighbours     *neighbours // nil for one region without gossip

	data, admin       *http.Server
	dataAt, adminAt   net.Listener
	draining, serving atomic.Bool
}

// shutdownTimeout bounds each step of a shutdown.
const shutdownTimeout = 5 * time.Second

// New builds everything and binds the listeners, so that what is wrong is
// said before anything runs.
func New(o *Options, top *region.Topology, log *slog.Logger, level *slog.LevelVar) (_ *Daemon, err error) {
	d := &Daemon{options: o, log: log, level: level, hangUps: make(chan struct{}, 1)}
	if o.Region == "" {
		o.Region = top.Regions[0].Name
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if err = d.openRooms(top); err != nil {
		return nil, err
	}
	return d, d.openDoors()
}

// openRooms builds everything that stands behind the doors.
func (d *Daemon) openRooms(top *region.Topology) (err error) {
	if d.telemetry, err = newTelemetry(d.options, d.log); err != nil {
		return err
	}
	if err = d.openTracing(); err != nil {
		return err
	}
	if err = d.apply(top); err != nil {
		return err
	}
	// Before they are read: what changes meanwhile is told in vain rather than not at all.
	d.started, d.seen, d.sums = top, d.fingerprint(), sumsOf(readOnce(d.self()))
	if d.reloads, err = newReloadMetrics(d.telemetry.meter("regiond"), d.hash); err != nil {
		return err
	}
	if err = watchProcess(d.telemetry.meter("regiond"), d.options.Version, d.options.Commit, d.ready); err != nil {
		return err
	}
	if d.limiterMetrics, err = limiter.NewMetrics(d.telemetry.meter("limiter")); err != nil {
		return err
	}
	store, timeUS, err := d.openStore()
	if err != nil {
		return err
	}
	d.clock, err = clock.New(clock.Options{
		Read: timeUS, Logger: d.log.With("component", "clock"), Meter: d.telemetry.meter("clock"),
	})
	if err != nil {
		return err
	}
	if len(top.Regions) > 1 || d.self().Gossip != nil {
		if d.neighbours, err = newNeighbours(d); err != nil {
			return err
		}
	}
	return d.openLimiter(store)
}

func (d *Daemon) openTracing() (err error) {
	d.tracing, err = newTracing(d.telemetry.resource, d.telemetry.meter("regiond"), d.log.With("component", "tracing"))
	if d.tracing != nil {
		d.log = slog.New(tracedLines{d.log.Handler()})
	}
	return err
}

// self is this region in the topology in force.
func (d *Daemon) self() *region.Region {
	r, _ := d.topology.Load().Region(d.options.Region)
	return r
}

func (d *Daemon) hash() string { return d.topology.Load().Hash() }

// timeUS is the store's clock now; this host's until the store's was read once.
func (d *Daemon) timeUS() int64 {
	if r := d.clock.Reading(); r.NowUS > 0 {
		return r.NowUS
	}
	return time.Now().UnixMicro()
}

var redisModes = map[region.RedisMode]limiter.RedisMode{
	region.RedisStandalone: limiter.RedisStandalone,
	region.RedisSentinel:   limiter.RedisSentinel,
	region.RedisCluster:    limiter.RedisCluster,
}

// openStore returns where usage is kept, and the clock there.
func (d *Daemon) openStore() (limiter.Store, func(context.Context) (int64, error), error) {
	r := d.self().Redis
	if r.Embedded {
		m := limiter.NewMemoryStore(limiter.MemoryOptions{Now: d.options.memoryUS})
		return m, m.TimeUS, nil
	}
	config, err := clientTLS(r.TLS)
	if err != nil {
		return nil, nil, fmt.Errorf("region %s: redis: %w", d.options.Region, err)
	}
	watch, err := readSecret(r.SentinelPasswordFile)
	if err != nil {
		return nil, nil, fmt.Errorf("region %s: redis: sentinels: %w", d.options.Region, err)
	}
	d.redis, err = limiter.NewRedisStore(limiter.RedisOptions{
		Mode: redisModes[r.Mode], Addrs: r.Addrs, Master: r.Master, TLS: config, Dial: d.options.dialRedis,
		SentinelUsername: r.SentinelUsername, SentinelPassword: watch,
		Credentials: func() (string, string) { return r.Username, *d.password.Load() },
		ClientName:  "regiond/" + d.options.Region + "/" + d.options.Instance,
		Budget:      d.options.Budget,
		Logger:      d.log.With("component", "redis"),
		Tracer:      d.tracing.tracer("limiter"),
	}, d.limiterMetrics)
	if err != nil {
		return nil, nil, err
	}
	return d.redis, d.redis.TimeUS, nil
}

func (d *Daemon) openLimiter(store limiter.Store) error {
	var err error
	d.limiter, err = limiter.New(limiter.Options{
		Store: store, Config: d.limiterConfig(d.topology.Load()),
		Logger: d.log.With("component", "limiter"), Metrics: d.limiterMetrics,
	})
	return err
}

func (d *Daemon) limiterConfig(top *region.Topology) limiter.Config {
	if d.neighbours == nil {
		return LimiterConfig(top, d.options.Region, nil, func() int64 { return d.options.Processes })
	}
	return LimiterConfig(top, d.options.Region, d.neighbours.ceilings, d.neighbours.manager.Processes)
}

func (d *Daemon) openDoors() error {
	secret, err := d.tenantSecret()
	if err != nil {
		return err
	}
	o := httpapi.Options{
		Limiter: d.limiter, Settings: d.settings.Load, Ready: d.ready, Regions: d.regions,
		Metrics: d.telemetry.handler(), Logger: d.log.With("component", "httpapi"), Meter: d.telemetry.meter("httpapi"),
		Deadline: d.options.Deadline, Tracing: d.tracing.door(secret),
	}
	data, err := httpapi.NewData(o)
	if err != nil {
		return err
	}
	admin, err := httpapi.NewAdmin(o)
	if err != nil {
		return err
	}
	d.data, d.admin = httpapi.NewServer(data, d.log), httpapi.NewServer(admin, d.log)
	if d.dataAt, err = listen("http", d.options.HTTP, d.self().HTTP); err != nil {
		return err
	}
	if d.tls != nil {
		d.dataAt = d.tls.listener(d.dataAt)
	}
	d.adminAt, err = listen("admin", d.options.Admin, d.self().Admin)
	return err
}

// tenantSecret keys what spans show of tenants: the gossip key, as for partitions on
// the wire, or the cluster's name when there is none.
func (d *Daemon) tenantSecret() ([]byte, error) {
	key, err := gossipKey(d.self())
	if key == nil {
		key = []byte(d.topology.Load().Cluster)
	}
	return key, err
}

func listen(what, flag, configured string) (net.Listener, error) {
	addr := configured
	if flag != "" {
		addr = flag
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s listener: %w; choose another with --%s", what, err, what)
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

// Run serves until ctx ends or a signal comes. Actors are interrupted in the
// order of their adding: the doors close and finish what they have begun before
// the rooms behind them stop.
func (d *Daemon) Run(ctx context.Context, signals <-chan os.Signal) error {
	var g run.Group
	stop := make(chan struct{})
	d.addServer(&g, d.data, d.dataAt)
	d.addServer(&g, d.admin, d.adminAt)
	for _, actor := range d.actors(signals, stop) {
		ctx, cancel := context.WithCancel(ctx)
		g.Add(func() error { return actor(ctx) }, func(error) { cancel() })
	}
	d.serving.Store(true)
	err := g.Run()
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

func (d *Daemon) actors(signals <-chan os.Signal, stop chan struct{}) []func(context.Context) error {
	actors := []func(context.Context) error{
		func(ctx context.Context) error { return awaitStop(ctx, stop) },
		func(ctx context.Context) error { return d.await(ctx, signals, stop) },
		d.clock.Run,
		d.watch,
	}
	if d.redis != nil {
		actors = append(actors, d.redis.Run)
	}
	if d.neighbours != nil {
		actors = append(actors, d.neighbours.run)
	}
	return actors
}

func (d *Daemon) addServer(g *run.Group, s *http.Server, l net.Listener) {
	g.Add(func() error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %v: %w", l.Addr(), err)
		}
		return nil
	}, func(error) {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			d.log.Warn("requests were cut off at shutdown", "listener", l.Addr().String(), "error", s.Close())
		}
	})
}

var errStopped = errors.New("stopped")

// awaitStop ends the group when a signal has said so. It is an actor of its own
// because await goes on listening while the doors close.
func awaitStop(ctx context.Context, stop <-chan struct{}) error {
	select {
	case <-ctx.Done():
	case <-stop:
	}
	return errStopped
}

// await turns signals into what they ask for: SIGHUP has watch reload, SIGTERM drains
// and stops, Ctrl-C stops, and a second of these does not wait for anything.
func (d *Daemon) await(ctx context.Context, signals <-chan os.Signal, stop chan<- struct{}) error {
	var drained <-chan time.Time // nil until the first signal to stop
	for {
		select {
		case <-ctx.Done():
			return errStopped
		case <-drained:
			close(stop)
			drained = make(chan time.Time) // closed once
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				select {
				case d.hangUps <- struct{}{}:
				default: // the reload that waits will read the same files
				}
			case drained == nil:
				drained = d.drain(s)
			default:
				d.log.Warn("second signal: stopping at once", "error", errors.Join(d.data.Close(), d.admin.Close()))
				return errStopped
			}
		}
	}
}

// drain makes /readyz fail and returns when to stop: after SIGTERM the doors go
// on serving while load balancers learn to go elsewhere.
func (d *Daemon) drain(s os.Signal) <-chan time.Time {
	d.draining.Store(true)
	d.log.Info("stopping", "signal", s.String())
	if s == syscall.SIGTERM {
		return time.After(d.options.Drain)
	}
	return time.After(0)
}

// Close gives back what New took, last taken first.
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
