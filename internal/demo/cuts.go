package demo

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	meshsync "github.com/regiond/regiond/sync"
)

// Cuts are the regions that are cut off from all others, in both directions. Safe
// for concurrent use.
type Cuts struct {
	regions []string // in the topology's order

	mu    sync.RWMutex
	off   map[string]bool
	addrs map[string]string // region by gossip address
}

// NewCuts begins without a cut.
func NewCuts(regions []string) *Cuts {
	return &Cuts{regions: slices.Clone(regions), off: map[string]bool{}, addrs: map[string]string{}}
}

// Set cuts a region off, or connects it again.
func (c *Cuts) Set(region string, off bool) error {
	if !slices.Contains(c.regions, region) {
		return fmt.Errorf("there is no region %.64q here; there are %s", region, strings.Join(c.regions, ", "))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off[region] = off
	return nil
}

// Off lists the regions that are cut off, in the topology's order.
func (c *Cuts) Off() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	off := []string{}
	for _, r := range c.regions {
		if c.off[r] {
			off = append(off, r)
		}
	}
	return off
}

// between reports whether nothing passes from one region to another. What a region
// sends to itself always passes.
func (c *Cuts) between(a, b string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return a != b && (c.off[a] || c.off[b])
}

// at notes where a region gossips.
func (c *Cuts) at(addr, region string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs[addr] = region
}

// to reports whether nothing passes from a region to a gossip address.
func (c *Cuts) to(region, addr string) bool {
	c.mu.RLock()
	other := c.addrs[addr]
	c.mu.RUnlock()
	return c.between(region, other)
}

// Bus is a region's bus, out of which a cut takes everything: silently, as a
// network does. Run must run for as long as somebody reads Messages.
type Bus struct {
	meshsync.Bus
	cuts   *Cuts
	region string
	out    chan meshsync.Message
}

// Bus puts the cuts between a region and its bus.
func (c *Cuts) Bus(region string, inner meshsync.Bus) *Bus {
	return &Bus{Bus: inner, cuts: c, region: region, out: make(chan meshsync.Message)}
}

// Publish hands a message over. A digest request names the region that is asked
// and not the one that asks, so a cut takes it here; from everything else who
// receives knows the author, and takes it there.
func (b *Bus) Publish(subject string, data []byte, header ...meshsync.Field) error {
	if b.cuts.between(b.region, regionOf(subject)) {
		return nil
	}
	return b.Bus.Publish(subject, data, header...)
}

// Messages delivers what no cut takes. It is never closed.
func (b *Bus) Messages() <-chan meshsync.Message { return b.out }

// Run passes messages on until ctx ends. What waits inside is bounded by the bus
// behind this one.
func (b *Bus) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-b.Bus.Messages():
			if b.cuts.between(b.region, regionOf(m.Subject)) {
				continue
			}
			select {
			case <-ctx.Done():
				return nil
			case b.out <- m:
			}
		}
	}
}

// regionOf is the last word of a subject: the author, or for a digest request the
// region that is asked.
func regionOf(subject string) string {
	return subject[strings.LastIndexByte(subject, '.')+1:]
}

// Transport is a region's way to gossip: real sockets on loopback, past which a
// cut lets no packet and no stream. Both ends of every path are in this process,
// so it is enough that neither sends and neither dials.
type Transport struct {
	memberlist.Transport
	cuts   *Cuts
	region string
	addr   string
}

// Listen binds a port of loopback that is free on TCP and UDP for a region's
// gossip. The caller closes the Transport.
func (c *Cuts) Listen(region string) (*Transport, error) {
	var t *Transport
	err := tryPorts(func(port int) error {
		inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{loopback}, BindPort: port, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		})
		if err == nil {
			t = &Transport{Transport: inner, cuts: c, region: region, addr: address(port)}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("bind gossip of %s: %w", region, err)
	}
	c.at(t.addr, region)
	return t, nil
}

// Addr is host:port where others reach it.
func (t *Transport) Addr() string { return t.addr }

// WriteTo sends a packet, or loses it.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	if t.cuts.to(t.region, addr) {
		return time.Now(), nil
	}
	return t.Transport.WriteTo(b, addr)
}

// DialTimeout opens a stream, unless there is a cut on the way.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	if t.cuts.to(t.region, addr) {
		return nil, fmt.Errorf("dial %s: cut off", addr)
	}
	return t.Transport.DialTimeout(addr, timeout)
}

// Close releases the port, also when what arrived there was never read. It
// may be called after Shutdown.
func (t *Transport) Close() error {
	closed := make(chan error, 1)
	go func() { closed <- t.Shutdown() }()
	for {
		select {
		case <-t.PacketCh():
		case c := <-t.StreamCh():
			c.Close()
		case err := <-closed:
			return err
		}
	}
}

// loopback is where everything in the demo listens, and nowhere else.
const loopback = "127.0.0.1"

// Free ports are looked for below those that systems give to outgoing
// connections: between the moment when a port is found free and the one when
// NATS binds it, no connection can take it.
const (
	firstFree = 20_000
	lastFree  = 32_000
	portTries = 50
)

// tryPorts calls use with one port after the other until it succeeds, and returns
// its last error.
func tryPorts(use func(port int) error) error {
	var err error
	for range portTries {
		if err = use(firstFree + rand.N(lastFree-firstFree)); err == nil {
			return nil
		}
	}
	return err
}

// FreeAddr finds host:port on loopback where somebody can listen soon.
func FreeAddr(ctx context.Context) (string, error) {
	var addr string
	err := tryPorts(func(port int) error {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address(port))
		if err != nil {
			return err
		}
		addr = address(port)
		return l.Close()
	})
	return addr, err
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
