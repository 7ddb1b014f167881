package demo

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
	"github.com/oklog/run"

	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
)

// Node is the regiond of one region.
type Node interface {
	Run(ctx context.Context, signals <-chan os.Signal) error // closes it, too
	Close() error                                            // of one that never ran
	DataAddr() net.Addr
	Peek(ctx context.Context, r quota.Request) (quota.Decision, error)
	Outcomes() map[string]limiter.Outcomes // by policy
}

// NewNode builds a node that talks to the others through the given bus and transport only.
type NewNode func(o NodeOptions) (Node, error)

// NodeOptions are what differs between the nodes of a demo.
type NodeOptions struct {
	Region    string
	Topology  *region.Topology
	WrapBus   func(meshsync.Bus) meshsync.Bus
	Transport memberlist.Transport
	Logger    *slog.Logger
	// State is what the page shows of the demo, and Control answers its buttons.
	State   func() any
	Control http.Handler
}

// cluster is three whole nodes, with cuts between each and its network:
//
//	                     cuts ◀── admin listeners ◀── the page, `regiond demo cut eu-west`
//	node ── Bus ───────────┤ ── embedded NATS ── gateways ──▶ the other two
//	     ── Transport ─────┘ ── memberlist, on loopback ────▶
//	  ▲
//	  ├── traffic, over HTTP
//	  └── watcher: the table
type cluster struct {
	quiet      bool
	cuts       *Cuts
	demand     *Demand
	shown      atomic.Pointer[PageState] // what the page shows; nil before the first row
	transports []*Transport
	buses      []*Bus
	names      []string
	nodes      []Node
	folder     string // of the key that the regions share; "" before it is made
	ran        bool   // and so the nodes have closed themselves
}

// newCluster binds everything, so that a port in use is an error before anything runs.
func newCluster(ctx context.Context, o *demoOptions, newNode NewNode, log *slog.Logger) (_ *cluster, err error) {
	c := &cluster{quiet: o.quiet, cuts: NewCuts(Regions()), demand: NewDemand()}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	control := http.StripPrefix("/demo", NewControl(c.cuts, c.demand))
	top, err := c.topology(ctx, o.port)
	if err != nil {
		return nil, err
	}
	for i := range top.Regions {
		name := top.Regions[i].Name
		node, err := newNode(NodeOptions{
			Region: name, Topology: top, Transport: c.transports[i], Logger: log.With("self", name),
			State: c.state, Control: control,
			WrapBus: func(inner meshsync.Bus) meshsync.Bus {
				bus := c.cuts.Bus(name, inner)
				c.buses = append(c.buses, bus)
				return bus
			},
		})
		if err != nil {
			return nil, err
		}
		c.names, c.nodes = append(c.names, name), append(c.nodes, node)
	}
	return c, nil
}

func (c *cluster) topology(ctx context.Context, port int) (*region.Topology, error) {
	var gossip, gateways []string
	for _, name := range Regions() {
		transport, err := c.cuts.Listen(name)
		if err != nil {
			return nil, err
		}
		c.transports = append(c.transports, transport)
		gossip = append(gossip, transport.Addr())
		gateway, err := FreeAddr(ctx)
		if err != nil {
			return nil, fmt.Errorf("find a port for the NATS server of %s: %w", name, err)
		}
		gateways = append(gateways, gateway)
	}
	key, err := c.sharedKey()
	if err != nil {
		return nil, fmt.Errorf("make a key for the regions: %w", err)
	}
	return Topology(port, gossip, gateways, key)
}

// sharedKey writes a key that lasts as long as the demo, and returns its file. Without one
// regions lend each other nothing.
func (c *cluster) sharedKey() (file string, err error) {
	if c.folder, err = os.MkdirTemp("", "regiond-demo-"); err != nil {
		return "", err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	file = filepath.Join(c.folder, "key")
	return file, os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key)), 0o600)
}

// run serves until ctx ends, and then stops everything that was bound.
func (c *cluster) run(ctx context.Context, out io.Writer) error {
	var g run.Group
	actor := func(run func(context.Context) error) {
		ctx, cancel := context.WithCancel(ctx)
		g.Add(func() error { return run(ctx) }, func(error) { cancel() })
	}
	actor(newWatcher(c, out).run)
	if !c.quiet {
		actor(c.traffic)
	}
	for _, node := range c.nodes {
		actor(func(ctx context.Context) error { return node.Run(ctx, nil) })
	}
	for _, bus := range c.buses {
		actor(bus.Run)
	}
	c.ran = true
	return errors.Join(g.Run(), c.close())
}

// close releases what was bound and not released by run.
func (c *cluster) close() error {
	var errs []error
	if !c.ran {
		for _, n := range c.nodes {
			errs = append(errs, n.Close())
		}
	}
	for _, transport := range c.transports {
		errs = append(errs, transport.Close())
	}
	if c.folder != "" {
		errs = append(errs, os.RemoveAll(c.folder))
	}
	return errors.Join(errs...)
}
