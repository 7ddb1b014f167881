package gossip

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/internal/base/signal"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/members"
)

// Gossip is the membership of one process.
type Gossip struct {
	options Options
	metrics *metrics
	members *table
	keys    *memberlist.Keyring
	list    atomic.Pointer[memberlist.Memberlist] // nil before Run and after it
	update  chan struct{}

	mu       sync.Mutex
	differs  time.Time          // since when configurations of processes alive differ; zero while they agree
	last     map[string]string  // by region: the configuration that was seen there last, another than ours if there were two
	others   []string           // the regions in which that is another
	differed time.Time          // when there was none of them again
	targets  map[string]*target // by host:port
}

// New returns a Gossip that does nothing before Run. Its error lists every
// option that is wrong.
func New(o Options) (*Gossip, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("gossip options: %w", err)
	}
	g := &Gossip{options: o, update: make(chan struct{}, 1), last: map[string]string{}, targets: map[string]*target{}}
	g.members = &table{
		Table: o.Members, known: o.Regions, log: o.Logger,
		refused: func(reason string) { g.metrics.refused.Add(1, "reason", reason) },
	}
	keys := o.Keys
	if len(keys) == 0 {
		// One way to read and write all messages. On loopback this keeps out other
		// clusters and mistakes, and nobody who means harm.
		sum := sha256.Sum256([]byte("regiond gossip without a key\n" + o.Cluster))
		keys = [][]byte{sum[:]}
	}
	var err error
	if g.keys, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
		return nil, fmt.Errorf("gossip options: Keys: %w", err)
	}
	g.metrics, err = newMetrics(o.Meter, g)
	return g, err
}

// SetKeys uses the first of keys from now on, and accepts all of them and no other. A Gossip
// that began without a key stays without.
func (g *Gossip) SetKeys(keys [][]byte) (err error) {
	if len(g.options.Keys) == 0 || len(keys) == 0 {
		return nil
	}
	for _, k := range keys {
		err = errors.Join(err, g.keys.AddKey(k))
	}
	err = errors.Join(err, g.keys.UseKey(keys[0]))
	for _, old := range g.keys.GetKeys() {
		if !slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, old) }) {
			err = errors.Join(err, g.keys.RemoveKey(old))
		}
	}
	if err != nil {
		return fmt.Errorf("gossip keys: %w", err)
	}
	return nil
}

// Members returns the processes that gossip knows, by region, instance and start: this one,
// those alive, and for ten minutes those dead. It is empty before Run.
func (g *Gossip) Members() []members.Member { return g.members.all() }

// Update has ConfigHash called again and its result sent to the others. It does
// not wait.
func (g *Gossip) Update() { signal.Send(g.update) }

// Drift reports that the processes alive differ in their configuration: since
// when this process has observed it, and the names of the processes by hash.
// Minutes are normal during a rollout.
func (g *Gossip) Drift() (since time.Time, hashes map[string][]string, ok bool) {
	g.mu.Lock()
	since = g.differs
	g.mu.Unlock()
	return since, g.hashes(), !since.IsZero()
}

// Alike returns the regions whose processes have another configuration than this one, or had when they were seen alive last, and
// for how long there has been none, as far as this process has observed that there ever was one.
func (g *Gossip) Alike() (differ []string, alike time.Duration) {
	g.checkDrift(time.Now())
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case len(g.others) > 0:
		return slices.Clone(g.others), 0
	case g.differed.IsZero():
		return nil, math.MaxInt64
	}
	return nil, time.Since(g.differed)
}

func (g *Gossip) hashes() map[string][]string {
	hashes := map[string][]string{}
	for _, m := range g.members.all() {
		if hash := m.Gossip.ConfigHash; m.Gossip.State == members.Alive && hash != "" {
			hashes[hash] = append(hashes[hash], m.Name())
		}
	}
	return hashes
}

// Run joins the others and stays joined until ctx ends, which is no error; then
// it leaves, within half a second. It can be called once. A call to an
// unreachable peer, and some goroutines of memberlist, end up to 6 s later, when
// they time out.
func (g *Gossip) Run(ctx context.Context) error {
	config, inner := g.config(), g.options.Transport
	if inner == nil {
		bind, port, err := g.setAddress(ctx, config)
		if err != nil {
			return nil // ctx ended
		}
		ports, err := listen(bind, port)
		if err != nil {
			return fmt.Errorf("start gossip on %s, TCP and UDP: %w", g.options.Bind, err)
		}
		config.AdvertisePort = cmp.Or(config.AdvertisePort, ports.port())
		inner = ports
	}
	bounded := newTransport(inner, config, g.members.refused)
	config.Transport = bounded
	ml, err := memberlist.Create(config)
	if err != nil {
		return errors.Join(fmt.Errorf("start gossip on %s: %w", g.options.Bind, err), bounded.Shutdown())
	}
	g.list.Store(ml)
	g.loop(ctx, ml, bounded)
	_ = ml.Leave(sendTimeout) // if it is not sent in time, the others notice
	g.list.Store(nil)
	return ml.Shutdown()
}

