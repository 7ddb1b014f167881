// Package gossiptest is a network for gossip in memory: packets and streams
// between addresses, with latency and loss, and paths that can be cut each way
// by itself. It is for tests (also inside a bubble of testing/synctest, where
// hours of it take seconds) and for programs that run a whole cluster in one
// process.
//
// Streams that are open when a path is cut live on; they take milliseconds.
package gossiptest

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// packets and streams bound what waits for a reader; more is dropped, as a
	// socket's buffer would.
	packets = 4096
	streams = 64
	// resend is how long a stream's first packet waits before it is sent again;
	// twice as long each time.
	resend = time.Second
)

// Path is what one direction between two addresses is like.
type Path struct {
	Cut     bool
	Latency time.Duration
	Loss    float64 // of packets, 0 to 1; streams repeat what is lost
}

// Network connects transports. It is safe for concurrent use.
type Network struct {
	mu       sync.Mutex
	rng      *rand.Rand
	attached map[string]*Transport
	usual    Path
	paths    map[direction]Path
}

type direction struct{ from, to string }

// New returns a network without latency, loss or cuts. The seed decides which
// packets are lost.
func New(seed uint64) *Network {
	return &Network{
		rng:      rand.New(rand.NewPCG(seed, 7946)),
		attached: map[string]*Transport{}, paths: map[direction]Path{},
	}
}

// SetUsual sets what all paths are like that were not set themselves.
func (n *Network) SetUsual(p Path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.usual = p
}

// Set sets one direction.
func (n *Network) Set(from, to string, p Path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths[direction{from, to}] = p
}

// Cut cuts one direction.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.path(from, to)
	p.Cut = true
	n.paths[direction{from, to}] = p
}

// Split cuts both directions between every address of one side and every one of
// the other.
func (n *Network) Split(side, other []string) {
	for _, a := range side {
		for _, b := range other {
			n.Cut(a, b)
			n.Cut(b, a)
		}
	}
}

// Heal makes every path usual again.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.paths)
}

// path returns what one direction is like; n.mu is held.
func (n *Network) path(from, to string) Path {
	if p, ok := n.paths[direction{from, to}]; ok {
		return p
	}
	return n.usual
}

// route returns who is at the other end, and the path to him; nil when nothing
// arrives.
func (n *Network) route(t *Transport, to string, lossy bool) (*Transport, Path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.path(t.addr, to)
	other := n.attached[to]
	if other == nil || n.attached[t.addr] != t || p.Cut || lossy && n.rng.Float64() < p.Loss {
		return nil, p
	}
	return other, p
}

// Transport attaches one address, an IP and a port. Whoever was there before is
// unplugged.
func (n *Network) Transport(addr string) *Transport {
	t := &Transport{
		net: n, addr: addr, at: netip.MustParseAddrPort(addr),
		packets: make(chan *memberlist.Packet, packets), streams: make(chan net.Conn, streams),
		closed: make(chan struct{}),
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attached[addr] = t
	return t
}

// Unplug pulls an address's cable: its process talks to nobody any more, and
// another may have the address.
func (n *Network) Unplug(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.attached, addr)
}

// Transport is one address's end. It is a memberlist.Transport.
type Transport struct {
	net     *Network
	addr    string
	at      netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

var _ memberlist.Transport = (*Transport)(nil)

// Addr is the address that it was attached with.
func (t *Transport) Addr() string { return t.addr }

// FinalAdvertiseAddr is its own address, whatever it is asked for.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.at.Addr().AsSlice(), int(t.at.Port()), nil
}

// WriteTo sends a packet, which arrives or does not.
func (t *Transport) WriteTo(b []byte, to string) (time.Time, error) {
	now := time.Now()
	other, path := t.net.route(t, to, true)
	if other == nil {
		return now, nil
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: net.UDPAddrFromAddrPort(t.at)}
	time.AfterFunc(path.Latency, func() { other.receive(p) })
	return now, nil
}

func (t *Transport) receive(p *memberlist.Packet) {
	p.Timestamp = time.Now()
	select {
	case <-t.closed:
	case t.packets <- p:
	default:
	}
}

// PacketCh is where packets arrive.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is where streams arrive.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

var (
	errTimeout = errors.New("dial timed out")
	errRefused = errors.New("connection refused")
)

// DialTimeout opens a stream, if both directions are open within the timeout:
// like a real one it knocks again after a second, and after two more.
func (t *Transport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	for wait := resend; ; wait *= 2 {
		if other, trip := t.knock(to); other != nil && trip <= timeout {
			time.Sleep(trip)
			return other.accept(timeout)
		}
		if timeout <= wait {
			break
		}
		t.sleep(wait)
		timeout -= wait
	}
	t.sleep(max(timeout, 0))
	return nil, errTimeout
}

func (t *Transport) knock(to string) (other *Transport, trip time.Duration) {
	other, there := t.net.route(t, to, false)
	if other == nil {
		return nil, 0
	}
	back, here := t.net.route(other, t.addr, false)
	if back != t {
		return nil, 0
	}
	return other, there.Latency + here.Latency
}

func (t *Transport) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.closed:
	}
}

// accept gives the stream a deadline, which memberlist replaces: unlike a socket
// a pipe has no buffer, and nobody may be reading any more.
func (t *Transport) accept(timeout time.Duration) (net.Conn, error) {
	ours, theirs := net.Pipe()
	_ = ours.SetDeadline(time.Now().Add(timeout)) // fails only when it is closed
	select {
	case <-t.closed:
		return nil, errRefused
	case t.streams <- theirs:
		return ours, nil
	default:
		return nil, errRefused
	}
}

// Shutdown detaches it, unless somebody else has the address by now.
func (t *Transport) Shutdown() error {
	t.once.Do(func() {
		t.net.mu.Lock()
		defer t.net.mu.Unlock()
		if t.net.attached[t.addr] == t {
			delete(t.net.attached, t.addr)
		}
		close(t.closed)
	})
	return nil
}
