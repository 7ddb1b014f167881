package wan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/regiond/regiond/test/chaos/netns"
)

const (
	device = "wan0"
	// mtu leaves room for the header of a tunnel.
	mtu = 1400
)

// Router carries packets between the namespaces that were attached. All methods may be
// called from any goroutine.
type Router struct {
	wg   sync.WaitGroup
	wake chan struct{} // of the goroutine that delivers
	done chan struct{}

	mu    sync.Mutex
	ports []*os.File // TUN devices in the order of attachment
	homes map[netip.Addr]int
	lines map[[2]int]*line
	seed  uint64
	queue parcels
}

// New starts a router; Close ends it.
func New(seed uint64) *Router {
	r := &Router{
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		homes: map[netip.Addr]int{}, lines: map[[2]int]*line{}, seed: seed,
	}
	r.wg.Go(r.deliver)
	return r
}

// Close ends the router. Devices and what was under way are gone.
func (r *Router) Close() {
	close(r.done)
	r.mu.Lock()
	for _, port := range r.ports {
		_ = port.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// Attach gives a namespace a device with an address and returns the number by which
// Set identifies the namespace, beginning with 0. Further addresses may follow.
func (r *Router) Attach(ns *netns.Namespace, addr netip.Prefix, more ...netip.Prefix) (int, error) {
	port, err := open(ns)
	if err != nil {
		return 0, fmt.Errorf("attach %s: %w", ns.Label(), err)
	}
	if err := ns.Up(device, addr, mtu); err != nil {
		return 0, errors.Join(fmt.Errorf("attach %s: %w", ns.Label(), err), port.Close())
	}
	for i, a := range more {
		if err := ns.Up(fmt.Sprintf("%s:%d", device, i+1), a, 0); err != nil {
			return 0, errors.Join(fmt.Errorf("attach %s: %w", ns.Label(), err), port.Close())
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	number := len(r.ports)
	r.ports = append(r.ports, port)
	for _, a := range append(more, addr) {
		r.homes[a.Addr()] = number
	}
	r.wg.Go(func() { r.carry(number, port) })
	return number, nil
}

// open makes the namespace's TUN device. A device that is made before the file is
// handed to Go's poller can be waited for, and closed during a read.
func open(ns *netns.Namespace) (port *os.File, err error) {
	err = ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("open /dev/net/tun: %w", err)
		}
		ask, err := unix.NewIfreq(device)
		if err == nil {
			ask.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ask)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("make a TUN device: %w", err), unix.Close(fd))
		}
		port = os.NewFile(uintptr(fd), device)
		return nil
	})
	return port, err
}

// Set changes what becomes of packets from one namespace to another, from now on.
// Those that are under way arrive.
func (r *Router) Set(from, to int, link Link) error {
	if err := link.validate(); err != nil {
		return fmt.Errorf("link %d→%d: %w", from, to, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(from, to).link = link
	return nil
}

// Link is what was set last.
func (r *Router) Link(from, to int) Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line(from, to).link
}

// line needs r.mu.
func (r *Router) line(from, to int) *line {
	l := r.lines[[2]int{from, to}]
	if l == nil {
		l = &line{random: rand.New(rand.NewPCG(r.seed, uint64(from)<<32|uint64(to)))}
		r.lines[[2]int{from, to}] = l
	}
	return l
}

// carry takes what a namespace sends until its device is closed.
func (r *Router) carry(from int, port *os.File) {
	buffer := make([]byte, 2*mtu)
	for {
		n, err := port.Read(buffer)
		if err != nil {
			return
		}
		if data := buffer[:n]; n >= 20 && data[0]>>4 == 4 { // others are IPv6 neighbours and the like
			r.dispatch(from, data[9], netip.AddrFrom4([4]byte(data[16:20])), data)
		}
	}
}

// dispatch applies the fault plan to a packet and queues its copies.
func (r *Router) dispatch(from int, protocol byte, addr netip.Addr, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to, known := r.homes[addr]
	if !known {
		return
	}
	due := r.line(from, to).plan(protocol, time.Now())
	data = append([]byte(nil), data...)
	sooner := false
	for _, at := range due {
		sooner = r.queue.add(at, to, data) || sooner
	}
	if sooner {
		select {
		case r.wake <- struct{}{}:
		default: // it is awake already
		}
	}
}

// deliver writes packets when they are due.
func (r *Router) deliver() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		r.mu.Lock()
		one, wait, ok := r.queue.next(time.Now())
		var port *os.File
		if ok {
			port = r.ports[one.to]
		}
		r.mu.Unlock()
		if ok {
			_, _ = port.Write(one.data) // a full or closed device loses packets, as networks do
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.done:
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}
