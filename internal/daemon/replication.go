package daemon

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/regiond/regiond/clock"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/limiter/top"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/loans"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/region/overrides"
	"github.com/regiond/regiond/region/state"
	"github.com/regiond/regiond/region/view"
	meshsync "github.com/regiond/regiond/sync"
	"github.com/regiond/regiond/sync/ledger"
	"github.com/regiond/regiond/sync/natsbus"
	"github.com/regiond/regiond/sync/resets"
	"github.com/regiond/regiond/sync/wire"
)

// joinTimeout is how long /readyz waits for the snapshots of peers.
const joinTimeout = time.Second

// replication exchanges usage with the other processes and decides whom to count on:
//
//	limiter ── asked ─▶ tender ── loans ─▶ store, mesh
//	limiter ◀── ceilings ◀── view ◀── manager ◀── members ◀── mesh, gossip, state
//	               ▲
//	               └──── ledger ◀────▶ mesh ◀──▶ bus ── NATS, embedded or not
//	                       ▲
//	                       └── recovery ◀── Redis
type replication struct {
	d        *Daemon
	self     quota.Process
	members  *members.Table
	started  time.Time
	ceilings *view.Ceilings
	offsets  *clock.PeerOffsets
	server   *natsbus.Embedded // nil with an external NATS
	bus      *natsbus.Bus
	mesh     *meshsync.Mesh
	state    *state.State
	gossip   *gossip.Gossip // nil without
	manager  *view.Manager
	recovery *view.CounterRecovery // nil when usage is kept in memory
	tender   *loans.Tender
	resets   *resets.Resets
	top      *top.Exchange
	worst    *ledger.Overshoot
	beyond   *ledger.Excess
	changes  func(view.Event) // counts them
}

// newReplication makes the parts in the order of their dependencies and opens no connection. bind
// connects those that need each other. stateOf is what the region's state needs of the store.
func newReplication(d *Daemon, store loans.Store, stateOf state.Options) (*replication, error) {
	c := d.config.Load()
	r := &replication{
		d:       d,
		self:    quota.Process{Region: c.region.Name, Instance: d.options.Instance, Boot: time.Now().UnixMicro()},
		started: time.Now(),
	}
	r.members = members.New(r.self)
	i := instruments.On(d.telemetry.Meter("regiond"))
	r.worst, r.changes = ledger.NewOvershoot(i), countChanges(i)
	r.beyond = ledger.NewExcess(i, c.topology.RegionNames(), d.log.With("component", "mesh"))
	stateOf.Members, stateOf.Now = r.members, r.now
	r.state = state.New(stateOf)
	for _, open := range []func(*config) error{r.openCeilings, r.openBus, r.openGossip, r.openMesh, r.openManager} {
		if err := open(c); err != nil {
			return nil, err
		}
	}
	var err error
	if r.tender, err = loans.New(loans.Options{
		Send: r.mesh.SendLoans, Self: r.self, Now: r.now, Store: store, Bound: r.bound, Processes: r.members.Siblings, Trip: r.trip,
		Lost: r.state.Lose, Seen: r.state.Seen, Meter: d.telemetry.Meter("regiond"),
	}); err != nil {
		return nil, err
	}
	r.top = top.NewExchange(top.ExchangeOptions{
		Recorder: d.recorder, Self: r.self, Live: r.received, Alone: r.topAlone, Send: r.mesh.SendTop, Regions: r.regions,
	})
	r.watchView(i)
	return r, i.Err()
}

func (r *replication) openCeilings(c *config) (err error) {
	d := r.d
	if r.offsets, err = clock.NewPeerOffsets(clock.Options{
		Now: r.now, Logger: d.log.With("component", "clock"), Meter: d.telemetry.Meter("clock"),
	}); err != nil {
		return err
	}
	if r.ceilings, err = view.NewCeilings(view.CeilingOptions{
		Self: r.self, Now: r.now, TimeUS: d.timeUS, Key: c.partitionKey(), Topology: c.topology,
		Ledger: ledger.Options{
			Overshoot: r.worst.Window, Excess: r.beyond.Claimed, Lost: r.state.Lose, Meter: d.telemetry.Meter("sync"),
		},
		Offsets: r.offsets, Store: r.state.Store, Window: r.state.Window, Files: r.files, Check: d.telemetry.Sampled(),
	}); err != nil {
		return err
	}
	if d.redis != nil {
		r.recovery = view.NewCounterRecovery(d.redis.Counters, r.ceilings, d.log.With("component", "totals"))
	}
	return nil
}

