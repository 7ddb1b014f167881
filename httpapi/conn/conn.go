// Package conn bounds how many connections a server has, and with them descriptors and the memory of
// half-sent requests.
//
//	conn.go          the bound: which connection makes room; a listener, and what a server reports
//	waited_linux.go  how long a request has waited for a processor
//
// It also has a refusal arrive: a connection is drained before it is closed.
package conn

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

// Bound is that of the connections of one listener. At the bound a new connection takes the place of
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
type Bound struct {
	most     int
	listener string
	closed   *instruments.Counter

	mu       sync.Mutex
	open     int
	unproven list.List // of *Conn, in the order of their arrival
	idle     list.List // of *Conn, in the order of their last answers
}

// Why a connection was closed, as metrics name it.
const (
	evictedUnproven = "unproven"
	evictedIdle     = "idle"
	evictedNew      = "refused"
)

// New bounds the connections of one listener to most, at least 1. listener is
// its name in metrics. It fails when an instrument cannot be created.
func New(listener string, most int, m metric.Meter) (*Bound, error) {
	if most < 1 {
		return nil, fmt.Errorf("conn: a listener has at least 1 connection, not %d", most)
	}
	i, b := instruments.On(m), &Bound{most: most, listener: listener}
	i.Gauge("regiond.http.connections", "{connection}", "Open connections, by listener.",
		func(observe instruments.Observe) { observe(float64(b.Counts().Open), "listener", listener) })
	b.closed = i.CounterBy("regiond.http.connections.closed", "{connection}",
		"Connections closed because there were too many, by listener and by what they were.", "listener")
	for _, why := range []string{evictedUnproven, evictedIdle, evictedNew} {
		b.evicted(why, 0) // there from the start, for rate()
	}
	return b, i.Err()
}

func (b *Bound) evicted(why string, n int64) {
	b.closed.Add(n, "listener", b.listener, "reason", why)
}

// Counts are numbers of what a bound counts.
type Counts struct {
	Open    int // connections, and requests that count as one
	Idle    int // proven connections between two requests
	Streams int // requests of HTTP/2 under way on unproven connections
}

// Counts returns them.
func (b *Bound) Counts() Counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := Counts{Open: b.open, Idle: b.idle.Len()}
	for e := b.unproven.Front(); e != nil; e = e.Next() {
		c, _ := e.Value.(*Conn) // the list has nothing else
		n.Streams += c.streams
	}
	return n
}

// Listen returns a listener of bounded connections. TLS goes around it.
func (b *Bound) Listen(l net.Listener) net.Listener { return &listener{l, b} }

// Watch has a server report on its connections; nil watches nothing.
func (b *Bound) Watch(s *http.Server) {
	if b == nil {
		return
	}
	s.ConnState = func(c net.Conn, state http.ConnState) { Of(c).Enter(state) }
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, key{}, Of(c)) }
}

// key is that of a request's *Conn in its context.
type key struct{}

// From returns the connection of a request to a server that is watched, nil for another.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(key{}).(*Conn)
	return c
}

// Of returns what a bounded listener made of a connection, nil for another.
func Of(c net.Conn) *Conn {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = over.NetConn()
	}
	own, _ := c.(*Conn)
	return own
}

// socketBuffer bounds what the kernel keeps of a connection, either way. Its own bounds are
// many MiB, which a client fills that sends requests and reads no answers.
const socketBuffer = 64 << 10

type listener struct {
	net.Listener
	bound *Bound
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.bound.admit(c); own != nil {
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
func (b *Bound) admit(c net.Conn) *Conn {
	own := &Conn{Conn: c, of: b, accepted: time.Now()}
	b.mu.Lock()
	victim, ok := b.makeRoom()
	if ok {
		b.open++
		own.place, own.in = b.unproven.PushBack(own), &b.unproven
	}
	b.mu.Unlock()
	victim.cut()
	if !ok {
		return nil
	}
	return own
}

// makeRoom reports whether there is room for one more, and whose connection made it, which
// has left and is yet to be closed; nil for none. The lock is held.
func (b *Bound) makeRoom() (victim *Conn, ok bool) {
	if b.open < b.most {
		return nil, true
	}
	why := evictedUnproven
	victim = b.oldest(&b.unproven)
	if victim == nil {
		why, victim = evictedIdle, b.oldest(&b.idle)
	}
	if victim == nil {
		why = evictedNew
	}
	b.evicted(why, 1)
	if victim == nil {
		return nil, false
	}
	victim.leave()
	return victim, true
}

func (b *Bound) oldest(l *list.List) *Conn {
	if first := l.Front(); first != nil {
		c, _ := first.Value.(*Conn) // the lists have nothing else
		return c
	}
	return nil
}

// Conn is a connection that counts. Its own methods may be called on nil: one that no bound counts.
type Conn struct {
	net.Conn
	of    *Bound
	known atomic.Bool // is proven; read without the lock

	busy     atomic.Int32 // how many of Read and Write are under way
	answered atomic.Bool  // something was written since it was idle

	accepted time.Time
	received atomic.Int64 // when the last byte was that is known of, ns since accepted; 0 is not known

	// Under of.mu.
	place   *list.Element // in a list; nil while a proven one is busy, and once it has left
	in      *list.List
	left    bool
	streams int // requests of HTTP/2 under way
}

// Late reports whether what a client sent last has waited for a processor for longer than most. The kernel is asked only
// if that can be: whatever is sent comes after what was received before.
func (c *Conn) Late(most time.Duration) bool {
	if c == nil {
		return false
	}
	now := time.Since(c.accepted)
	if at := c.received.Load(); at != 0 && now-time.Duration(at) <= most {
		return false
	}
	waited := c.waited()
	c.received.Store(int64(now - waited))
	return waited > most
}

// cut closes a connection that had to leave; nil is none.
func (c *Conn) cut() {
	if c != nil {
		_ = c.Conn.Close() // a server that reads from it finds out
	}
}

// BeginStream makes room for a request of HTTP/2, which EndStream gives back. It is false where there is no room.
func (c *Conn) BeginStream() (ok bool) {
	if c == nil {
		return true
	}
	c.of.mu.Lock()
	var victim *Conn
	ok = true
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

// EndStream is called once for each request that BeginStream made room for.
func (c *Conn) EndStream() {
	if c == nil {
		return
	}
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

// Prove records a valid request.
func (c *Conn) Prove() {
	if c == nil || c.known.Load() {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.move(nil)
	c.known.Store(true)
}

// Enter follows the states that a server reports. What is closed has left by itself.
func (c *Conn) Enter(s http.ConnState) {
	if c == nil {
		return
	}
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
func (c *Conn) move(to *list.List) {
	if c.place != nil {
		c.in.Remove(c.place)
		c.place, c.in = nil, nil
	}
	if to != nil && !c.left {
		c.place, c.in = to.PushBack(c), to
	}
}

// leave gives its place back, once. The lock is held.
func (c *Conn) leave() {
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
func (c *Conn) Read(b []byte) (int, error) {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
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
func (c *Conn) Close() error {
	if c.answered.Swap(false) && c.busy.Load() == 0 && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(drainTimeout)) == nil {
		_, _ = io.CopyN(io.Discard, c.Conn, maxDrain)
	}
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what the client is sent. net/http calls it too.
func (c *Conn) CloseWrite() error {
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
