package natsbus

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/regiond/regiond/internal/base/instruments"
	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/internal/base/signal"
)

// Embedded is a NATS server in this process. Those of other regions are joined by
// gateways: each dials each, a message takes one hop, and only to servers with a
// subscriber. Its methods are safe for concurrent use.
type Embedded struct {
	opts   EmbeddedOptions
	server gatewayServer
	log    *serverLog
	ready  chan struct{}

	reloaded chan struct{} // has an element after SetTLS
	peers    peers

	reload sync.Mutex  // of the server's options, and of
	tls    *tls.Config // in force, in place of opts.TLS
}

// gatewayServer is a *server.Server. Embedded does not name that type: every package that has an Embedded would be compiled
// with the generic types that nats-server is made of.
type gatewayServer interface {
	nats.InProcessConnProvider
	Start()
	Shutdown()
	WaitForShutdown()
	GatewayAddr() *net.TCPAddr
	// reload puts options in force, with the only certificates that peers may have; nil for any.
	reload(opts *EmbeddedOptions, own *tls.Config, pins map[string]struct{}) error
	// gateways says which peers are connected to us, and to which we are.
	gateways() (inbound, outbound map[string]bool)
}

type natsServer struct{ *server.Server }

func (s natsServer) reload(opts *EmbeddedOptions, own *tls.Config, pins map[string]struct{}) error {
	o := serverOptions(opts, own)
	o.Gateway.TLSPinnedCerts = pins
	return s.ReloadOptions(o)
}

func (s natsServer) gateways() (inbound, outbound map[string]bool) {
	inbound, outbound = make(map[string]bool), make(map[string]bool)
	z, err := s.Gatewayz(nil)
	if err != nil {
		return inbound, outbound
	}
	for name := range z.OutboundGateways {
		outbound[name] = true
	}
	for name, connections := range z.InboundGateways {
		inbound[name] = len(connections) > 0
	}
	return inbound, outbound
}

// NewEmbedded makes a server that does not listen yet. Its error names every option that
// is wrong.
func NewEmbedded(opts EmbeddedOptions) (*Embedded, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("natsbus: embedded server: %w", err)
	}
	e := &Embedded{opts: opts, ready: make(chan struct{}), reloaded: make(chan struct{}, 1)}
	e.tls = e.peers.watch(opts.TLS)
	s, err := server.NewServer(serverOptions(&opts, e.tls))
	if err != nil {
		return nil, fmt.Errorf("natsbus: embedded server: %w", err)
	}
	e.server = natsServer{s}
	i := instruments.On(opts.Meter)
	errs := i.Counter("regiond.bus.server.errors", "{error}",
		"Errors of the embedded NATS server: peers that it refused, connections that failed.")
	i.Gauge("regiond.bus.gateways", "", "Embedded NATS servers of other processes that are connected, by direction.", e.observe)
	if err := i.Err(); err != nil {
		return nil, fmt.Errorf("natsbus: make instruments: %w", err)
	}
	// A peer that connects every second with a wrong secret does not fill a disk.
	e.log = &serverLog{logger: opts.Logger, failed: func() { errs.Add(1) }, kinds: loglimit.NewRate(5, 12*time.Second), fatal: make(chan error, 1)}
	s.SetLoggerV2(e.log, false, false, false)
	return e, nil
}

func (e *Embedded) observe(observe instruments.Observe) {
	var in, out float64
	for _, p := range e.Peers() {
		if p.Inbound {
			in++
		}
		if p.Outbound {
			out++
		}
	}
	observe(in, "direction", "in")
	observe(out, "direction", "out")
}

// Ready is closed once the server listens and clients can connect. Its peers may still be
// missing: they come and go.
func (e *Embedded) Ready() <-chan struct{} { return e.ready }