// bind connects the parts that need each other, before anything is decided or received. reset deletes
// what this region has of a tenant, usage counters of generations up to upTo included.
//
//	mesh, ledger ─▶ resets ─▶ limiter ─▶ ceilings
//	mesh, ceilings ─▶ tender ─▶ mesh
//	mesh ─▶ top ─▶ mesh
func (r *replication) bind(reset func(ctx context.Context, tenant string, upTo int64) error) {
	r.resets = resets.New(resets.Options{
		Self: r.self, Ledger: r.ceilings.Ledger(), Send: r.mesh.SendReset, Delete: reset, BurntMS: r.d.burntMS, Regions: r.regions, Live: r.received,
		Now: r.now, TimeUS: r.d.timeUS, Timeout: httpapi.ResetTimeout - 500*time.Millisecond, Logger: r.d.log,
	})
	if len(r.d.config.Load().keys.Shared) > 0 { // else tenants would travel in clear
		r.d.overrides.Connect(overrides.Peers{Self: r.self, Send: r.mesh.SendOverrides, Regions: r.regions, Live: r.received})
	}
	r.mesh.SetReceivers(meshsync.Receivers{Loans: r.tender.Receive, Reset: r.resets.Receive, Top: r.top.Receive, Overrides: r.d.overrides.Receive})
	r.ceilings.Bind(r.tender.Asked, r.resets.Returned)
}

func (r *replication) now() time.Duration { return time.Since(r.started) }

// received are the other processes that are received now.
func (r *replication) received() []quota.Process { return r.members.Received(r.now()) }

func (r *replication) topology() *region.Topology { return r.d.config.Load().topology }

func (r *replication) regions() []string { return r.topology().RegionNames() }

func (r *replication) known(name string) bool {
	_, ok := r.topology().Region(name)
	return ok
}

func (r *replication) openManager(*config) error {
	tracer := r.d.telemetry.Tracer("regiond")
	var recoverCounters func() // that only the store knows; nil when usage is kept in memory
	if r.recovery != nil {
		recoverCounters = r.recovery.Request
	}
	r.manager = view.NewManager(view.ManagerOptions{
		Ceilings: r.ceilings, Members: r.members, HeartbeatSoon: r.mesh.HeartbeatSoon, State: r.state,
		Processes: r.d.options.Processes, Recover: recoverCounters,
		Logger: r.d.log.With("component", "view"),
		OnEvent: func(e view.Event) {
			r.changes(e)
			traceChange(tracer, e)
		},
	})
	return nil
}

// openGossip listens at the topology's addresses, or at that of --gossip for one
// process among several of its region; nowhere for a region without gossip.
func (r *replication) openGossip(c *config) (err error) {
	if c.region.Gossip == nil && r.d.options.Transport == nil {
		return nil
	}
	o := gossip.Options{
		Members:    r.members,
		ConfigHash: r.d.hash, Version: r.d.options.Version[:min(len(r.d.options.Version), 64)], // as gossip limits it
		Keys: c.keys.Shared, Cluster: c.topology.Cluster,
		Seeds: r.seeds, Regions: r.known,
		Transport: r.d.options.Transport,
		Logger:    r.d.log.With("component", "gossip"), Meter: r.d.telemetry.Meter("gossip"),
	}
	switch {
	case r.d.options.Transport != nil:
	case r.d.options.Gossip != "":
		o.Bind = r.d.options.Gossip
	default:
		o.Bind, o.Advertise = c.region.Gossip.Bind, c.region.Gossip.Advertise
	}
	if r.gossip, err = gossip.New(o); err != nil {
		return fmt.Errorf("gossip: %w", err)
	}
	return nil
}

// seeds are the addresses at which the topology has processes gossip.
func (r *replication) seeds() (addrs []string) {
	for _, other := range r.topology().Regions {
		if g := other.Gossip; g != nil {
			addrs = append(addrs, g.Advertise)
		}
	}
	return addrs
}

