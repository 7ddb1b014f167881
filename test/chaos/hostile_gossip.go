//go:build linux

package chaos

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region/gossip"
	"github.com/regiond/regiond/region/members"
	"github.com/regiond/regiond/test/chaos/netns"
)

// cluster is that of the world's topology.
const cluster = "chaos"

const (
	// floodConnections reach a gossip port at once, from as many addresses.
	floodConnections = 200
	// floodPause is how long each rests before it connects again.
	floodPause = time.Second
)

// FloodGossip has a host of a region's network that has no key send what it can to the
// gossip port of its regiond: streams of encrypted states, and packets of all sizes.
func (w *World) FloodGossip(name string) Fault {
	r := w.region(name)
	return w.hostile("the gossip port of "+name+" flooded, without a key", nil, func(ctx context.Context) error {
		// A state of 19 MiB, and one of the largest size that may be, which never ends.
		states := [][]byte{append(frame(19<<20), make([]byte, 1<<20)...), append(frame(220<<10), make([]byte, 210<<10)...)}
		if err := r.packets(); err != nil {
			return err
		}
		r.flood(ctx, func(i int) []byte { return states[i%len(states)] })
		return nil
	}, func(a *Achieved) error {
		if a.Refused["gossip size"] < floodConnections/2 || a.Refused["gossip bytes"] == 0 || a.Refused["gossip key"] == 0 {
			return fmt.Errorf("hostile: large and many streams, and packets, should have been refused: %v", a.Refused)
		}
		return nil
	})
}

// FloodGossipWithKey is the same with the key: streams that announce what they do not have,
// and members of each region that do not exist.
func (w *World) FloodGossipWithKey(name string) Fault {
	r := w.region(name)
	return w.hostile("the gossip port of "+name+" flooded, with the key", nil, func(ctx context.Context) error {
		key, err := base64.StdEncoding.DecodeString(w.key)
		if err != nil {
			return err
		}
		var members sync.WaitGroup
		defer members.Wait()
		for i, of := range Names() {
			g, err := w.strangeMember(r.ns, of, key, netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}), r.gossip())
			if err != nil {
				return err
			}
			members.Go(func() { _ = g.Run(ctx) }) // it ends with ctx
		}
		streams := [][]byte{sealed(key, millionNodes), sealed(key, largeUserState), sealed(key, longName)}
		r.flood(ctx, func(i int) []byte { return streams[i%len(streams)] })
		return nil
	}, func(a *Achieved) error {
		a.Beside = fmt.Sprintf("%d members invented", a.Invented)
		if a.Refused["gossip message"]+a.Refused["gossip size"] == 0 {
			return fmt.Errorf("hostile: no message was refused: %v", a.Refused)
		}
		return nil
	})
}

// flood connects to the gossip port from many addresses, over and over: each sends something,
// and holds the connection until it is closed.
func (r *Region) flood(ctx context.Context, send func(i int) []byte) {
	var flooding sync.WaitGroup
	for i := range floodConnections {
		flooding.Go(func() {
			from := &net.TCPAddr{IP: net.IPv4(127, 0, byte(2+i/200), byte(1+i%200))}
			for ; ctx.Err() == nil; pause(ctx, floodPause) {
				if c, err := r.dialFrom(from, "tcp"); err == nil {
					stop := context.AfterFunc(ctx, func() { _ = c.Close() })
					if _, err = c.Write(send(i)); err == nil {
						_, _ = io.Copy(io.Discard, c)
					}
					stop()
					_ = c.Close()
				}
			}
		})
	}
	flooding.Wait()
}

// packets sends packets of all sizes to the gossip port.
func (r *Region) packets() error {
	c, err := r.dialFrom(nil, "udp")
	if err != nil {
		return err
	}
	defer c.Close()
	for range 1000 {
		for _, size := range []int{1, 1200, 60_000} {
			if _, err := c.Write(append(label(), make([]byte, size)...)); err != nil {
				return fmt.Errorf("a packet: %w", err)
			}
		}
	}
	return nil
}

// dialFrom connects to the gossip port from an address within the region's network.
func (r *Region) dialFrom(from net.Addr, network string) (c net.Conn, err error) {
	err = r.ns.Do(func() error {
		c, err = (&net.Dialer{LocalAddr: from, Timeout: time.Second}).Dial(network, r.gossip())
		return err
	})
	return c, err
}

// Messages of memberlist that announce more than they have.
const (
	millionNodes   = "\x06\x83\xa5Nodes\xce\x00\x10\x00\x00\xacUserStateLen\x00\xa4Join\xc2"
	largeUserState = "\x06\x83\xa5Nodes\x00\xacUserStateLen\xce\x01\x40\x00\x00\xa4Join\xc2"
	longName       = "\x06\x83\xa5Nodes\x01\xacUserStateLen\x00\xa4Join\xc2\x81\xa4Name\xdb\xff\xff\xff\xff"
)

// label is how all streams and packets of a deployment begin.
func label() []byte { return append([]byte{244, byte(len(cluster))}, cluster...) }

// frame is the beginning of an encrypted stream of so many bytes.
func frame(size int) []byte { return binary.BigEndian.AppendUint32(append(label(), 10), uint32(size)) }

// sealed is a stream that a holder of the key sends.
func sealed(key []byte, message string) []byte {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // keys have 32 bytes
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	nonce := make([]byte, gcm.NonceSize())
	head := frame(1 + len(nonce) + len(message) + gcm.Overhead())
	data := append(bytes.Clone(head[len(label()):]), cluster...)
	return gcm.Seal(append(append(head, 1), nonce...), nonce, []byte(message), data)
}

// strangeMember is a process that is not of the world and gossips with it, as an instance of one of
// its regions, from an address in a region's network.
func (w *World) strangeMember(ns *netns.Namespace, region string, key []byte, from netip.Addr, seed string) (*gossip.Gossip, error) {
	t := &within{ns: ns}
	err := ns.Do(func() (err error) {
		t.NetTransport, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{from.String()}, BindPort: gossipPort, Logger: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("a strange member: %w", err)
	}
	return gossip.New(gossip.Options{
		Members: members.New(quota.Process{Region: region, Instance: "invented", Boot: time.Now().UnixMicro()}),
		Cluster: cluster, Keys: [][]byte{key}, Transport: t,
		ConfigHash: func() string { return "" }, Seeds: func() []string { return []string{seed} }, Regions: func(string) bool { return true },
	})
}

// within is memberlist's transport in a region's network.
type within struct {
	*memberlist.NetTransport
	ns *netns.Namespace
}

// Shutdown implements memberlist.Transport. The sockets' goroutines end only while somebody takes
// what they have received.
func (t *within) Shutdown() error {
	ended := make(chan error, 1)
	go func() { ended <- t.NetTransport.Shutdown() }()
	for {
		select {
		case c := <-t.StreamCh():
			_ = c.Close()
		case <-t.PacketCh():
		case err := <-ended:
			return err
		}
	}
}

// DialTimeout implements memberlist.Transport.
func (t *within) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return t.ns.Dial(ctx, "tcp", addr)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *within) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}
