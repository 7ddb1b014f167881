package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/sync/wire"
)

// neighbours is everything through which one process knows of the others:
//
//	limiter ◀── ceilings ◀── view (who) ◀── manager ◀── gossip
//	               ▲                            ▲
//	               └── ledger (how much) ◀──▶ mesh ◀──▶ bus ── NATS, embedded or not
//	                         ▲
//	                         └── recovery ◀── Redis
type neighbours struct {
	self     quota.Process
	key      wire.Key // of partitions' ids
	log      *slog.Logger
	topology func() *region.Topology
	ceilings *view.Ceilings
	offsets  *clock.PeerOffsets
	server   *natsbus.Embedded // nil with an external NATS
	bus      *natsbus.Bus
	mesh     *meshsync.Mesh
	gossip   *gossip.Gossip // nil without
	manager  *view.Manager
	recovery *view.CounterRecovery // nil when usage is kept in memory
	worst    *overshoot
	started  time.Time
}

// joinPatience is how long /readyz waits for the digests of peers.
const joinPatience = time.Second

// newNeighbours prepares them. It dials nobody.
func newNeighbours(d *Daemon) (*neighbours, error) {
	n := &neighbours{
		self:     quota.Process{Region: d.options.Region, Instance: d.options.Instance, Boot: time.Now().UnixMicro()},
		log:      d.log,
		topology: d.topology.Load,
		started:  time.Now(),
	}
	secret, err := gossipKey(d.self())
	if err != nil {
		return nil, err
	}
	if n.worst, err = newOvershoot(d.telemetry.meter("regiond")); err != nil {
		return nil, err
	}
	if err = n.openCeilings(d, secret); err != nil {
		return nil, err
	}
	if d.redis != nil {
		n.recovery = view.NewCounterRecovery(d.redis.Counters, n.ceilings, d.log.With("component", "totals"))
	}
	if err = n.openBus(d, secret); err != nil {
		return nil, err
	}
	if d.self().Gossip != nil || d.options.Transport != nil {
		if err = n.openGossip(d, secret); err != nil {
			return nil, err
		}
	}
	if err = n.openMesh(d); err != nil {
		return nil, err
	}
	if err = n.openManager(d); err != nil {
		return nil, err
	}
	m := d.telemetry.meter("regiond")
	return n, errors.Join(watchView(m, n), watchUsage(m, n.ceilings.Ledger().Census))
}

// gossipKey is the region's secret; nil when it has none.
func gossipKey(r *region.Region) ([]byte, error) {
	if r.Gossip == nil || r.Gossip.KeyFile == "" {
		return nil, nil
	}
	key, err := gossip.ReadKey(r.Gossip.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("region %s: gossip: %w", r.Name, err)
	}
	return key, nil
}

func (n *neighbours) now() time.Duration { return time.Since(n.started) }

func (n *neighbours) openCeilings(d *Daemon, secret []byte) (err error) {
	if n.offsets, err = clock.NewPeerOffsets(clock.PeerOptions{
		Now: n.now, Logger: d.log.With("component", "clock"), Meter: d.telemetry.meter("clock"),
	}); err != nil {
		return err
	}
	top := d.topology.Load()
	n.key = wire.NewKey(secret, top.Cluster)
	n.ceilings, err = view.NewCeilings(view.CeilingOptions{
		Self: n.self, Now: n.now, TimeUS: d.timeUS, Key: n.key, Topology: top,
		Offsets: n.offsets, Overshoot: n.worst.window, Meter: d.telemetry.meter("sync"),
		Check: d.tracing.sampled(),
	})
	return err
}

func (n *neighbours) openManager(d *Daemon) error {
	changes, err := newViewChanges(d.telemetry.meter("regiond"))
	if err != nil {
		return err
	}
	tracer := d.tracing.tracer("regiond")
	o := view.ManagerOptions{
		Ceilings: n.ceilings, Mesh: n.mesh,
		Processes: d.options.Processes,
		Logger:    d.log.With("component", "view"),
		OnEvent: func(e view.Event) {
			changes.count(e)
			changed(tracer, e)
		},
	}
	if n.gossip != nil {
		o.Members, o.MembersChanged = n.gossip.Members, n.gossip.Changed()
	}
	if n.recovery != nil {
		o.Recover = n.recovery.Request
	}
	n.manager, err = view.NewManager(o)
	return err
}

// ownGossip is where this process gossips: the topology's addresses, or those of
// --gossip for one among several of its region.
func ownGossip(d *Daemon) (bind, advertise string) {
	g := d.self().Gossip
	if d.options.Gossip != "" {
		return d.options.Gossip, ""
	}
	return g.Bind, g.Advertise
}

