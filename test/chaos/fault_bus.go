//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// dialer connects a NATS client from within a region.
type dialer struct{ r *Region }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) {
	return d.r.ns.Dial(context.Background(), network, addr)
}

// joinBus connects to a region's NATS with the rights of its regiond.
func (w *World) joinBus(name string) (*nats.Conn, error) {
	nc, err := nats.Connect("nats://"+natsAddr, nats.SetCustomDialer(dialer{w.region(name)}), nats.UserInfo(name, natsPassword),
		nats.NoEcho(), nats.Timeout(5*time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // who is hostile tries what is not permitted
	if err != nil {
		return nil, fmt.Errorf("join the NATS of %s: %w", name, err)
	}
	return nc, nil
}

// onBus connects to a region's NATS with the rights of its regiond until it is healed.
func (w *World) onBus(what, name string, inject func(nc *nats.Conn) error) Fault {
	var nc *nats.Conn
	return Fault{
		Name: what,
		Inject: func() (err error) {
			if nc, err = w.joinBus(name); err != nil {
				return err
			}
			return errors.Join(inject(nc), nc.Flush())
		},
		Heal: func() error {
			if nc != nil {
				nc.Close()
			}
			return nil
		},
	}
}

// DuplicateNATS repeats every message of a region on the bus, once at once and
// once after a time: repeated and out of order.
func (w *World) DuplicateNATS(name string, later time.Duration) Fault {
	return w.onBus(fmt.Sprintf("all messages of %s repeated, and again after %v", name, later), name, func(nc *nats.Conn) error {
		again := func(m *nats.Msg) {
			_ = nc.Publish(m.Subject, m.Data) // after the end it is refused
			time.AfterFunc(later, func() { _ = nc.Publish(m.Subject, m.Data) })
		}
		_, usage := nc.Subscribe("rl.v1.usage."+name, again)
		_, heartbeat := nc.Subscribe("rl.v1.heartbeat."+name, again)
		return errors.Join(usage, heartbeat)
	})
}
