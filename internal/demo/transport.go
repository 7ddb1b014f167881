package demo

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

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
// gossip. Whoever called it closes the Transport.
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

// Close lets go of the port, also when nobody ever read what arrived there. It
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
