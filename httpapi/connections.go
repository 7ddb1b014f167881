package httpapi

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/internal/base/instruments"
)

// Connections bounds how many connections a server has, and with them descriptors and
// the memory of half-sent requests. At the bound a new connection takes the place of
// another, in this order:
//
//	unproven   has had no valid request yet; the oldest goes first
//	idle       is between two requests; the one that has been longest
//	refused    the new one itself, since all others are being answered
//
// So a flood of strangers displaces strangers, and gateways keep their connections. A
// request is valid when its caller may make it and it breaks no rule. Each request beyond
// the first that is under way on a connection of HTTP/2 counts as a connection. One that is
// closed after an answer counts until its client has closed it too, see maxDrain, and is
// displaced as before. Safe for concurrent use.
type Connections struct {
	most     int
	listener string
	closed   *instruments.Counter

	mu       sync.Mutex
	open     int
	unproven list.List // of *connection, in the order of their arrival
	idle     list.List // of *connection, in the order of their last answers
}

// Why a connection was closed, as metrics name it.
const (
	evictedUnproven = "unproven"
	evictedIdle     = "idle"
	evictedNew      = "refused"
)

// NewConnections bounds the connections of one listener to most, at least 1. listener is
// its name in metrics. It fails when an instrument cannot be created.
func NewConnections(listener string, most int, m metric.Meter) (*Connections, error) {
	if most < 1 {
		return nil, fmt.Errorf("httpapi: a listener has at least 1 connection, not %d", most)
	}
	i, cs := instruments.On(m), &Connections{most: most, listener: listener}
	i.Gauge("regiond.http.connections", "{connection}", "Open connections, by listener.",
		func(observe instruments.Observe) { observe(float64(cs.size()), "listener", listener) })
	cs.closed = i.CounterBy("regiond.http.connections.closed", "{connection}",
		"Connections closed because there were too many, by listener and by what they were.", "listener")
	for _, why := range []string{evictedUnproven, evictedIdle, evictedNew} {
		cs.evicted(why, 0) // there from the start, for rate()
	}
	return cs, i.Err()
}

func (cs *Connections) evicted(why string, n int64) {
	cs.closed.Add(n, "listener", cs.listener, "reason", why)
}

func (cs *Connections) size() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.open
}

// Listen returns a listener of bounded connections. TLS goes around it.
func (cs *Connections) Listen(l net.Listener) net.Listener { return &boundedListener{l, cs} }

// serve makes a server report on its connections.
func (cs *Connections) serve(s *http.Server) {
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if own := ownConnection(c); own != nil {
			own.enter(state)
		}
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if own := ownConnection(c); own != nil {
			return context.WithValue(ctx, connectionKey{}, own)
		}
		return ctx
	}
}

// connectionKey is the key of a request's *connection in its context.
type connectionKey struct{}

// ownConnection returns what a boundedListener made of a connection, nil for another.
func ownConnection(c net.Conn) *connection {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = over.NetConn()
	}
	own, _ := c.(*connection)
	return own
}

// socketBuffer bounds what the kernel keeps of a connection, either way. Its own bounds are
// many MiB, which a client fills that sends requests and reads no answers.
const socketBuffer = 64 << 10

type boundedListener struct {
	net.Listener
	connections *Connections
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.connections.admit(c); own != nil {
			if kernel, ok := c.(*net.TCPConn); ok {
				// Fails where the connection is closed already.
				_ = errors.Join(kernel.SetReadBuffer(socketBuffer), kernel.SetWriteBuffer(socketBuffer))
			}
			return own, nil
		}
		_ = c.Close() // of a stranger
	}
}

// admit makes room for a connection, or returns nil.
func (cs *Connections) admit(c net.Conn) *connection {
	own := &connection{Conn: c, of: cs}
	cs.mu.Lock()
	victim, ok := cs.makeRoom()
	if ok {
		cs.open++
		own.place, own.in = cs.unproven.PushBack(own), &cs.unproven
	}
	cs.mu.Unlock()
	victim.cut()
	if !ok {
		return nil
	}
	return own
}

// makeRoom reports whether there is room for one more, and whose connection made it, which
// has left and is yet to be closed; nil for none. The lock is held.
func (cs *Connections) makeRoom() (victim *connection, ok bool) {
	if cs.open < cs.most {
		return nil, true
	}
	why := evictedUnproven
	victim = cs.oldest(&cs.unproven)
	if victim == nil {
		why, victim = evictedIdle, cs.oldest(&cs.idle)
	}
	if victim == nil {
		why = evictedNew
	}
	cs.evicted(why, 1)
	if victim == nil {
		return nil, false
	}
	victim.leave()
	return victim, true
}