// setAddress resolves the address to bind, which it returns with its port, nil for all, and the one to
// advertise, and retries until ctx ends: names may not resolve yet when a machine starts.
// (memberlist takes no names.)
func (g *Gossip) setAddress(ctx context.Context, c *memberlist.Config) (net.IP, int, error) {
	o := &g.options
	bindHost, bindPort, _ := region.SplitAddress(o.Bind) // validated by New
	host, port, _ := region.SplitAddress(o.Advertise)
	for first := true; ctx.Err() == nil; first = false {
		bound, bindErr := []net.IP{nil}, error(nil)
		if bindHost != "" {
			bound, bindErr = resolve(ctx, bindHost)
		}
		ips, err := resolve(ctx, host)
		if err = errors.Join(err, bindErr); err == nil {
			c.AdvertiseAddr, c.AdvertisePort = ips[0].String(), cmp.Or(port, bindPort)
			return bound[0], bindPort, nil
		}
		if first {
			o.Logger.Warn("own gossip address cannot be resolved: no other process can join this one until it can",
				slog.String("bind", o.Bind), slog.String("advertise", o.Advertise), slog.Any("error", err))
		}
		sleep(ctx, RejoinInterval)
	}
	return nil, 0, ctx.Err()
}

// config is memberlist's configuration but for the addresses: that for a local network, with
// what we need otherwise. Its half-second probes are longer than any round trip on Earth.
func (g *Gossip) config() *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = nodeName(g.members.Self)
	c.Label, c.Keyring = g.options.Cluster, g.keys
	c.ProtocolVersion = memberlist.ProtocolVersionMax
	c.Delegate, c.Events, c.Alive = delegate{g}, g.members, g.members
	c.Logger = slog.NewLogLogger(g.options.Logger.Handler(), slog.LevelDebug) // an unreachable peer is a line a second
	c.Logger.SetPrefix("gossip: ")
	// A suspect has 4 s to refute, up to 8 s where few members can confirm: longer than a
	// garbage collection or two lost packets, and an isolated process notices in seconds, not
	// minutes, that it is alone.
	c.SuspicionMaxTimeoutMult = 2
	c.GossipNodes = 5 // news reaches up to six processes in one round
	// For this long gossip is sent to dead members, so that they can refute.
	c.GossipToTheDeadTime = time.Minute
	// A full exchange with one other member repairs what loss has hidden.
	c.PushPullInterval = 15 * time.Second
	c.TCPTimeout = 3 * time.Second // twice the worst handshake on a lossy path
	// Packets of 1,200 bytes pass every tunnel; nothing here is worth compressing.
	c.UDPBufferSize, c.EnableCompression = 1200, false
	return c
}

func (g *Gossip) loop(ctx context.Context, ml *memberlist.Memberlist, bounded *transport) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(housekeeping)
	defer ticker.Stop()
	for {
		g.members.forget(time.Now())
		g.rejoin(ctx)
		bounded.setKnown(g.known())
		g.checkDrift(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-g.update:
			_ = ml.UpdateNode(sendTimeout) // if it is not sent in time, the next exchange sends it
		case <-ticker.C:
		}
	}
}

// known returns where members and seeds are.
func (g *Gossip) known() map[netip.Addr]bool {
	addrs := map[netip.Addr]bool{}
	for _, m := range g.members.all() {
		addrs[network(m.Gossip.Addr)] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.targets {
		for _, ip := range t.ips {
			addrs[network(net.JoinHostPort(ip.String(), "0"))] = true
		}
	}
	return addrs
}

func (g *Gossip) checkDrift(now time.Time) {
	differ, own, last := len(g.hashes()) > 1, g.options.ConfigHash(), map[string]string{}
	for _, m := range g.members.all() {
		if hash := last[m.Region]; m.Gossip.State == members.Alive && (hash == "" || hash == own) {
			last[m.Region] = m.Gossip.ConfigHash
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.Copy(g.last, last)
	before := len(g.others)
	g.others = slices.DeleteFunc(slices.Sorted(maps.Keys(g.last)), func(region string) bool {
		return g.last[region] == own || !g.members.known(region)
	})
	if before > 0 && len(g.others) == 0 {
		g.differed = now
	}
	switch {
	case !differ:
		g.differs = time.Time{}
	case g.differs.IsZero():
		g.differs = now
	}
}

// delegate is what memberlist asks us about ourselves; no usage travels by gossip.
type delegate struct{ g *Gossip }

// NodeMeta returns our metadata.
func (d delegate) NodeMeta(int) []byte {
	return encodeMeta(d.g.options.ConfigHash(), d.g.options.Version)
}

// NotifyMsg ignores messages: there are none.
func (delegate) NotifyMsg([]byte) {}

// GetBroadcasts has nothing to add.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState has nothing to add.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState ignores what others add.
func (delegate) MergeRemoteState([]byte, bool) {}
