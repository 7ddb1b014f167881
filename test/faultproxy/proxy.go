package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// The proxy listens below the range of ports that Linux hands to outgoing
	// connections, so that none of them can be given its port while it refuses.
	lowestPort, highestPort = 16384, 32767
	portAttempts            = 20
	// dialWithin bounds the connection to the server, so that Close is not held up
	// by one whose backlog is full.
	dialWithin = 2 * time.Second
)

// Proxy forwards connections on a loopback port to one server. All methods are
// safe for concurrent use.
type Proxy struct {
	t      testing.TB
	addr   string
	target string
	in     Network
	wg     sync.WaitGroup // the accepting goroutine and those of every link

	mu       sync.Mutex
	closed   bool
	listener *net.TCPListener // nil while refusing
	released chan struct{}    // closed when the last listener has given up the port
	links    map[*link]struct{}
	armed    *armed // nil when nothing is to go wrong
	delay    time.Duration
}

// Network is where a proxy listens and dials: a network namespace other than the
// test's, say.
type Network struct {
	// Listen listens on a TCP address.
	Listen func(addr string) (*net.TCPListener, error)
	// Dial connects to the server.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Start begins to forward to target, host:port, until t ends or Close.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	dialer := net.Dialer{Timeout: dialWithin}
	return StartIn(t, Network{Listen: listen, Dial: dialer.DialContext}, target)
}

// StartIn is Start in another network.
func StartIn(t testing.TB, in Network, target string) *Proxy {
	t.Helper()
	listener, err := listenAnywhere(in)
	if err != nil {
		t.Fatalf("start fault proxy: %v", err)
	}
	p := &Proxy{
		t:      t,
		addr:   listener.Addr().String(),
		target: target,
		in:     in,
		links:  make(map[*link]struct{}),
	}
	p.serve(listener)
	t.Cleanup(p.Close)
	return p
}

// Addr is the address that clients are to be given, host:port.
func (p *Proxy) Addr() string { return p.addr }

// Arm makes one fault strike, in place of any that has not struck yet; counting
// starts now. The returned channel is closed when it strikes.
func (p *Proxy) Arm(fault Fault) <-chan struct{} {
	p.t.Helper()
	if fault.Reply < 1 || fault.Kind > Stray {
		p.t.Fatalf("arm %+v: Reply counts from 1 and Kind is one of Swallow, Drop, Cut, Stray", fault)
	}
	a := &armed{fault: fault, struck: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = a
	return a.struck
}

// Disarm calls off a fault that has not struck.
func (p *Proxy) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// Delay makes every reply that comes from the server from now on leave for the
// client d after it came, as on a long path: replies to a pipeline are late
// together, not one after the other. 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Silence has existing connections stay open with no reply on them ever again, as when a
// firewall has forgotten them. The server still gets what is sent, and new ones work.
func (p *Proxy) Silence(which Connections) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.carries(which) {
			l.silence()
		}
	}
}

// Refuse has new connections refused by the host, as when nothing listens, until
// Accept. Those that exist go on; Disconnect ends them.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.stopListening()
	released := p.released
	p.mu.Unlock()
	<-released
}

// Accept takes new connections again, on the same address. It does nothing on a
// proxy that accepts already or is closed.
func (p *Proxy) Accept() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		return
	}
	<-p.released // another goroutine's Refuse may be waiting for it, too
	listener, err := p.in.Listen(p.addr)
	if err != nil {
		p.t.Errorf("accept again: %v", err)
		return
	}
	p.serve(listener)
}

// Disconnect closes every connection there is.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Close ends the proxy and all its connections and returns when no goroutine of
// it is left. Closing twice does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.stopListening()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// stopListening needs p.mu. Closing alone would not do: a process that another
// test starts at this moment holds a copy of the socket until it has become
// redis-server, and the kernel would go on accepting for it. Shutting the socket
// down ends that for all copies (on Linux; elsewhere it is an error without effect).
func (p *Proxy) stopListening() {
	if p.listener == nil {
		return
	}
	if socket, err := p.listener.SyscallConn(); err == nil {
		_ = socket.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	if err := p.listener.Close(); err != nil {
		p.t.Errorf("stop listening: %v", err)
	}
	p.listener = nil
}

// serve needs p.mu, except in Start, before p is shared.
func (p *Proxy) serve(listener *net.TCPListener) {
	released := make(chan struct{})
	p.listener, p.released = listener, released
	p.wg.Go(func() {
		// A listener keeps its port for as long as a goroutine is in its Accept.
		defer close(released)
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EINVAL) {
				return // closed, or shut down an instant before
			}
			if err != nil {
				p.t.Errorf("accept a connection: %v", err)
				return
			}
			p.wg.Go(func() { p.connect(client, listener) })
		}
	})
}

// connect carries one client's connection until it ends. A server that cannot be
// reached looks to the client like one that hangs up. A connection that was
// accepted while Refuse or Close took its listener away is hung up on too.
func (p *Proxy) connect(client net.Conn, from *net.TCPListener) {
	server, err := p.in.Dial(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := newLink(client, server)
	if !p.add(l, from) {
		l.close()
		return
	}
	l.run(p.judge)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// add enters a link into those that Disconnect and Close end, unless its listener
// is no longer the proxy's.
func (p *Proxy) add(l *link, from *net.TCPListener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

// judge decides what happens to a reply to command that came from the server now.
func (p *Proxy) judge(command string) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := verdict{due: time.Now().Add(p.delay)}
	if p.armed != nil && p.armed.strikes(command) {
		v.struck, v.kind = true, p.armed.fault.Kind
		close(p.armed.struck)
		p.armed = nil
	}
	return v
}

func listenAnywhere(in Network) (*net.TCPListener, error) {
	var last error
	for range portAttempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		listener, err := in.Listen(net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return listener, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find a free port: %w", last)
}

func listen(addr string) (*net.TCPListener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", resolved)
}