func (cs *Connections) oldest(l *list.List) *connection {
	if first := l.Front(); first != nil {
		c, _ := first.Value.(*connection) // the lists have nothing else
		return c
	}
	return nil
}

// connection is one that counts.
type connection struct {
	net.Conn
	of    *Connections
	known atomic.Bool // is proven; read without the lock

	busy     atomic.Int32 // how many of Read and Write are under way
	answered atomic.Bool  // something was written since it was idle

	// Under of.mu.
	place   *list.Element // in a list; nil while a proven one is busy, and once it has left
	in      *list.List
	left    bool
	streams int // requests of HTTP/2 under way
}

// cut closes a connection that had to leave; nil is none.
func (c *connection) cut() {
	if c != nil {
		_ = c.Conn.Close() // a server that reads from it finds out
	}
}

// beginStream makes room for a request of HTTP/2, or returns false.
func (c *connection) beginStream() bool {
	c.of.mu.Lock()
	var victim *connection
	ok := true
	if c.streams > 0 {
		victim, ok = c.of.makeRoom()
	}
	if ok = ok && !c.left; ok {
		if c.streams > 0 {
			c.of.open++
		}
		c.streams++
		if c.known.Load() {
			c.move(nil)
		}
	}
	c.of.mu.Unlock()
	victim.cut()
	return ok
}

// endStream gives the room back.
func (c *connection) endStream() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.streams--
	switch {
	case c.streams > 0 && !c.left:
		c.of.open--
	case c.streams == 0 && c.known.Load():
		c.move(&c.of.idle)
	}
}

// prove records a valid request.
func (c *connection) prove() {
	if c.known.Load() {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.move(nil)
	c.known.Store(true)
}

// Prove records a valid request on a connection of a bounded listener, for a server that does not speak HTTP's requests.
func Prove(c net.Conn) {
	if own := ownConnection(c); own != nil {
		own.prove()
	}
}

// BeginStream makes room for a request of HTTP/2 on a connection of a bounded listener, for a server of another package.
// end gives the room back and is to be called once; it is nil where there is no room.
func BeginStream(c net.Conn) (end func()) {
	own := ownConnection(c)
	switch {
	case own == nil:
		return func() {}
	case !own.beginStream():
		return nil
	}
	return own.endStream
}

// enter follows the states that net/http reports. What is closed has left by itself.
func (c *connection) enter(s http.ConnState) {
	if s == http.StateIdle {
		c.answered.Store(false)
	}
	if !c.known.Load() {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	switch s {
	case http.StateActive:
		c.move(nil)
	case http.StateIdle:
		c.move(&c.of.idle)
	case http.StateNew, http.StateHijacked, http.StateClosed:
	}
}

// move puts the connection at the end of a list, nil for none. The lock is held.
func (c *connection) move(to *list.List) {
	if c.place != nil {
		c.in.Remove(c.place)
		c.place, c.in = nil, nil
	}
	if to != nil && !c.left {
		c.place, c.in = to.PushBack(c), to
	}
}

// leave gives its place back, once. The lock is held.
func (c *connection) leave() {
	c.move(nil)
	if !c.left {
		c.left = true
		c.of.open -= max(1, c.streams)
	}
}

// Bounds of what is read of a connection after its last answer. The kernel resets a connection
// that is closed with unread bytes, and the client loses the answer: a gateway takes that for an
// outage of the limiter, and may let the request pass.
const (
	maxDrain     = 1 << 20 // bytes; gateways take headers of up to 1 MiB
	drainTimeout = time.Second
)

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *connection) Write(b []byte) (int, error) {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	n, err := c.Conn.Write(b)
	if err == nil && !c.answered.Load() {
		c.answered.Store(true)
	}
	return n, err
}

// Close implements net.Conn. After an answer it waits for the client, but not where another
// goroutine reads or writes: then the server stops, and whoever serves the connection is to find out.
func (c *connection) Close() error {
	if c.answered.Swap(false) && c.busy.Load() == 0 && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(drainTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, maxDrain)
	}
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what the client is sent. net/http calls it too.
func (c *connection) CloseWrite() error {
	if c.known.Load() {
		c.of.mu.Lock()
		c.move(&c.of.idle) // it may be displaced
		c.of.mu.Unlock()
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