func (r *replication) openBus(c *config) error {
	trust, err := clientTLS(c.region.NATS.TLS)
	if err != nil {
		return fmt.Errorf("region %s: nats: %w", c.region.Name, err)
	}
	o := natsbus.Options{
		Region: c.region.Name, Name: "regiond/" + c.region.Name + "/" + r.self.Instance,
		Logger: r.d.log.With("component", "nats"), Meter: r.d.telemetry.Meter("nats"),
	}
	if c.region.NATS.Embedded {
		server := embeddedOptions(c, r.self.Instance, r.d.options.Gossip)
		if server.TLS, err = gatewayTLS(c); err != nil {
			return fmt.Errorf("region %s: embedded nats: %w", c.region.Name, err)
		}
		server.Logger, server.Meter = o.Logger, o.Meter
		if r.server, err = natsbus.NewEmbedded(server); err != nil {
			return fmt.Errorf("region %s: embedded nats: %w", c.region.Name, err)
		}
		o.Server = r.server
	} else {
		n := &c.region.NATS
		o.URLs, o.TLS = n.URLs, trust
		if n.CredsFile != "" {
			o.Creds = func() ([]byte, error) { return files.Read(n.CredsFile) }
		}
		o.Username, o.Password = n.Username, func() (string, error) { return readSecret(n.PasswordFile) }
	}
	if r.bus, err = natsbus.New(o); err != nil {
		return fmt.Errorf("region %s: nats: %w", c.region.Name, err)
	}
	return nil
}

// embeddedOptions are those of the NATS server inside this process. It has the
// region's name and the topology's address, or, for a process started with --gossip, a
// name of its own and the port after that of gossip: it connects to all others, and
// these learn of it.
func embeddedOptions(c *config, instance, gossipAddr string) natsbus.EmbeddedOptions {
	self := c.region
	o := natsbus.EmbeddedOptions{Name: self.Name}
	if gossipAddr != "" {
		o.Name = self.Name + "." + instance
		o.ListenAddr = nextPort(gossipAddr)
	} else if self.NATS.Gateway != "" {
		bind := self.NATS.Gateway
		if self.Gossip != nil {
			bind = self.Gossip.Bind
		}
		_, port, _ := net.SplitHostPort(self.NATS.Gateway)
		host, _, _ := net.SplitHostPort(bind)
		o.ListenAddr, o.Advertise = net.JoinHostPort(host, port), self.NATS.Gateway
	}
	if o.ListenAddr == "" {
		return o
	}
	for i := range c.topology.Regions {
		other := &c.topology.Regions[i]
		if other.NATS.Embedded && other.NATS.Gateway != "" && other.Name != o.Name {
			o.Remotes = append(o.Remotes, natsbus.Remote{Name: other.Name, Addr: other.NATS.Gateway})
		}
	}
	return o
}

// nextPort is the port after an address, and any port after any.
func nextPort(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	number, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil || number == 0 || number == 65535 {
		return net.JoinHostPort(host, "0")
	}
	return net.JoinHostPort(host, strconv.Itoa(number+1))
}

func (r *replication) openMesh(c *config) error {
	secret, err := wire.NewSecret(c.keys.Shared, c.topology.Cluster)
	if err != nil {
		return err
	}
	var bus meshsync.Bus = r.bus
	if r.d.options.WrapBus != nil {
		bus = r.d.options.WrapBus(bus)
	}
	r.mesh, err = meshsync.New(meshsync.Options{
		Members: r.members, Key: c.partitionKey(), Secret: secret, Bus: bus, Counters: r.ceilings.Ledger(), Now: r.now, TimeUS: r.d.timeUS,
		Regions: r.regions, View: r.ceilings.Advertised,
		OnExchange: func(peer quota.Process, e meshsync.Exchange) {
			if peer.Region == r.self.Region {
				return // one store, one clock
			}
			if err := r.offsets.Observe(peer.Region, e.SentUS, e.ReceivedUS, e.RepliedUS, e.ReturnedUS); err != nil {
				r.d.log.Debug("a time exchange makes no sense", "region", peer.Region, "error", err)
			}
		},
		Logger: r.d.log.With("component", "mesh"), Meter: r.d.telemetry.Meter("sync"),
		Tracer: r.d.telemetry.Tracer("sync"),
	})
	return err
}

// topAlone is why processes do not send each other whom they denied.
func (r *replication) topAlone() string {
	switch c := r.d.config.Load(); {
	case !c.topology.ShareTop:
		return "share_top is false in topology.yaml"
	case len(c.keys.Shared) == 0:
		return "names of tenants travel only under a shared key, gossip.key_file"
	}
	return ""
}