// Run serves until ctx is done and then stops everything it started. It is called once.
// It returns an error when an address cannot be listened on.
func (e *Embedded) Run(ctx context.Context) error {
	if e.opts.ListenAddr != "" && e.opts.TLS == nil {
		e.opts.Logger.Warn("embedded NATS server: there is no TLS, so any process of this host can join",
			"address", e.opts.ListenAddr)
	}
	e.server.Start()
	defer e.server.WaitForShutdown()
	defer e.server.Shutdown()
	select {
	case err := <-e.log.fatal:
		return fmt.Errorf("natsbus: embedded server: %w", err)
	default:
	}
	close(e.ready)
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.reloaded:
			again = time.After(handshakeTime)
		case <-again: // what had not said who it is yet, at the first
			if err := e.cut(); err != nil {
				e.opts.Logger.Error("embedded NATS server: connections under a removed key may stand", "error", err)
			}
		}
	}
}

// SetTLS uses other certificates for gateways from the next connection on. Connections whose certificate is of an authority
// that is gone are cut; all others go on. A server that began without TLS stays without.
func (e *Embedded) SetTLS(c *tls.Config) error {
	if e.opts.TLS == nil || c == nil || e.opts.ListenAddr == "" {
		return nil
	}
	next := e.opts
	next.TLS = c
	if err := next.validate(); err != nil {
		return fmt.Errorf("natsbus: embedded server: %w", err)
	}
	e.reload.Lock()
	e.tls = e.peers.watch(c)
	e.reload.Unlock()
	if err := e.cut(); err != nil {
		return fmt.Errorf("natsbus: embedded server: other certificates: %w", err)
	}
	signal.Send(e.reloaded)
	return nil
}

// cut puts e.tls in force and cuts connections under authorities that it does not have. nats-server has no call for that,
// but cuts who is not among pinned certificates: so those of all others are pinned for a moment.
func (e *Embedded) cut() error {
	e.reload.Lock()
	defer e.reload.Unlock()
	for _, pins := range []map[string]struct{}{e.peers.pins(), nil} {
		if err := e.server.reload(&e.opts, e.tls, pins); err != nil {
			return err
		}
	}
	return nil
}

// GatewayState is how a peer's server is connected. Messages from us need the outbound
// connection, those to us the inbound one.
type GatewayState struct {
	Name     string
	Inbound  bool
	Outbound bool
}

// Peers are the servers that are named in Remotes or connected, by name.
func (e *Embedded) Peers() []GatewayState {
	inbound, outbound := e.server.gateways()
	names := make(map[string]bool)
	for _, r := range e.opts.Remotes {
		names[r.Name] = r.Name != e.opts.Name
	}
	for _, connected := range []map[string]bool{inbound, outbound} {
		for name := range connected {
			names[name] = true
		}
	}
	states := make([]GatewayState, 0, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			states = append(states, GatewayState{Name: name, Inbound: inbound[name], Outbound: outbound[name]})
		}
	}
	return states
}

// serverLog passes nats-server's log to slog, notices as debugging.
type serverLog struct {
	logger *slog.Logger
	failed func()         // counts errors, those that are not logged too
	kinds  *loglimit.Rate // by format
	fatal  chan error     // holds the first
}

var _ server.Logger = (*serverLog)(nil)

// Noticef is called for connections that come and go.
func (l *serverLog) Noticef(format string, args ...any) {
	l.logger.Debug("embedded NATS server: " + fmt.Sprintf(format, args...))
}

// Warnf is called for what an operator should change.
func (l *serverLog) Warnf(format string, args ...any) {
	l.kinds.Warn(l.logger, time.Now(), format, "embedded NATS server: "+fmt.Sprintf(format, args...))
}

// Errorf is called for refused peers and failed connections: nothing that stops the server.
func (l *serverLog) Errorf(format string, args ...any) {
	l.failed()
	l.Warnf(format, args...)
}

// Fatalf is called for what prevents the start. It returns: a library does not exit.
func (l *serverLog) Fatalf(format string, args ...any) {
	select {
	case l.fatal <- fmt.Errorf(format, args...):
	default:
	}
}

// Debugf and Tracef are never called: neither is switched on.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef is never called.
func (l *serverLog) Tracef(string, ...any) {}
