package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	meshsync "github.com/regiond/regiond/sync"
)

// session is one connection, from its first byte to its last. nats.go's own way of
// reconnecting is off: it gives up for good after some of the errors that a server
// may send, it keeps its mutex while it dials, and there would be two ways back.
type session struct {
	bus    *Bus
	sock   *socket
	nc     *nats.Conn
	closed chan struct{} // nats.go has let go of the connection
	leave  chan struct{} // write what is queued, then end
}

// connect makes a connection and puts the subscriptions in place. It fails at the
// latest after two seconds for each server.
func (b *Bus) connect(ctx context.Context) (*session, error) {
	s := &session{
		bus:    b,
		sock:   &socket{ctx: ctx, server: b.server},
		closed: make(chan struct{}),
		leave:  make(chan struct{}),
	}
	defer context.AfterFunc(ctx, s.sock.cut)()
	nc, err := nats.Connect(strings.Join(b.servers(), ","), s.options()...)
	if err != nil {
		s.sock.cut()
		return nil, fmt.Errorf("connect to NATS: %w", s.sock.reason(err))
	}
	s.nc = nc
	b.state.begin()
	if err := s.subscribe(); err != nil {
		if errors.Is(err, nats.ErrConnectionClosed) {
			err = s.reason()
		}
		s.close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return s, nil
}

// options are nats.go's. One attempt per session; Run makes the next.
func (s *session) options() []nats.Option {
	o := &s.bus.opts
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.NoReconnect(),
		nats.Timeout(dialTimeout),
		nats.SetCustomDialer(s.sock),
		nats.SkipHostLookup(), // the dialer looks up too, and can be told to stop
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(), // with NoReconnect: a socket that does not take bytes ends the session
		nats.NoEcho(),
		nats.PermissionErrOnSubscribe(true),
		nats.CustomInboxPrefix("_INBOX_" + o.Region),
		nats.ErrorHandler(s.failed),
		nats.ClosedHandler(func(*nats.Conn) { close(s.closed) }),
	}
	if o.Server != nil {
		opts = append(opts, nats.InProcessServer(s.sock))
	}
	if o.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(o.CredsFile))
	}
	if o.TLS != nil {
		opts = append(opts, nats.Secure(o.TLS))
	}
	return opts
}

// subscribe returns once the server has heard of all three.
func (s *session) subscribe() error {
	in := &subscriptions{}
	for _, subject := range s.bus.subjects() {
		sub, err := s.nc.ChanSubscribe(subject, s.bus.inbox.in)
		if err != nil {
			return err
		}
		in.subs = append(in.subs, sub)
	}
	s.bus.inbox.subs.Store(in)
	return s.flush(dialTimeout)
}

// flush waits until the server has heard everything. It is nats.go's FlushTimeout
// without its pool of timers, which outlives a test in fake time.
func (s *session) flush(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.nc.FlushWithContext(ctx)
}

// run publishes what is queued until the connection is lost or ctx is done, and
// returns why it was lost.
func (s *session) run(ctx context.Context) error {
	var writer sync.WaitGroup
	writer.Go(s.write)
	select {
	case <-s.closed:
		writer.Wait()
		return s.reason()
	case <-ctx.Done():
	}
	// A last word, for a bounded time: then the socket is cut and all that waits for
	// it returns.
	timer := time.AfterFunc(flushTimeout, s.sock.cut)
	defer timer.Stop()
	s.bus.queue.stop()
	close(s.leave)
	writer.Wait()
	if err := s.flush(flushTimeout); err != nil {
		s.bus.opts.Logger.Debug("bus: the last messages may not have been sent", "error", err)
	}
	s.close()
	return nil
}

// write is the one that may wait for the socket.
func (s *session) write() {
	q := s.bus.queue
	for {
		for m, ok := q.pop(); ok; m, ok = q.pop() {
			if !s.publish(m) {
				return
			}
		}
		select {
		case <-q.wake:
		case <-s.closed:
			return
		case <-s.leave:
			if n := s.drain(); n > 0 {
				s.bus.metrics.drop(dropWrite, n)
			}
			return
		}
	}
}

// drain writes what is left in a queue that takes no more.
func (s *session) drain() (dropped int) {
	q := s.bus.queue
	for m, ok := q.pop(); ok; m, ok = q.pop() {
		if !s.publish(m) {
			return q.clear()
		}
	}
	return 0
}

// publish tells whether the connection still takes messages. One that did not take
// a message has lost others before it, which nats.go had buffered: it is ended.
func (s *session) publish(m meshsync.Message) bool {
	err := s.send(m)
	switch {
	case err == nil:
		return true
	case errors.Is(err, nats.ErrMaxPayload):
		s.bus.metrics.drop(dropTooLarge, 1)
		return true
	}
	s.bus.metrics.drop(dropWrite, 1)
	s.sock.cut()
	return false
}

func (s *session) send(m meshsync.Message) error {
	if len(m.Header) == 0 || !s.nc.HeadersSupported() { // the message matters, not its header
		return s.nc.Publish(m.Subject, m.Data)
	}
	return s.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Data: m.Data, Header: headerOf(m.Header)})
}

// failed is told by nats.go of what went wrong without a caller.
func (s *session) failed(_ *nats.Conn, _ *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		s.bus.inbox.overflow()
		return
	case errors.Is(err, nats.ErrPermissionViolation):
		s.bus.metrics.drop(dropRefused, 1)
	}
	s.bus.state.complain(err)
}

// reason is why the connection ended.
func (s *session) reason() error {
	if err := s.nc.LastError(); err != nil {
		return err
	}
	return errors.New("the server closed the connection")
}

// close ends the connection and waits for nats.go.
func (s *session) close() {
	s.sock.cut()
	s.nc.Close()
	<-s.closed
}
