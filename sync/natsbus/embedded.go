package natsbus

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// watchInterval is how often the gateways are looked at, for the log.
const watchInterval = time.Second

// Embedded is a NATS server in this process. Those of other regions are joined by
// gateways: each dials each, a message goes one hop, and only to servers where
// somebody has subscribed. Its methods are safe for concurrent use.
type Embedded struct {
	opts    EmbeddedOptions
	server  *server.Server
	log     *serverLog
	metrics *serverMetrics
	ready   chan struct{}
}

// NewEmbedded makes a server that does not listen yet. Its error names every
// option that is wrong.
func NewEmbedded(opts EmbeddedOptions) (*Embedded, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("natsbus: embedded server: %w", err)
	}
	m, err := newServerMetrics(opts.Meter)
	if err != nil {
		return nil, fmt.Errorf("natsbus: make instruments: %w", err)
	}
	s, err := server.NewServer(opts.serverOptions())
	if err != nil {
		return nil, fmt.Errorf("natsbus: embedded server: %w", err)
	}
	log := newServerLog(opts.Logger, m.failed)
	s.SetLoggerV2(log, false, false, false)
	return &Embedded{opts: opts, server: s, log: log, metrics: m, ready: make(chan struct{})}, nil
}

// Ready is closed once the server listens and clients can connect. Its peers may
// still be missing: they come and go.
func (e *Embedded) Ready() <-chan struct{} { return e.ready }

// Run serves until ctx is done and then stops everything it started. It is called
// once. It returns an error when an address cannot be listened on.
func (e *Embedded) Run(ctx context.Context) error {
	if e.opts.ListenAddr != "" && len(e.opts.Secret) == 0 {
		e.opts.Logger.Warn("embedded NATS server: there is no secret, so any process of this host can join",
			"address", e.opts.ListenAddr)
	}
	e.server.Start()
	defer e.server.WaitForShutdown()
	defer e.server.Shutdown()
	if err := e.log.fatal(); err != nil {
		return fmt.Errorf("natsbus: embedded server: %w", err)
	}
	unregister, err := e.metrics.observe(e.Peers)
	if err != nil {
		return fmt.Errorf("natsbus: observe: %w", err)
	}
	defer unregister()
	close(e.ready)
	e.watch(ctx)
	return nil
}

// GatewayAddr is where the server listens for gateways; nil before it is ready,
// and when it has none.
func (e *Embedded) GatewayAddr() net.Addr {
	if a := e.server.GatewayAddr(); a != nil {
		return a
	}
	return nil
}

// ClientAddr is where the server listens for clients; nil before it is ready, and
// when it takes none.
func (e *Embedded) ClientAddr() net.Addr {
	if e.opts.ClientAddr == "" {
		return nil
	}
	return e.server.Addr()
}

// GatewayState is how a peer's server is connected. Messages from us need the
// outbound connection, those to us the inbound one.
type GatewayState struct {
	Name     string
	Inbound  bool
	Outbound bool
}

// Peers are the servers that are named in Remotes or connected, by name.
func (e *Embedded) Peers() []GatewayState {
	peers := make(map[string]*GatewayState)
	peer := func(name string) *GatewayState {
		if peers[name] == nil {
			peers[name] = &GatewayState{Name: name}
		}
		return peers[name]
	}
	for _, r := range e.opts.Remotes {
		if r.Name != e.opts.Name {
			peer(r.Name)
		}
	}
	if z, err := e.server.Gatewayz(nil); err == nil {
		for name := range z.OutboundGateways {
			peer(name).Outbound = true
		}
		for name, connections := range z.InboundGateways {
			peer(name).Inbound = len(connections) > 0
		}
	}
	states := make([]GatewayState, 0, len(peers))
	for _, p := range peers {
		states = append(states, *p)
	}
	slices.SortFunc(states, func(a, b GatewayState) int { return strings.Compare(a.Name, b.Name) })
	return states
}

// watch logs once of every peer that comes or goes, until ctx is done.
func (e *Embedded) watch(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	linked := make(map[string]bool)
	for {
		now := make(map[string]bool)
		for _, p := range e.Peers() {
			now[p.Name] = p.Inbound && p.Outbound
		}
		logChanges(e.opts.Logger, linked, now)
		linked = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func logChanges(l *slog.Logger, before, now map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] && !before[name] {
			l.Info("embedded NATS server: connected with peer", "peer", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] && !now[name] {
			l.Warn("embedded NATS server: lost a peer; trying until it is back", "peer", name)
		}
	}
}
