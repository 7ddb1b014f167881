package httpapi

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// door serves a table of routes: finds the route, checks the caller, bounds
// what is in flight, survives a panic, measures.
type door struct {
	Options
	routes   []route
	metrics  *instruments
	denials  *sampler
	refusals *sampler
	inFlight atomic.Int64
	calls    sync.Pool
	unset    Settings // in force where Options.Settings returns nil
	noStore  []string // header values that never change, shared by all answers
	json     []string
	problem  []string
}

func newDoor(o Options, routes []route) (*door, error) {
	o.setDefaults()
	m, err := newInstruments(o.Meter, routes)
	if err != nil {
		return nil, err
	}
	d := &door{
		Options: o, routes: routes, metrics: m,
		denials: &sampler{}, refusals: &sampler{},
		noStore: []string{"no-store"},
		json:    []string{"application/json"},
		problem: []string{"application/problem+json"},
	}
	d.calls.New = func() any { return &call{door: d, decode: newDecoder()} }
	return d, nil
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := d.calls.Get().(*call)
	if !ok {
		c = &call{door: d, decode: newDecoder()}
	}
	c.begin(w, r, d.Now())
	defer c.end()
	if d.inFlight.Add(1) > int64(d.MaxInFlight) {
		c.reduced(noDecision)
		return
	}
	c.serve()
}

// call is one request on its way through the door. It is pooled: nothing that
// outlives the request may refer to its buffers.
type call struct {
	*door
	w        http.ResponseWriter
	r        *http.Request
	settings *Settings
	route    *route // nil when nothing matched
	index    int    // of route; −1
	tail     string // what stands in the place of the pattern's last segment
	allow    string // methods of the path, when only the method is wrong
	caller   string // whose token it was
	start    time.Time
	status   int // 0 until the answer is written

	ctx  context.Context //nolint:containedctx // the request's, with its span: a call is one request
	span trace.Span      // nil unless it is recorded

	decode *decoder
	limit  io.LimitedReader
	in     []byte
	out    []byte
	field  []byte
}

func (c *call) begin(w http.ResponseWriter, r *http.Request, now time.Time) {
	c.w, c.r, c.start, c.status, c.caller = w, r, now, 0, ""
	c.ctx, c.span = r.Context(), nil
	c.settings = c.Settings()
	if c.settings == nil {
		c.settings = &c.unset
	}
	c.route = nil
	c.index, c.tail, c.allow = find(c.routes, r.Method, rawPath(r))
	if c.index >= 0 {
		c.route = &c.routes[c.index]
	}
	c.ctx, c.span = c.Tracing.start(c)
}

// rawPath is the path exactly as it was sent, since url.URL forgets the
// difference between "/" and "%2F" when anything else is out of the ordinary.
func rawPath(r *http.Request) string {
	path, err := target(r.RequestURI)
	if err != nil {
		return r.URL.EscapedPath()
	}
	return path
}

// end finishes a call: an answer for a panic, figures, and back to the pool.
func (c *call) end() {
	c.inFlight.Add(-1)
	v := recover()
	if v != nil {
		c.panicked(v)
	}
	c.metrics.record(c.ctx, c.index, c.status, c.Now().Sub(c.start))
	c.endSpan(v != nil)
	if v != nil {
		return // its buffers may still be in somebody's hands
	}
	c.w, c.r, c.settings, c.limit.R, c.ctx, c.span = nil, nil, nil, nil, nil, nil
	c.calls.Put(c)
}

// panicked answers for a defect of ours. An answer that has begun cannot be
// taken back, so its connection is cut and the client sees that it is broken.
func (c *call) panicked(v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the value itself is the signal, as in net/http
		panic(v)
	}
	c.metrics.panics.Add(c.ctx, 1)
	c.Logger.LogAttrs(c.ctx, slog.LevelError, "panic",
		slog.String("route", c.pattern()), slog.String("panic", clip(fmt.Sprint(v))), slog.String("stack", string(debug.Stack())))
	if c.status != 0 {
		panic(http.ErrAbortHandler)
	}
	if c.forwardAuth() {
		c.reduced(noDecision)
		return
	}
	c.refuse(problem{kind: kindInternal, detail: "The defect is in the service's log. Nothing is known of a charge."})
}

func (c *call) serve() {
	switch {
	case c.route == nil && c.allow != "":
		c.w.Header().Set("Allow", c.allow)
		c.refuse(problem{kind: kindMethod, detail: "Use " + c.allow + "."})
		return
	case c.route == nil:
		c.refuse(problem{kind: kindNotFound, detail: "See /v1/openapi.yaml on the data listener for the calls that exist."})
		return
	}
	caller, detail := c.settings.Access.authorized(c.route.guard, c.r)
	if detail != "" {
		c.unauthorized(detail)
		return
	}
	c.caller = caller
	c.route.handle(c)
}

func (c *call) unauthorized(detail string) {
	c.logRefusal("unauthorized", detail)
	if c.forwardAuth() {
		c.authzRefuse(problem{kind: kindUnauthorized, status: http.StatusForbidden, detail: detail}, decisionInvalid)
		return
	}
	c.w.Header().Set("WWW-Authenticate", `Bearer realm="regiond"`)
	c.refuse(problem{kind: kindUnauthorized, detail: detail})
}

// noDecision is what reduced says of a check.
const noDecision = "No decision could be made at the moment. Retry later."

// reduced answers when what was asked for cannot be had: 503, or a denial where a
// gateway would misread that.
func (c *call) reduced(detail string) {
	c.w.Header()[fieldRetryAfter] = []string{"1"}
	p := problem{kind: kindReduced, detail: detail}
	if c.forwardAuth() {
		p.status = http.StatusTooManyRequests
		c.authzRefuse(p, decisionDeny)
		return
	}
	c.refuse(p)
}

// refuse writes a problem document.
func (c *call) refuse(p problem) {
	c.out = append(c.out[:0], '{')
	c.out = p.appendMembers(c.out)
	c.out = append(c.out, '}', '\n')
	c.write(p.code(), c.problem, c.out)
}

// write writes the whole answer. contentType is shared and not modified.
func (c *call) write(status int, contentType []string, body []byte) {
	h := c.w.Header()
	h["Cache-Control"] = c.noStore
	if len(body) > 0 {
		h["Content-Type"] = contentType
	}
	c.status = status
	c.w.WriteHeader(status)
	if len(body) > 0 {
		// An error here is a client that went away; there is nobody to tell.
		_, _ = c.w.Write(body)
	}
}

// deadline is the context that the limiter must answer within.
func (c *call) deadline() *timed { return c.within(c.Deadline) }

func (c *call) within(d time.Duration) *timed {
	return &timed{Context: c.ctx, until: time.Now().Add(d)}
}

func (c *call) forwardAuth() bool { return c.route != nil && c.route.guard.forwardAuth() }

func (c *call) pattern() string {
	if c.route == nil {
		return noRoute
	}
	return c.route.pattern
}
