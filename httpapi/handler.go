package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/quota"
)

// Handler serves a table of endpoints: it finds the endpoint, authenticates the
// caller, bounds what is in flight, recovers from panics, measures. It is an http.Handler,
// and NewPlainServer serves it without net/http.
type Handler struct {
	Options
	endpoints  []endpoint
	other      listener
	checksHost bool   // see foreignHost
	sheds      bool   // see late
	host       string // of Options.Address
	metrics    *metrics
	lines      *loglimit.Rate // of the log
	inFlight   atomic.Int64
	turns      chan struct{} // has an element for each batch that is decoded or encoded
	calls      sync.Pool
	router     router
	unset      Settings  // in force where Options.Settings returns nil
	unsaid     Forwarded // by requests over HTTP
	secret     [32]byte  // of pseudonyms
	sessions   sessions
}

func newHandler(o Options, endpoints []endpoint, other listener, checksHost bool) (*Handler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	m, err := newMetrics(o.Meter, endpoints)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		Options: o, endpoints: endpoints, other: other, checksHost: checksHost, host: hostname(o.Address), metrics: m,
		turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		lines: NewLogLimit(),
	}
	_, _ = rand.Read(h.secret[:]) // never fails
	h.calls.New = func() any { return &call{Handler: h, decode: newDecoder()} }
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, _ := h.calls.Get().(*call) // New makes no other
	c.standard = standardExchange{w: w, r: r}
	if own := c.standard.connection(); own != nil && r.ProtoMajor == 2 {
		if c.standard.crowded = !own.beginStream(); !c.standard.crowded {
			defer own.endStream()
		}
	}
	c.serve(&c.standard, h.late(c.standard.connection()))
}

// late reports whether a request has waited for a processor for so long that it cannot be answered within the deadline. Then
// the client may wait no more, and reading the request would only delay the next ones. Nothing is shed on the admin listener.
func (h *Handler) late(conn *connection) bool { return h.sheds && conn.waited() > h.Deadline }

// call is one request in progress. It is pooled: nothing that outlives the
// request may refer to its buffers.
type call struct {
	*Handler
	exchange
	standard  standardExchange // what exchange is, on the one engine or the other
	plain     plainExchange
	forwarded *forwardedExchange // or this, nil over HTTP
	settings  *Settings
	endpoint  *endpoint // nil when nothing matched
	index     int       // of endpoint; −1
	tail      string    // what the pattern's last segment matched
	query     string    // as it was sent
	allow     string    // methods of the path, when only the method is wrong
	caller    *Token    // &everyone where none is required
	start     time.Time
	status    int  // 0 until the answer is written
	entered   bool // counts in inFlight
	admitted  bool // its caller may use the endpoint, which is not open to all

	ctx  context.Context //nolint:containedctx // the request's, with its span: a call is one request
	span trace.Span      // nil unless it is recorded

	decode *decoder
	limit  io.LimitedReader
	in     bytes.Buffer
	fields fields // of the answer
	out    []byte
	room   int // bytes left for the problems of a batch
	field  []byte
}

// serve answers the request of an exchange, and returns the call to the pool. One that came too late is turned away.
func (c *call) serve(x exchange, late bool) {
	c.begin(x, c.Now())
	defer c.end()
	c.dispatch(late)
}

func (c *call) begin(x exchange, now time.Time) {
	c.exchange, c.start, c.status, c.caller, c.entered, c.admitted = x, now, 0, &everyone, false, false
	c.fields = c.fields[:0]
	c.settings = c.Settings()
	if c.settings == nil {
		c.settings = &c.unset
	}
	// The path as it was sent: url.URL does not keep the difference between "/"
	// and "%2F" when anything else is out of the ordinary.
	uri := x.target()
	path, _ := target(uri) // "" for what is no path, which no endpoint has
	_, c.query, _ = strings.Cut(uri, "?")
	c.endpoint = nil
	c.index, c.tail, c.allow = find(c.endpoints, x.method(), path)
	if c.index >= 0 {
		c.endpoint = &c.endpoints[c.index]
	}
	c.ctx, c.span = c.Tracing.start(c)
}

