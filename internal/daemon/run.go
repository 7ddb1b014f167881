package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/oklog/run"

	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/state"
)

// shutdownTimeout bounds each step of a shutdown.
const shutdownTimeout = 5 * time.Second

var errStopped = errors.New("stopped")

// Run serves until ctx ends or a signal arrives, and closes everything. SIGHUP
// reloads, SIGTERM drains and stops, SIGINT stops, and a second one of these cuts off
// requests that are being answered.
func (d *Daemon) Run(ctx context.Context, signals <-chan os.Signal) error {
	if err := d.adopt(ctx); err != nil {
		return errors.Join(err, d.Close())
	}
	var g run.Group
	for _, l := range d.listeners {
		d.addServer(&g, l.server, l.at)
	}
	end, stop := context.WithCancel(ctx)
	g.Add(func() error { <-end.Done(); return errStopped }, func(error) { stop() })
	// Signals are still handled while the servers shut down.
	ctx, cancelSignals := context.WithCancel(ctx)
	g.Add(func() error { return d.handleSignals(ctx, signals, stop) }, func(error) { cancelSignals() })
	addInOrder(&g, d.components())
	d.serving.Store(true)
	err := g.Run()
	if errors.Is(err, errStopped) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// adopt puts the topology in force in the region's store, before anything is answered by it. While Redis is away that is left to
// the state's Run, and each limit is held to our own share.
func (d *Daemon) adopt(ctx context.Context) error {
	err := d.propose(ctx, d.config.Load().topology)
	if errors.Is(err, state.ErrAway) {
		err = nil // logged
	}
	d.manager.Refresh()
	return err
}

// propose is state.Adopt, which a region that knows of no other needs for its bounds alone.
func (d *Daemon) propose(ctx context.Context, top *region.Topology) error {
	if d.replication == nil && len(bounded(top)) == 0 {
		return nil
	}
	return d.state.Adopt(ctx, top)
}

// components are what runs behind the listeners, in the order in which it stops.
func (d *Daemon) components() []component {
	all := []component{d.stream.Run, d.watcher.run, d.bounds.run}
	if d.replication != nil {
		all = append(all, d.replication.components()...)
	} else {
		all = append(all, d.manager.Run, d.state.Run)
	}
	all = append(all, d.overrides.Run, d.recorder.Run, d.limiter.Run)
	if d.redis != nil {
		all = append(all, d.redis.Run)
	}
	if d.shareSeal != nil {
		all = append(all, d.shareSeal)
	}
	if d.denials != nil {
		all = append(all, d.denials.Run)
	}
	return all
}

// component runs until ctx ends.
type component func(ctx context.Context) error

// addInOrder adds components to a group that stop one after the other: run.Group
// interrupts its actors in the order in which they were added, and here an interrupt
// returns once the component has. So one may use those behind it until its end.
func addInOrder(g *run.Group, components []component) {
	for _, c := range components {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		g.Add(func() error {
			defer close(done)
			return c(ctx)
		}, func(error) {
			cancel()
			<-done
		})
	}
}

// addServer adds a server that finishes the requests it has begun before it stops.
func (d *Daemon) addServer(g *run.Group, s server, l net.Listener) {
	g.Add(func() error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %v: %w", l.Addr(), err)
		}
		return nil
	}, func(error) {
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			d.log.Warn("requests were cut off at shutdown", "listener", l.Addr().String(), "error", s.Close())
		}
	})
}

// handleSignals calls stop once a signal to stop has been followed by its drain.
func (d *Daemon) handleSignals(ctx context.Context, signals <-chan os.Signal, stop func()) error {
	var drained <-chan time.Time // nil until the first signal to stop
	for {
		select {
		case <-ctx.Done():
			return errStopped
		case <-drained:
			stop()
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				d.watcher.hangUp()
			case drained == nil:
				drained = d.drain(s)
			default:
				d.log.Warn("second signal: stopping at once", "error", d.cutOff())
				return errStopped
			}
		}
	}
}

// cutOff closes all connections of callers.
func (d *Daemon) cutOff() error {
	var errs []error
	for _, l := range d.listeners {
		errs = append(errs, l.server.Close())
	}
	return errors.Join(errs...)
}

// drain makes /readyz fail and returns when to stop: SIGTERM leaves load balancers
// time to send new requests elsewhere.
func (d *Daemon) drain(s os.Signal) <-chan time.Time {
	d.draining.Store(true)
	d.log.Info("stopping", "signal", s.String())
	if s == syscall.SIGTERM {
		return time.After(d.options.Drain)
	}
	return time.After(0)
}
