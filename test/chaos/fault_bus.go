//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// dialer connects a NATS client from within a region.
type dialer struct{ r *Region }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) {
	return d.r.ns.Dial(context.Background(), network, addr)
}

// onBus connects to a region's NATS with the rights of its regiond until it is healed.
func (w *World) onBus(what, name string, inject func(nc *nats.Conn) error) Fault {
	var nc *nats.Conn
	return Fault{
		Name: what,
		Inject: func() (err error) {
			nc, err = nats.Connect("nats://"+natsAddr, nats.SetCustomDialer(dialer{w.region(name)}), nats.UserInfo(name, natsPassword),
				nats.NoEcho(), nats.Timeout(5*time.Second))
			if err != nil {
				return fmt.Errorf("join the NATS of %s: %w", name, err)
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

// PoisonNATS publishes, with the rights of a region, a few hundred invalid messages a
// second: noise, and its true messages with bytes changed, cut short, or repeated
// under another region's name where NATS lets it.
func (w *World) PoisonNATS(name string) Fault {
	return w.onBus("the bus poisoned from "+name, name, func(nc *nats.Conn) error {
		random := rand.New(rand.NewPCG(w.options.Seed, 1))
		_, own := nc.Subscribe("rl.v1.*."+name, func(m *nats.Msg) { spoil(nc, m, random) })
		_, others := nc.Subscribe("rl.v1.usage.*", func(m *nats.Msg) {
			_ = nc.Publish("rl.v1.usage."+name, m.Data) // another region's message under our name
		})
		go noise(nc, name)
		return errors.Join(own, others)
	})
}

// spoil publishes a damaged copy of a message.
func spoil(nc *nats.Conn, m *nats.Msg, random *rand.Rand) {
	if len(m.Data) < 2 {
		return
	}
	if strings.HasPrefix(m.Subject, "rl.v1.usage.") { // a beat cut short can be a true one of a region that sees less
		_ = nc.Publish(m.Subject, m.Data[:1+random.IntN(len(m.Data)-1)])
	}
	// The first field is the version of the format; a message of an unknown version is
	// refused, whatever else it contains.
	other := append([]byte(nil), m.Data...)
	other[1] = 99
	_ = nc.Publish(m.Subject, other)
}

// noise publishes invalid bytes until the connection is closed.
func noise(nc *nats.Conn, name string) {
	random := rand.New(rand.NewPCG(1, 2))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if nc.IsClosed() {
			return
		}
		data := make([]byte, 1+random.IntN(300))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		data[0] |= 7 // a field of no type: whatever follows, it is not ours
		_ = nc.Publish("rl.v1.usage."+name, data)
		_ = nc.Publish("rl.v1.heartbeat."+name, data)
	}
}