func (n *neighbours) openGossip(d *Daemon, secret []byte) error {
	o := gossip.Options{
		Region: n.self.Region, Instance: n.self.Instance, Boot: n.self.Boot,
		ConfigHash: d.hash, Version: d.options.Version[:min(len(d.options.Version), 64)], // as gossip limits it
		Key: secret, Cluster: d.topology.Load().Cluster,
		Seeds: func() []string { return seeds(n.topology()) },
		Regions: func(name string) bool {
			_, ok := n.topology().Region(name)
			return ok
		},
		Transport: d.options.Transport,
		Logger:    d.log.With("component", "gossip"), Meter: d.telemetry.meter("gossip"),
	}
	if o.Transport == nil {
		o.Bind, o.Advertise = ownGossip(d)
	}
	var err error
	if n.gossip, err = gossip.New(o); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

func seeds(top *region.Topology) []string {
	var addrs []string
	for i := range top.Regions {
		if g := top.Regions[i].Gossip; g != nil {
			addrs = append(addrs, g.Advertise)
		}
	}
	return addrs
}

func (n *neighbours) openBus(d *Daemon, secret []byte) error {
	r := d.self()
	config, err := clientTLS(r.NATS.TLS)
	if err != nil {
		return fmt.Errorf("region %s: nats: %w", r.Name, err)
	}
	o := natsbus.Options{
		Region: r.Name, Name: "regiond/" + r.Name + "/" + n.self.Instance,
		Logger: d.log.With("component", "nats"), Meter: d.telemetry.meter("nats"),
	}
	if r.NATS.Embedded {
		server := embeddedOptions(d, secret)
		server.TLS, server.Logger, server.Meter = config, o.Logger, o.Meter
		if n.server, err = natsbus.NewEmbedded(server); err != nil {
			return fmt.Errorf("region %s: embedded nats: %w", r.Name, err)
		}
		o.Server = n.server
	} else {
		o.URLs, o.CredsFile, o.TLS = r.NATS.URLs, r.NATS.CredsFile, config
	}
	if n.bus, err = natsbus.New(o); err != nil {
		return fmt.Errorf("region %s: nats: %w", r.Name, err)
	}
	return nil
}

// embeddedOptions are those of the NATS server inside this process: under the
// region's name at the topology's address, or, started with --gossip, under a name
// of its own at the port after that, which joins all and is found.
func embeddedOptions(d *Daemon, secret []byte) natsbus.EmbeddedOptions {
	r := d.self()
	o := natsbus.EmbeddedOptions{Name: r.Name}
	if secret != nil { // two deployments may share a key, and must not join
		o.Secret = append(append([]byte{}, secret...), d.topology.Load().Cluster...)
	}
	if d.options.Gossip != "" {
		o.Name = r.Name + "." + d.options.Instance
		o.ListenAddr = gatewayOf(d.options.Gossip)
	} else if r.NATS.Gateway != "" {
		_, port, _ := net.SplitHostPort(r.NATS.Gateway)
		host, _, _ := net.SplitHostPort(gossipBind(r))
		o.ListenAddr, o.Advertise = net.JoinHostPort(host, port), r.NATS.Gateway
	}
	if o.ListenAddr == "" {
		return o
	}
	top := d.topology.Load()
	for i := range top.Regions {
		other := &top.Regions[i]
		if other.NATS.Embedded && other.NATS.Gateway != "" && other.Name != o.Name {
			o.Remotes = append(o.Remotes, natsbus.Remote{Name: other.Name, Addr: other.NATS.Gateway})
		}
	}
	return o
}

func gossipBind(r *region.Region) string {
	if r.Gossip == nil {
		return r.NATS.Gateway
	}
	return r.Gossip.Bind
}

// gatewayOf is the port after an address, and any port after any.
func gatewayOf(gossip string) string {
	host, port, err := net.SplitHostPort(gossip)
	number, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil || number == 0 || number == 65535 {
		return net.JoinHostPort(host, "0")
	}
	return net.JoinHostPort(host, strconv.Itoa(number+1))
}

func (n *neighbours) openMesh(d *Daemon) error {
	var bus meshsync.Bus = n.bus
	if d.options.WrapBus != nil {
		bus = d.options.WrapBus(bus)
	}
	o := meshsync.Options{
		Self: n.self, Key: n.key, Bus: bus, Counters: n.ceilings.Ledger(), Now: n.now, TimeUS: d.timeUS,
		Known: func(name string) bool {
			_, ok := n.topology().Region(name)
			return ok
		},
		Regions: func() []string {
			var names []string
			for i := range n.topology().Regions {
				names = append(names, n.topology().Regions[i].Name)
			}
			return names
		},
		View: n.ceilings.Advertised,
		OnExchange: func(peer quota.Process, e meshsync.Exchange) {
			if peer.Region == n.self.Region {
				return // one store, one clock
			}
			if err := n.offsets.Observe(peer.Region, e.SentUS, e.ReceivedUS, e.RepliedUS, e.HeardUS); err != nil {
				n.log.Debug("a time exchange makes no sense", "region", peer.Region, "error", err)
			}
		},
		Logger: d.log.With("component", "mesh"), Meter: d.telemetry.meter("sync"),
		Tracer: d.tracing.tracer("sync"), Checks: n.ceilings.Ledger().Checks,
	}
	if n.recovery != nil {
		o.RecoverCounters = n.recovery.Request
	}
	var err error
	n.mesh, err = meshsync.New(o)
	return err
}

// configure puts a topology in force.
func (n *neighbours) configure(top *region.Topology) {
	if n.gossip != nil {
		n.gossip.Update()
	}
	n.manager.Configure(top)
}

// run runs everything until ctx ends, and stops it in the order in which it says
// goodbye: the mesh publishes what is left while the bus still carries it.
func (n *neighbours) run(ctx context.Context) error {
	var stack []func(context.Context) error
	if n.server != nil {
		stack = append(stack, n.server.Run)
	}
	stack = append(stack, n.bus.Run)
	if n.gossip != nil {
		stack = append(stack, n.gossip.Run)
	}
	stack = append(stack, n.mesh.Run, n.manager.Run)
	if n.recovery != nil {
		stack = append(stack, n.recovery.Run)
	}
	return runStack(ctx, stack)
}

// ready says why traffic should wait, "" when it need not.
func (n *neighbours) ready() string {
	if p, ok := n.mesh.Duplicate(); ok {
		return fmt.Sprintf("another process serves region %s as instance %s since %s: give each its own --instance",
			p.Region, p.Instance, time.UnixMicro(p.Boot).UTC().Format(time.RFC3339))
	}
	if n.now() < joinPatience && !n.ceilings.View().Joined() {
		return "joining: waiting for what the other regions have used"
	}
	return ""
}