// end finishes a call: it answers a panic, records metrics and returns the call
// to the pool.
func (c *call) end() {
	if c.entered {
		c.inFlight.Add(-1)
	}
	v := recover()
	if v != nil {
		c.panicked(v)
	}
	c.metrics.record(c.ctx, c.index, c.status, c.Now().Sub(c.start))
	c.endSpan(v != nil)
	if v == nil && c.valid() {
		c.prove()
	}
	if v != nil {
		return // other goroutines may still use its buffers
	}
	c.exchange, c.standard, c.plain, c.forwarded = nil, standardExchange{}, plainExchange{lines: c.plain.lines[:0]}, nil
	c.settings, c.limit, c.ctx, c.span = nil, io.LimitedReader{}, nil, nil
	c.calls.Put(c)
}

// panicked logs a panic and answers 500. An answer that has begun cannot be
// taken back, so its connection is cut and the client sees that it is incomplete.
func (c *call) panicked(v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the value itself is the signal, as in net/http
		panic(v)
	}
	c.metrics.panics.Add(1)
	c.Logger.LogAttrs(c.ctx, slog.LevelError, "panic",
		slog.String("route", c.pattern()), slog.String("panic", truncate(fmt.Sprint(v))), slog.String("stack", string(debug.Stack())))
	switch {
	case c.status != 0 && !c.takeBack():
		panic(http.ErrAbortHandler)
	case c.forwardAuth():
		c.unavailable(noDecision)
	default:
		c.refuse(problem{kind: kindInternal, detail: "The error is in the service's log. Whether anything was charged is unknown."})
	}
}

func (c *call) dispatch(late bool) {
	switch {
	case c.endpoint == nil && c.allow != "":
		c.fields.set("Allow", c.allow)
		c.refuse(problem{kind: kindMethod, detail: "Use " + c.allow + "." + c.elsewhere()})
		return
	case c.endpoint == nil:
		c.refuse(problem{kind: kindNotFound, detail: "See /v1/openapi.yaml on the data listener for the calls that exist." + c.elsewhere()})
		return
	}
	if c.standard.large() {
		c.refuse(largeHeader())
		return
	}
	if late {
		c.shed()
		return
	}
	if c.foreignHost() {
		c.misdirected()
		return
	}
	if c.standard.crowded {
		c.shed()
		return
	}
	caller, detail := c.authenticate()
	if detail != "" {
		c.unauthorized(detail)
		return
	}
	c.caller = caller
	if why := c.endpoint.forbids(caller); why != "" {
		c.forbidden(why)
		return
	}
	if c.endpoint.guard == guardCostly && c.foreignPage() {
		c.forbidden(noOwnPage)
		return
	}
	c.admitted = c.endpoint.guard != guardNone && c.endpoint.guard != guardLogin
	c.endpoint.handle(c)
}

// authenticate returns who calls, or why nobody may by what the request shows.
func (c *call) authenticate() (caller *Token, detail string) {
	caller, detail = c.settings.Access.authenticate(c.endpoint.guard, c)
	if detail != "" && c.endpoint.guard.admin() {
		if own, why := c.bySession(); own != nil {
			return own, ""
		} else if why != "" {
			detail = why
		}
	}
	return caller, detail
}

// forbids returns why a known caller may not make the call, "" if it may.
func (e *endpoint) forbids(caller *Token) string {
	if missing := e.scope &^ caller.Scopes; missing != 0 {
		return "the caller needs scope " + missing.String()
	}
	// Calls with {tenant} hold the caller to its own tenants.
	if e.scope&AdminScopes != 0 && caller.Tenants != nil && !strings.Contains(e.pattern, "{tenant}") {
		return "the caller is held to tenants, and this call shows all of them"
	}
	return ""
}

// enter counts a request that is to be decided as in flight, once all of it has been
// read: others do not wait for slow senders. Where there are too many it answers and
// returns false.
func (c *call) enter() bool {
	c.entered = true
	if c.inFlight.Add(1) > int64(c.MaxInFlight) {
		c.shed()
		return false
	}
	return true
}

