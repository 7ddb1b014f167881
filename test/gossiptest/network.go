// Package gossiptest is a network for gossip in memory, also inside a bubble of
// testing/synctest: packets and streams between addresses, with latency,
// and paths that can be cut in each direction. A stream that is open when its path
// is cut lives on; it takes milliseconds.
package gossiptest

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Network connects transports. It is safe for concurrent use.
type Network struct {
	latency time.Duration // of each direction

	mu       sync.Mutex
	attached map[string]*Transport
	cut      map[[2]string]bool // from, to
}

// New returns a network without cuts.
func New(latency time.Duration) *Network {
	return &Network{latency: latency, attached: map[string]*Transport{}, cut: map[[2]string]bool{}}
}

// Cut cuts one direction, or heals it.
func (n *Network) Cut(from, to string, cut bool) {
	n.locked(func() { n.cut[[2]string{from, to}] = cut })
}

// Split cuts both directions between every address of a and every one of b.
func (n *Network) Split(a, b []string) {
	for _, from := range a {
		for _, to := range b {
			n.Cut(from, to, true)
			n.Cut(to, from, true)
		}
	}
}

// Heal heals every path.
func (n *Network) Heal() { n.locked(func() { clear(n.cut) }) }

// Unplug detaches an address: its process reaches nobody any more, and another
// may have the address.
func (n *Network) Unplug(addr string) { n.locked(func() { delete(n.attached, addr) }) }

// Transport attaches an address, IP and port, and detaches what had it before.
func (n *Network) Transport(addr string) *Transport {
	t := &Transport{
		net: n, addr: netip.MustParseAddrPort(addr), closed: make(chan struct{}),
		packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn, 64), // more is dropped, as by a socket
	}
	n.locked(func() { n.attached[addr] = t })
	return t
}

func (n *Network) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// route returns the other end; nil when nothing arrives.
func (n *Network) route(t *Transport, to string) (other *Transport) {
	n.locked(func() {
		if from := t.addr.String(); n.attached[from] == t && !n.cut[[2]string{from, to}] {
			other = n.attached[to]
		}
	})
	return other
}

// Transport is a memberlist.Transport.
type Transport struct {
	net     *Network
	addr    netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// FinalAdvertiseAddr is the address that the transport was attached with.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.addr.Addr().AsSlice(), int(t.addr.Port()), nil
}

// WriteTo sends a packet, which arrives or does not.
func (t *Transport) WriteTo(b []byte, to string) (time.Time, error) {
	if other := t.net.route(t, to); other != nil {
		p := &memberlist.Packet{Buf: slices.Clone(b), From: net.UDPAddrFromAddrPort(t.addr)}
		time.AfterFunc(t.net.latency, func() {
			p.Timestamp = time.Now()
			select {
			case <-other.closed:
			case other.packets <- p:
			default:
			}
		})
	}
	return time.Now(), nil
}

// PacketCh is where packets arrive.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is where streams arrive.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream if both directions are open, and times out otherwise.
func (t *Transport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	if other := t.net.route(t, to); other != nil && t.net.route(other, t.addr.String()) == t {
		time.Sleep(2 * t.net.latency)
		ours, theirs := net.Pipe()
		// memberlist sets deadlines after its first write, for which a pipe, unlike
		// a socket, needs somebody who reads.
		_ = ours.SetDeadline(time.Now().Add(timeout)) // fails only when it is closed
		select {
		case <-other.closed:
		case other.streams <- theirs:
			return ours, nil
		default:
		}
		return nil, errors.New("connection refused")
	}
	select {
	case <-time.After(timeout):
	case <-t.closed:
	}
	return nil, errors.New("dial timed out")
}

// Shutdown detaches the transport.
func (t *Transport) Shutdown() error {
	t.once.Do(func() {
		close(t.closed)
		t.net.locked(func() {
			if addr := t.addr.String(); t.net.attached[addr] == t {
				delete(t.net.attached, addr)
			}
		})
	})
	return nil
}
