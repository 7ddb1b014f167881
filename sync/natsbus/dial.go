package natsbus

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
)

// socket makes the sockets of one connection and remembers them, so that they can
// be cut: nothing in nats.go that waits for a socket outlives it, and nats.go by
// itself cannot be told to hurry.
type socket struct {
	ctx    context.Context // nats.go's dialer knows none
	server *Embedded       // or nil: dial

	mu   sync.Mutex
	conn net.Conn
	dead bool
	err  error // why the last one could not be made; nats.go tells of less
}

// Dial is what nats.go calls for each server.
func (s *socket) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	return s.keep(d.DialContext(ctx, network, address))
}

// InProcessConn is what nats.go calls when the server is our own.
func (s *socket) InProcessConn() (net.Conn, error) {
	return s.keep(s.server.server.InProcessConn())
}

func (s *socket) keep(conn net.Conn, err error) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err != nil {
		return nil, err
	}
	if s.dead {
		return nil, errors.Join(net.ErrClosed, conn.Close())
	}
	s.conn = conn
	return conn, nil
}

// cut ends the present connection and any later one. It does not wait.
func (s *socket) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	if s.conn != nil {
		_ = s.conn.Close() // closed before, perhaps
	}
}

// reason is why connecting failed, given what nats.go says of it.
func (s *socket) reason(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && errors.Is(err, nats.ErrNoServers) {
		return s.err
	}
	return err
}
