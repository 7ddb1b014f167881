package gossip

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// bindAttempts are made to find one port that is free for TCP and for UDP.
	bindAttempts = 10
	// packetBuffer is how many bytes of packets the kernel should keep for us: those
	// that arrive while the process is paused by its machine.
	packetBuffer = 2 << 20
	// retryPause is how long a port rests after an error: the process may be out of file
	// descriptors.
	retryPause = 100 * time.Millisecond
)

// sockets is a memberlist.Transport over one TCP and one UDP port of the same number.
// memberlist's own takes 64 KiB for each packet: 80,000 of a stranger took 45 MiB in all, and
// take 6 with this one.
type sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	streams chan net.Conn
	packets chan *memberlist.Packet
	ended   sync.WaitGroup
}

// listen opens the ports; an ip of nil means all addresses, port 0 any that is free.
func listen(ip net.IP, port int) (*sockets, error) {
	var err error
	for range bindAttempts {
		s := &sockets{streams: make(chan net.Conn), packets: make(chan *memberlist.Packet)}
		if s.tcp, err = net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port}); err != nil {
			break
		}
		if s.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: s.port()}); err == nil {
			_ = s.udp.SetReadBuffer(packetBuffer) // as much as the system allows
			s.ended.Go(func() { pass(s.streams, s.tcp.Accept) })
			s.ended.Go(func() { pass(s.packets, s.receive) })
			return s, nil
		}
		if err = errors.Join(err, s.tcp.Close()); port != 0 {
			break
		}
	}
	return nil, err
}

func (s *sockets) port() int { return s.tcp.Addr().(*net.TCPAddr).Port }

// pass sends what arrives to a channel until its port is closed.
func pass[T any](to chan<- T, next func() (T, error)) {
	for {
		switch in, err := next(); {
		case err == nil:
			to <- in
		case errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(retryPause)
		}
	}
}

func (s *sockets) receive() (*memberlist.Packet, error) {
	var buf [maxPacket + 1]byte // the rest of a larger packet is lost, and the packet refused
	n, from, err := s.udp.ReadFromUDPAddrPort(buf[:])
	return &memberlist.Packet{Buf: slices.Clone(buf[:n]), From: net.UDPAddrFromAddrPort(from), Timestamp: time.Now()}, err
}

// FinalAdvertiseAddr returns what it is given: setAddress has resolved it.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, err := netip.ParseAddr(ip)
	return addr.Unmap().AsSlice(), port, err
}

// WriteTo sends a packet to ip:port.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := net.ResolveUDPAddr("udp", addr)
	if err == nil {
		_, err = s.udp.WriteTo(b, to)
	}
	return time.Now(), err
}

// PacketCh is where packets arrive.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh is where streams arrive.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// DialTimeout opens a stream to ip:port.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: timeout}).DialContext(context.Background(), "tcp", addr)
}

// Shutdown closes both ports and waits until what they received is taken. It is called once.
func (s *sockets) Shutdown() error {
	err := errors.Join(s.tcp.Close(), s.udp.Close())
	s.ended.Wait()
	return err
}
