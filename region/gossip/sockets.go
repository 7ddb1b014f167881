package gossip

import (
	"context"
	"errors"
	"log/slog"
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
// memberlist's own takes 64 KiB for each packet.
type sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	log     *slog.Logger
	streams chan net.Conn
	packets chan *memberlist.Packet
	closed  chan struct{}
	ended   sync.WaitGroup
}

// listen opens the ports; an ip of nil means all addresses, port 0 any that is free.
func listen(ip net.IP, port int, log *slog.Logger) (s *sockets, err error) {
	for range bindAttempts {
		s = &sockets{log: log, streams: make(chan net.Conn), packets: make(chan *memberlist.Packet), closed: make(chan struct{})}
		if s.tcp, err = net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port}); err != nil {
			return nil, err
		}
		if s.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: s.port()}); err == nil {
			break
		}
		err = errors.Join(err, s.tcp.Close())
		if port != 0 {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	_ = s.udp.SetReadBuffer(packetBuffer) // as much as the system allows
	s.ended.Go(s.accept)
	s.ended.Go(s.receive)
	return s, nil
}

func (s *sockets) port() int { return s.tcp.Addr().(*net.TCPAddr).Port }

func (s *sockets) accept() {
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			if s.failed("accept a stream", err) {
				return
			}
			continue
		}
		select {
		case s.streams <- c:
		case <-s.closed:
			_ = c.Close()
			return
		}
	}
}

func (s *sockets) receive() {
	buf := make([]byte, maxPacket+1) // the rest of a larger packet is lost, and the packet refused
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		if err != nil {
			if s.failed("receive a packet", err) {
				return
			}
			continue
		}
		select {
		case s.packets <- &memberlist.Packet{Buf: slices.Clone(buf[:n]), From: net.UDPAddrFromAddrPort(from), Timestamp: now}:
		case <-s.closed:
			return
		}
	}
}

// failed reports whether the sockets are closed, and waits if they are not.
func (s *sockets) failed(what string, err error) (closed bool) {
	select {
	case <-s.closed:
		return true
	case <-time.After(retryPause):
		s.log.Debug("gossip: cannot "+what, slog.Any("error", err))
		return false
	}
}

// FinalAdvertiseAddr returns what it is given: setAddress has resolved it.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	addr, err := netip.ParseAddr(ip)
	return addr.Unmap().AsSlice(), port, err
}

// WriteTo sends a packet to ip:port.
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err == nil {
		_, err = s.udp.WriteTo(b, net.UDPAddrFromAddrPort(to))
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

// Shutdown closes both ports and waits until nothing is received from them. It is called
// once.
func (s *sockets) Shutdown() error {
	close(s.closed)
	err := errors.Join(s.tcp.Close(), s.udp.Close())
	s.ended.Wait()
	return err
}