// partitionKey makes the ids of partitions on the wire.
func (c *config) partitionKey() wire.Key { return wire.NewKey(c.keys.Partitions, c.topology.Cluster) }

// files are the configurations of other regions, as view.CeilingOptions has them. Gossip is there wherever a limit has a bound.
func (r *replication) files() (differ, unseen []string, alike time.Duration) {
	if r.gossip == nil {
		return nil, nil, math.MaxInt64
	}
	differ, alike = r.gossip.Alike()
	seen := append([]string{r.self.Region}, differ...)
	for _, m := range r.gossip.Members() {
		if m.Gossip.State == members.Alive {
			seen = append(seen, m.Region)
		}
	}
	return differ, slices.DeleteFunc(r.regions(), func(name string) bool { return slices.Contains(seen, name) }), alike
}

// bound is what the tender goes by.
func (r *replication) bound(ctx context.Context, key *quota.CounterKey) (b loans.Bound, ok bool, err error) {
	if b.Limit, err = r.d.limiter.LimitOf(ctx, key); b.Limit == nil {
		return b, false, err
	}
	b.Bound, b.Regions, ok = r.ceilings.Bound(key.Policy, b.Limit)
	return b, ok, nil
}

// usualTrip is how long a message to another region takes while that is not known.
const usualTrip = 120 * time.Millisecond

// trip is how long a message takes to the region that is farthest away.
func (r *replication) trip() time.Duration {
	longest := time.Duration(0)
	for _, rtt := range r.roundTrips() {
		longest = max(longest, rtt/2)
	}
	return cmp.Or(longest, usualTrip)
}

// checkKeys refuses keys by which peers would know our partitions no more.
func (r *replication) checkKeys(c *config) error {
	if before := r.d.started.keys.Partitions; before != nil && c.keys.Partitions != nil && !bytes.Equal(before, c.keys.Partitions) {
		return fmt.Errorf("%s: partitions would have other ids than in regions that still use the former key: "+
			"keep that key in a line that begins with \"partitions \"", c.region.Gossip.KeyFile)
	}
	return nil
}

// setKeys signs, encrypts and accepts by other shared keys from now on. The first key and the
// last need a restart, as another cluster does.
func (r *replication) setKeys(c *config) error {
	if len(r.d.started.keys.Shared) == 0 || len(c.keys.Shared) == 0 {
		return nil
	}
	secret, err := wire.NewSecret(c.keys.Shared, r.d.started.topology.Cluster)
	if err != nil {
		return err
	}
	if r.gossip != nil {
		if err := r.gossip.SetKeys(c.keys.Shared); err != nil {
			return err
		}
	}
	if r.server != nil {
		t, err := gatewayTLS(c)
		if err != nil {
			return err
		}
		if err := r.server.SetTLS(t); err != nil {
			return err
		}
	}
	r.mesh.SetSecret(secret)
	return nil
}

// configure puts a topology in force.
func (r *replication) configure(topology *region.Topology) {
	if r.gossip != nil {
		r.gossip.Update()
	}
	r.manager.Configure(topology)
	r.beyond.Watch(topology.RegionNames())
}

// components are in the order in which they stop: the mesh publishes what is left, and
// that this process leaves, while the bus still carries it.
func (r *replication) components() []component {
	var all []component
	if r.recovery != nil {
		all = append(all, r.recovery.Run)
	}
	all = append(all, r.resets.Run, r.top.Run, r.tender.Run, r.manager.Run, r.mesh.Run, r.state.Run)
	if r.gossip != nil {
		all = append(all, r.gossip.Run)
	}
	all = append(all, r.bus.Run)
	if r.server != nil {
		all = append(all, r.server.Run)
	}
	return all
}

// notReady is why no traffic should come here yet, "" once it may.
func (r *replication) notReady() string {
	if p, ok := r.mesh.Duplicate(); ok {
		return fmt.Sprintf("another process serves region %s as instance %s since %s: give each its own --instance",
			p.Region, p.Instance, time.UnixMicro(p.Boot).UTC().Format(time.RFC3339))
	}
	if s := r.state.Snapshot(); s.Refused != "" && !s.Adopted {
		return s.Refused
	}
	if r.now() < joinTimeout && r.ceilings.View().Joining {
		return "joining: waiting for what the other regions have used"
	}
	return ""
}
