package httpapi

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
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
// request is valid when its caller may make it and it breaks no rule. Safe for
// concurrent use.
type Connections struct {
	most   int
	closed [len(evictions)]metric.AddOption
	count  metric.Int64Counter

	mu       sync.Mutex
	open     int
	unproven list.List // of *connection, in the order of their arrival
	idle     list.List // of *connection, in the order of their last answers
}

// Why a connection was closed, by its index in Connections.closed.
const (
	evictedUnproven = iota
	evictedIdle
	evictedNew
)

var evictions = [...]string{evictedUnproven: "unproven", evictedIdle: "idle", evictedNew: "refused"}

// NewConnections bounds the connections of one listener to most, at least 1. listener is
// its name in metrics. It fails when an instrument cannot be created.
func NewConnections(listener string, most int, m metric.Meter) (*Connections, error) {
	if most < 1 {
		return nil, fmt.Errorf("httpapi: a listener has at least 1 connection, not %d", most)
	}
	cs := &Connections{most: most}
	label := attribute.String("listener", listener)
	_, err1 := m.Int64ObservableGauge("regiond.http.connections", metric.WithUnit("{connection}"),
		metric.WithDescription("Open connections, by listener."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(cs.size()), metric.WithAttributes(label))
			return nil
		}))
	var err2 error
	cs.count, err2 = m.Int64Counter("regiond.http.connections.closed", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections closed because there were too many, by listener and by what they were."))
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("create the instruments of connections: %w", err)
	}
	for why, name := range evictions {
		cs.closed[why] = metric.WithAttributes(label, attribute.String("reason", name))
		cs.count.Add(context.Background(), 0, cs.closed[why]) // present from the start, for rate()
	}
	return cs, nil
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
			return own, nil
		}
		_ = c.Close() // of a stranger
	}
}

// admit makes room for a connection, or returns nil.
func (cs *Connections) admit(c net.Conn) *connection {
	own := &connection{Conn: c, of: cs}
	cs.mu.Lock()
	var victim *connection
	if cs.open >= cs.most {
		why := evictedUnproven
		victim = cs.oldest(&cs.unproven)
		if victim == nil {
			why, victim = evictedIdle, cs.oldest(&cs.idle)
		}
		if victim == nil {
			why = evictedNew
		}
		cs.count.Add(context.Background(), 1, cs.closed[why])
		if victim == nil {
			cs.mu.Unlock()
			return nil
		}
		victim.leave()
	}
	cs.open++
	own.place, own.in = cs.unproven.PushBack(own), &cs.unproven
	cs.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close() // a server that reads from it finds out
	}
	return own
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

	// Under of.mu.
	place *list.Element // in a list; nil while a proven one is busy, and once it has left
	in    *list.List
	left  bool
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

// enter follows the states that net/http reports. What is closed has left by itself.
func (c *connection) enter(s http.ConnState) {
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
		c.of.open--
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http end an answer to a request that it has not read to its end.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
