package gossip

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// link is the library's way to the network, with three habits of its own: what
// it advertises was worked out by us (the library takes no names, and would
// advertise :: or whichever private address it finds first), what it dials ends
// with Run, and what it holds can be closed before Run.
type link struct {
	memberlist.Transport
	dial   func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error)
	ctx    context.Context // ends with Run: every stream dialled ends with it
	cancel context.CancelFunc
	bound  string // host:port that is listened on
	ip     net.IP // what is advertised, and port
	port   int
}

// newLink binds the sockets, or takes the transport that it is given.
func newLink(o *Options, log *slog.Logger) (*link, error) {
	l := &link{Transport: o.Transport}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if o.Transport == nil {
		return l, l.bind(o, log)
	}
	l.dial = func(_ context.Context, addr string, timeout time.Duration) (net.Conn, error) {
		return o.Transport.DialTimeout(addr, timeout)
	}
	var err error
	if l.ip, l.port, err = o.Transport.FinalAdvertiseAddr("", 0); err != nil {
		return nil, fmt.Errorf("address of the gossip transport: %w", err)
	}
	l.bound = l.address()
	return l, nil
}

// bindTries: a free TCP port may be taken on UDP.
const bindTries = 10

func (l *link) bind(o *Options, log *slog.Logger) error {
	host, port, err := splitAddress(o.Bind)
	if err != nil {
		return err
	}
	ip, bind := net.IPv6unspecified, "" // every interface, of either family
	if host != "" {
		ips, err := resolve(l.ctx, host)
		if err != nil {
			return fmt.Errorf("bind gossip to %s: %w", o.Bind, err)
		}
		ip, bind = ips[0], ips[0].String()
	}
	var t *memberlist.NetTransport
	for try := 0; t == nil; try++ {
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{bind}, BindPort: port,
			Logger: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		})
		if err != nil && (port != 0 || try == bindTries) {
			return fmt.Errorf("bind gossip to %s, TCP and UDP: %w", o.Bind, err)
		}
	}
	l.Transport = t
	l.ip, l.port = ip, t.GetAutoBindPort()
	l.bound = l.address()
	l.dial = func(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
		d := net.Dialer{Timeout: timeout}
		return d.DialContext(ctx, "tcp", addr)
	}
	return nil
}

// advertise works out what to tell the others: addr's host, resolved, and its
// port or the one that is bound.
func (l *link) advertise(ctx context.Context, addr string) error {
	if addr == "" {
		return nil
	}
	host, port, err := splitAddress(addr)
	if err != nil {
		return err
	}
	ips, err := resolve(ctx, host)
	if err != nil {
		return err
	}
	l.ip = ips[0]
	if port != 0 {
		l.port = port
	}
	return nil
}

// address is what is advertised, host:port.
func (l *link) address() string { return net.JoinHostPort(l.ip.String(), strconv.Itoa(l.port)) }

// FinalAdvertiseAddr is what the library tells the others.
func (l *link) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	if v4 := l.ip.To4(); v4 != nil {
		return v4, l.port, nil
	}
	return l.ip, l.port, nil
}

// WriteToAddress sends a packet; names are of no use to our transports.
func (l *link) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return l.WriteTo(b, a.Addr)
}

// DialAddressTimeout opens a stream.
func (l *link) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return l.DialTimeout(a.Addr, timeout)
}

// DialTimeout opens a stream that is closed when Run ends.
func (l *link) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := l.dial(l.ctx, addr, timeout)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(l.ctx, func() { c.Close() })
	return &stream{Conn: c, stop: stop}, nil
}

// hangUp ends what was dialled, and all that is being dialled.
func (l *link) hangUp() { l.cancel() }

// closeUnused closes a transport that nobody reads: somebody who called already
// would block it.
func (l *link) closeUnused() error {
	l.hangUp()
	closed := make(chan error, 1)
	go func() { closed <- l.Shutdown() }()
	for {
		select {
		case <-l.PacketCh():
		case c := <-l.StreamCh():
			c.Close()
		case err := <-closed:
			return err
		}
	}
}

// stream lets go of Run's end when it is closed before.
type stream struct {
	net.Conn
	stop func() bool
}

// Close ends the connection and its watch.
func (s *stream) Close() error {
	s.stop()
	return s.Conn.Close()
}

// resolve returns the addresses of a host, at least one.
func resolve(ctx context.Context, host string) ([]net.IP, error) {
	if ip := net.ParseIP(host); ip != nil {
		return []net.IP{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	ips := make([]net.IP, 0, len(found))
	for _, a := range found {
		ips = append(ips, a.Unmap().AsSlice())
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return ips, nil
}
