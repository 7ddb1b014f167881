//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
)

// dialer connects a NATS client from within a region.
type dialer struct{ r *Region }

// Dial implements nats.CustomDialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) {
	return d.r.ns.Dial(context.Background(), network, addr)
}

// join connects to a region's NATS as its regiond does, with the same rights.
func (r *Region) join() (*nats.Conn, error) {
	nc, err := nats.Connect("nats://"+natsAddr, nats.SetCustomDialer(dialer{r}), nats.NoEcho(), nats.Timeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("join the NATS of %s: %w", r.Name, err)
	}
	return nc, nil
}

// DuplicateNATS repeats every message of a region on the bus, once at once and
// once after a time: repeated and out of order.
func (w *World) DuplicateNATS(name string, later time.Duration) Fault {
	var nc *nats.Conn
	return Fault{
		Name: fmt.Sprintf("all messages of %s repeated, and again after %v", name, later),
		Inject: func() (err error) {
			if nc, err = w.region(name).join(); err != nil {
				return err
			}
			for _, subject := range []string{"rl.v1.usage." + name, "rl.v1.heartbeat." + name} {
				if _, err := nc.Subscribe(subject, func(m *nats.Msg) {
					_ = nc.Publish(m.Subject, m.Data) // after the end it is refused
					time.AfterFunc(later, func() { _ = nc.Publish(m.Subject, m.Data) })
				}); err != nil {
					return err
				}
			}
			return nc.Flush()
		},
		Heal: func() error {
			if nc != nil {
				nc.Close()
			}
			return nil
		},
	}
}

// PoisonNATS publishes, with the rights of a region, a few hundred messages a second
// that are none: noise, and its true messages with bytes changed, cut short, or repeated
// under another region's name where NATS lets it.
func (w *World) PoisonNATS(name string) Fault {
	var nc *nats.Conn
	done := make(chan struct{})
	return Fault{
		Name: "the bus poisoned from " + name,
		Inject: func() (err error) {
			if nc, err = w.region(name).join(); err != nil {
				return err
			}
			random := rand.New(rand.NewPCG(w.options.Seed, 1))
			if _, err := nc.Subscribe("rl.v1.*."+name, func(m *nats.Msg) { spoil(nc, m, random) }); err != nil {
				return err
			}
			if _, err := nc.Subscribe("rl.v1.usage.*", func(m *nats.Msg) {
				_ = nc.Publish("rl.v1.usage."+name, m.Data) // another author's words under our name
			}); err != nil {
				return err
			}
			go noise(nc, name, done)
			return nc.Flush()
		},
		Heal: func() error {
			close(done)
			if nc != nil {
				nc.Close()
			}
			return nil
		},
	}
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

// noise publishes bytes that are no message of ours until done is closed.
func noise(nc *nats.Conn, name string, done <-chan struct{}) {
	random := rand.New(rand.NewPCG(1, 2))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
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

// DenyNATS takes from a region's regiond the right to publish, by a configuration that
// its NATS reloads.
func (w *World) DenyNATS(name string) Fault {
	r := w.region(name)
	configure := func(change func(string) string) error {
		config, err := w.natsConfig(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(w.natsFile(r), []byte(change(config)), 0o600); err != nil {
			return err
		}
		return r.nats.cmd.Process.Signal(syscall.SIGHUP)
	}
	return Fault{
		Name: "regiond of " + name + " may not publish",
		Inject: func() error {
			granted := `"rl.v1.usage.` + name + `", "rl.v1.heartbeat.` + name + `", "rl.v1.snapshot.*"`
			return configure(func(config string) string {
				return strings.Replace(config, granted, `"nothing"`, 1)
			})
		},
		Heal: func() error { return configure(func(config string) string { return config }) },
	}
}

// FloodNATS publishes, with the rights of a region, large messages that are none of ours:
// at a rate in bytes per second.
func (w *World) FloodNATS(name string, bytesPerSecond int) Fault {
	const size = 64 << 10
	var nc *nats.Conn
	flood := repeat("", time.Second*size/time.Duration(bytesPerSecond), func() error {
		return nc.Publish("rl.v1.usage."+name, make([]byte, size))
	}, nothing)
	return Fault{
		Name: fmt.Sprintf("%d bytes a second of noise on the bus from %s", bytesPerSecond, name),
		Inject: func() (err error) {
			if nc, err = w.region(name).join(); err != nil {
				return err
			}
			return flood.Inject()
		},
		Heal: func() error {
			if nc == nil {
				return errors.New("the flood never began")
			}
			err := flood.Heal()
			nc.Close()
			return err
		},
	}
}
