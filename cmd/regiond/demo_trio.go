package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/oklog/run"

	"github.com/regiond/regiond/cmd/regiond/internal/demo"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/region"
	meshsync "github.com/regiond/regiond/sync"
)

// trio is three whole daemons, with cuts between each and its network:
//
//	                       cuts ◀── control listener ◀── `regiond demo cut eu-west`
//	daemon ── demo.Bus ──────┤ ── embedded NATS ── gateways ──▶ the other two
//	       ── demo.Transport ┘ ── memberlist, on loopback ────▶
//	   ▲
//	   ├── traffic, over HTTP
//	   └── watcher: the table
type trio struct {
	quiet      bool
	cuts       *demo.Cuts
	transports []*demo.Transport
	buses      []*demo.Bus
	daemons    []*daemon
	control    *http.Server
	controlAt  net.Listener
	ran        bool // and so the daemons have closed what is theirs
}

// newTrio binds everything, so that what is wrong is said before anything runs.
func newTrio(ctx context.Context, o *demoOptions, log slog.Handler) (_ *trio, err error) {
	t := &trio{quiet: o.quiet, cuts: demo.NewCuts(demo.Regions())}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	top, err := t.topology(ctx, o.port)
	if err != nil {
		return nil, err
	}
	for i := range top.Regions {
		if err := t.open(top, i, log); err != nil {
			return nil, err
		}
	}
	if t.controlAt, err = (&net.ListenConfig{}).Listen(ctx, "tcp", o.controlAddr()); err != nil {
		return nil, fmt.Errorf("control listener: %w", err)
	}
	t.control = httpapi.NewServer(demo.NewControl(t.cuts), slog.New(slog.DiscardHandler))
	return t, nil
}

func (t *trio) topology(ctx context.Context, port int) (*region.Topology, error) {
	var gossip, gateways []string
	for _, name := range demo.Regions() {
		transport, err := t.cuts.Listen(name)
		if err != nil {
			return nil, err
		}
		t.transports = append(t.transports, transport)
		gossip = append(gossip, transport.Addr())
		gateway, err := demo.FreeAddr(ctx)
		if err != nil {
			return nil, fmt.Errorf("find a port for the NATS server of %s: %w", name, err)
		}
		gateways = append(gateways, gateway)
	}
	return demo.Topology(port, gossip, gateways)
}

// open builds one region's daemon.
func (t *trio) open(top *region.Topology, i int, handler slog.Handler) error {
	name := top.Regions[i].Name
	o := &serveOptions{
		region: name, instance: "demo", processes: 1,
		budget: limiter.DefaultRedisBudget, deadline: httpapi.DefaultDeadline, logFormat: "json",
		wrapBus: func(inner meshsync.Bus) meshsync.Bus {
			bus := t.cuts.Bus(name, inner)
			t.buses = append(t.buses, bus)
			return bus
		},
		transport: t.transports[i],
	}
	d, err := newDaemon(o, top, slog.New(handler).With("self", name), &slog.LevelVar{})
	if err != nil {
		return err
	}
	t.daemons = append(t.daemons, d)
	return nil
}

// run serves until ctx ends, and then stops everything it has bound.
func (t *trio) run(ctx context.Context, screen *demo.Screen) error {
	var stack []func(context.Context) error
	for _, bus := range t.buses {
		stack = append(stack, bus.Run)
	}
	stack = append(stack, t.serve, t.serveControl)
	if !t.quiet {
		stack = append(stack, t.traffic)
	}
	stack = append(stack, newWatcher(t, screen).run)
	t.ran = true
	return errors.Join(runStack(ctx, stack), t.close())
}

// serve runs the daemons until ctx or one of them ends, and waits for all.
func (t *trio) serve(ctx context.Context) error {
	var g run.Group
	for _, d := range t.daemons {
		own, cancel := context.WithCancel(ctx)
		g.Add(func() error { return d.run(own, nil) }, func(error) { cancel() })
	}
	return g.Run()
}

// serveControl makes cuts until ctx ends.
func (t *trio) serveControl(ctx context.Context) error {
	var g run.Group
	own, cancel := context.WithCancel(ctx)
	g.Add(func() error { <-own.Done(); return nil }, func(error) { cancel() })
	g.Add(func() error {
		if err := t.control.Serve(t.controlAt); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("control listener: %w", err)
		}
		return nil
	}, func(error) { _ = t.control.Close() }) // its calls take no time
	return g.Run()
}

// close gives back what was bound and not given back by a run.
func (t *trio) close() error {
	var errs []error
	if t.controlAt != nil {
		if err := t.controlAt.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if !t.ran {
		for _, d := range t.daemons {
			errs = append(errs, d.close())
		}
	}
	for _, transport := range t.transports {
		errs = append(errs, transport.Close())
	}
	return errors.Join(errs...)
}