// valid reports whether a request that was answered broke no rule.
func (c *call) valid() bool {
	switch c.status {
	case http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return c.admitted
	}
	return c.admitted && c.status < http.StatusBadRequest
}

// prove keeps the connection of a valid request longer than those of strangers.
func (c *call) prove() {
	if own := c.connection(); own != nil {
		own.prove()
	}
}

func (c *call) unauthorized(detail string) {
	c.logRefusal("unauthorized", detail)
	if len(c.certificates()) > 0 {
		c.fields.set("Connection", "close") // the next may show a renewed certificate
	}
	if c.forwardAuth() {
		c.authzRefuse(problem{kind: kindUnauthorized, status: http.StatusForbidden, detail: detail}, decisionInvalid)
		return
	}
	c.fields.set("Www-Authenticate", `Bearer realm="regiond"`)
	c.refuse(problem{kind: kindUnauthorized, detail: detail})
}

// forbidden answers a known caller that may not do this.
func (c *call) forbidden(detail string) {
	c.logRefusal("forbidden", detail)
	p := problem{kind: kindForbidden, detail: detail}
	if c.forwardAuth() {
		c.authzRefuse(p, decisionInvalid)
		return
	}
	c.refuse(p)
}

// noTenant is the detail where a caller names a tenant that is not one of its own.
const noTenant = "the caller is held to other tenants"

// mayName reports whether the caller may name a tenant; if not, it has answered.
func (c *call) mayName(tenant string) bool {
	if !c.caller.MayName(tenant) {
		c.forbidden(noTenant)
		return false
	}
	return true
}

// mayExplain reports whether the caller may see the terms of a decision, if it wants
// to; if not, it has answered.
func (c *call) mayExplain(explain bool) bool {
	if explain && c.caller.Scopes&ScopeExplain == 0 {
		c.forbidden("the caller needs scope explain for ?explain=1")
		return false
	}
	return true
}

// noDecision is the detail of a check that could not be decided.
const noDecision = "No decision could be made at the moment. Retry later."

// shed answers a request that is turned away unread, as the limiter does one that Redis is too busy for: without a decision a 503
// would be an outage to clients that then let everything pass. It is not in the denial log, since no tenant is known.
func (c *call) shed() {
	if c.endpoint.guard == guardNone { // what decides nothing
		c.unavailable(noDecision)
		return
	}
	d := c.Limiter.Shed(c.ctx)
	d.ID = c.decisionID()
	c.traceDecision(&d, "")
	if c.forwardAuth() {
		c.authzAnswer(&d)
		return
	}
	c.answer(&d, http.StatusServiceUnavailable)
}

// unavailable answers 503, or a denial on forward-auth, where gateways would
// take a 5xx for an outage of the limiter.
func (c *call) unavailable(detail string) {
	c.fields.set(fieldRetryAfter, "1")
	p := problem{kind: kindReduced, detail: detail}
	if c.forwardAuth() {
		p.status = http.StatusTooManyRequests
		c.authzRefuse(p, decisionDeny)
		return
	}
	c.refuse(p)
}

// largeHeader is the refusal of a header above MaxHeaderBytes.
func largeHeader() problem {
	return problem{
		kind: kindInvalid, status: http.StatusRequestHeaderFieldsTooLarge,
		detail: fmt.Sprintf("A header has at most %d bytes.", MaxHeaderBytes),
	}
}

// refuse writes a problem document.
func (c *call) refuse(p problem) {
	c.out = append(c.out[:0], '{')
	c.out = p.appendMembers(c.out)
	c.out = append(c.out, '}', '\n')
	c.write(p.code(), typeProblem, c.out)
}

// Types of answers.
const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// write writes the whole answer.
func (c *call) write(status int, contentType string, body []byte) {
	c.fields.set("Cache-Control", "no-store")
	if len(body) > 0 {
		c.fields.set("Content-Type", contentType)
	}
	c.status = status
	c.send(status, c.fields, body)
}

