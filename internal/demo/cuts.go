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

// Publish hands a message over. A snapshot request and a loan name the recipient
// and not the author, so a cut takes them here; of everything else who receives knows
// the author, and takes it there.
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

// regionOf is the last word of a subject: the author, or the recipient of a snapshot
// request or a loan; EveryRegion of wants, which a cut takes at the region that is cut off.
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
	var inner *memberlist.NetTransport
	var err error
	for range portTries { // a port that is free on TCP may be taken on UDP
		if inner, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{loopback}, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		}); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bind gossip of %s: %w", region, err)
	}
	t := &Transport{Transport: inner, cuts: c, region: region, addr: address(inner.GetAutoBindPort())}
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

// A free port is looked for below those that systems give to outgoing
// connections: between the moment when it is found free and the one when
// NATS binds it, no connection can take it.
const (
	firstFree = 20_000
	lastFree  = 32_000
	portTries = 50
)

// FreeAddr finds host:port on loopback where somebody can listen soon.
func FreeAddr(ctx context.Context) (addr string, err error) {
	for range portTries {
		addr = address(firstFree + rand.N(lastFree-firstFree))
		l, failed := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err = failed; err == nil {
			return addr, l.Close()
		}
	}
	return "", err
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
