package faultproxy

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// dialWithin bounds the connection to the server, so that Close is not held up
// by one whose backlog is full.
const dialWithin = 2 * time.Second

// Proxy forwards connections on a loopback port to one server. All methods are
// safe for concurrent use.
type Proxy struct {
	t        testing.TB
	listener *net.TCPListener
	target   string
	in       Network
	wg       sync.WaitGroup // the accepting goroutine and those of every link

	mu     sync.Mutex
	closed bool
	links  map[*link]struct{}
	armed  *armed // nil when nothing is to go wrong
	delay  time.Duration
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
	listener, err := in.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatalf("start fault proxy: %v", err)
	}
	p := &Proxy{t: t, listener: listener, target: target, in: in, links: make(map[*link]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr is the address that clients are to be given, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

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
		l.fall(which)
	}
}

// Close ends the proxy and all its connections and returns when no goroutine of
// it is left. Closing twice does nothing.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close() // fails only when it is closed already
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.t.Errorf("accept a connection: %v", err)
			return
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

// connect carries one client's connection until it ends. A server that cannot be
// reached looks to the client like one that hangs up.
func (p *Proxy) connect(client net.Conn) {
	server, err := p.in.Dial(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := newLink(client, server)
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.closed {
		l.close()
	}
	p.mu.Unlock()
	l.run(p.judge)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
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

func listen(addr string) (*net.TCPListener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", resolved)
}