func (c *call) forwardAuth() bool { return c.endpoint != nil && c.endpoint.guard.forwardAuth() }

func (c *call) pattern() string {
	if c.endpoint == nil {
		return noEndpoint
	}
	return c.endpoint.pattern
}

// within returns the call's context with a deadline that is d away.
func (c *call) within(d time.Duration) context.Context {
	at := time.Now().Add(d)
	if earlier, ok := c.ctx.Deadline(); ok && earlier.Before(at) {
		at = earlier
	}
	return &deadline{Context: c.ctx, at: at}
}

// deadline is context.WithDeadline for one allocation in place of four (see
// DESIGN.md). The limiter reads Deadline and has a timer of its own, so the
// standard context is made only for callers that need Done. It ends with the
// request's context, which net/http cancels after the answer.
type deadline struct {
	context.Context //nolint:containedctx // it is one
	at              time.Time

	once   sync.Once
	std    context.Context //nolint:containedctx // as above
	cancel context.CancelFunc
}

func (d *deadline) standard() context.Context {
	d.once.Do(func() { d.std, d.cancel = context.WithDeadline(d.Context, d.at) })
	return d.std
}

// Deadline implements context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} { return d.standard().Done() }

// Err implements context.Context.
func (d *deadline) Err() error {
	if d.Context.Err() == nil && time.Now().Before(d.at) {
		return nil
	}
	return d.standard().Err()
}

// NewLogLimit bounds what any caller can have written, a line for each failed handshake for example: ten lines a second of
// each kind.
func NewLogLimit() *loglimit.Rate { return loglimit.NewRate(10, time.Second/10) }

// logDecision passes a denial on to Options.Denied, and writes a line for it, enforced or observed, and for what was shed. Ids are in the
// log alone, never in a metric.
func (c *call) logDecision(d *quota.Decision, dims quota.Dimensions) {
	if d.Allowed && !d.WouldDeny {
		return
	}
	if !d.Allowed && c.Denied != nil {
		own := *d // else every decision would be on the heap
		c.Denied(&own)
	}
	suppressed, ok := c.lines.Pass("denied", c.start)
	if !ok {
		return
	}
	message := "denied"
	switch {
	case d.Allowed:
		message = "would deny"
	case d.Basis == quota.BasisShed:
		message = "shed"
	}
	attrs := []slog.Attr{
		slog.String("tenant", d.Tenant), slog.String("policy", d.Policy), slog.Int64("cost", d.Cost),
		slog.Any("violated", d.Violated()), slog.Int64("retry_after_ms", ceil(d.RetryAfter(), time.Millisecond)),
		slog.String("basis", d.Basis.String()), slog.String("mode", d.Mode.String()),
	}
	if d.Reason != quota.ReasonNone {
		attrs = append(attrs, slog.String("reason", d.Reason.String()))
	}
	for _, dim := range dims {
		attrs = append(attrs, slog.String("dim."+dim.Name, dim.Value))
	}
	attrs = append(attrs, slog.String("id", d.ID.String()))
	c.log(message, suppressed, attrs)
}

// logRefusal writes a line for a call without a decision. detail is our own text
// and contains nothing secret.
func (c *call) logRefusal(why, detail string) {
	if suppressed, ok := c.lines.Pass("refused", c.start); ok {
		c.log("refused", suppressed, []slog.Attr{slog.String("why", why), slog.String("detail", detail)})
	}
}

// logReset is not sampled: it changed what a tenant may still use.
func (c *call) logReset(tenant string) {
	c.log("usage reset", 0, []slog.Attr{slog.String("tenant", tenant)})
}

func (c *call) log(message string, suppressed int64, attrs []slog.Attr) {
	attrs = append(attrs, slog.String("route", c.pattern()), slog.String("peer", c.remote()))
	if c.caller != nil && c.caller.Name != "" {
		attrs = append(attrs, slog.String("caller", c.caller.Name))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", suppressed))
	}
	c.Logger.LogAttrs(c.ctx, slog.LevelInfo, message, attrs...)
}
