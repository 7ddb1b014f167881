package httpapi

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/regiond/regiond/quota"
)

// What the external tests see of the pure core.

// ClientIP is clientIP.
func ClientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	return clientIP(remote, forwarded, trusted)
}

// IPValue is ipValue.
func IPValue(a netip.Addr, bits int) string { return ipValue(a, bits) }

// ParseCost is parseCost.
func ParseCost(s string) (int64, bool) { return parseCost(s) }

// DecodeCheck decodes one check body.
func DecodeCheck(body []byte) (quota.Request, []quota.FieldError) {
	return newDecoder().check(bytes.NewBuffer(body), nil)
}

// DecodeBatch decodes a batch body; errs[i] belongs to check i.
func DecodeBatch(body []byte) (requests []quota.Request, errs [][]quota.FieldError, envelope []quota.FieldError) {
	items, envelope := newDecoder().batch(bytes.NewBuffer(body))
	for _, it := range items {
		requests = append(requests, it.request)
		errs = append(errs, it.errs)
	}
	return requests, errs, envelope
}

// Router finds routes.
type Router struct{ router }

// Name returns the name of the route of a request, quota.RouteOther for none.
func (rt *Router) Name(f *quota.ForwardAuth, method, uri string) (string, error) {
	path, err := target(uri)
	if err != nil {
		return "", err
	}
	r, err := rt.match(f, method, path)
	if r == nil {
		return quota.RouteOther, err
	}
	return r.Name, err
}

// RouteName is Router.Name of a router without buffers.
func RouteName(f *quota.ForwardAuth, method, uri string) (string, error) {
	return new(Router).Name(f, method, uri)
}

// Fields returns the header fields of a decision.
func Fields(hs quota.Headers, d *quota.Decision, jitter float64, nowUS int64, denied bool) http.Header {
	var fs fields
	setFields(&fs, d, fieldInput{headers: hs, jitter: jitter, nowUS: nowUS, denied: denied}, nil)
	h := http.Header{}
	for _, f := range fs {
		h[f.name] = []string{f.value}
	}
	return h
}

// Endpoints returns "METHOD pattern" of both listeners.
func Endpoints() (names []string) {
	for _, e := range append(dataEndpoints(), adminEndpoints()...) {
		names = append(names, e.method+" "+e.pattern)
	}
	return names
}

// Within returns the context that the limiter gets.
func Within(ctx context.Context, d time.Duration) context.Context {
	return (&call{ctx: ctx}).within(d)
}

// Idle is how many proven connections are between two requests.
func (cs *Connections) Idle() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.idle.Len()
}

// Open is how many connections there are, and requests that count as one.
func (cs *Connections) Open() int { return cs.size() }

// Streams is how many requests of HTTP/2 are under way on connections that are unproven.
func (cs *Connections) Streams() (n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for e := cs.unproven.Front(); e != nil; e = e.Next() {
		c, _ := e.Value.(*connection)
		n += c.streams
	}
	return n
}

// ServeConn serves one connection, as Serve does.
func (s *PlainServer) ServeConn(c net.Conn) error {
	c = Timed(c)
	s.fast.ConnState(c, fasthttp.StateNew)
	return s.fast.ServeConn(c)
}

// Timed returns a connection whose deadlines are set when it reads and writes.
func Timed(c net.Conn) net.Conn { return &timedConn{Conn: c} }

// PathWork returns how many bytes were looked at and rewritten to read a path.
func PathWork(path string) (scanned, copied int, err error) {
	first, err := scanSent(path)
	if err != nil || first == 0 {
		return 0, 0, err
	}
	var rs readings
	_, err = rs.read(path, first)
	return rs.scanned, rs.copied, err
}
