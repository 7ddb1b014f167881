package httpapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/paths"
	"github.com/regiond/regiond/internal/base/loglimit"
	"github.com/regiond/regiond/quota"
)

// Handler serves a table of endpoints: it finds the endpoint, authenticates the
// caller, bounds what is in flight, recovers from panics, measures. It is an http.Handler,
// and other engines call Answer.
type Handler struct {
	Options
	endpoints  []endpoint
	other      listener
	checksHost bool   // see misdirected
	sheds      bool   // see late
	host       string // of Options.Address
	metrics    *metrics
	lines      *loglimit.Rate // of the log
	inFlight   atomic.Int64
	turns      chan struct{} // has an element for each batch that is decoded or encoded
	secret     [32]byte      // of pseudonyms
	sessions   access.Sessions
	edits      *loglimit.Rate // of overrides, by caller
}

func newHandler(o Options, endpoints []endpoint, other listener) (*Handler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.setDefaults()
	m, err := newMetrics(o.Meter, endpoints)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		Options: o, endpoints: endpoints, other: other, host: access.Hostname(o.Address), metrics: m,
		turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		lines: NewLogLimit(), edits: loglimit.NewRate(editsPerSecond, time.Second/editsPerSecond),
	}
	_, _ = rand.Read(h.secret[:]) // never fails
	return h, nil
}

// Answer answers a request, also one for which the handler panics.
func (h *Handler) Answer(r *Request) Response {
	c := h.newCall(r)
	c.serve()
	return c.Response
}

func (h *Handler) newCall(r *Request) *call {
	c := &call{Handler: h, Request: *r}
	c.Fields = c.room[:0]
	return c
}

// call is one request in progress, and its answer.
type call struct {
	*Handler
	Request
	Response
	room [8]answer.Field // for those of a check's answer

	w       http.ResponseWriter // of net/http, else nil
	r       *http.Request
	crowded bool // a connection of HTTP/2 has no room for this request
	mounted bool // another handler has begun to answer

	settings *Settings
	endpoint *endpoint // nil when nothing matched
	index    int       // of endpoint; −1
	tail     string    // what the pattern's last segment matched
	query    string    // as it was sent
	allow    string    // methods of the path, when only the method is wrong
	caller   *access.Token
	start    time.Time
	entered  bool // counts in inFlight
	admitted bool // its caller may use the endpoint, which is not open to all

	overGRPC bool            // see forwarded.go
	said     Said            // by the configuration of a gateway; nothing over HTTP
	decision *quota.Decision // of forward-auth, for a gateway over another protocol

	ctx    context.Context //nolint:containedctx // the request's, with its span: a call is one request
	within quota.Timed     // the same, until the deadline of its decision
	span   trace.Span      // nil unless it is recorded
	trace  trace.TraceID   // zero for none; see Tracing.Start
}

// serve finds the answer.
func (c *call) serve() {
	c.start, c.settings = c.Now(), c.Settings()
	// The path as it was sent: url.URL does not keep the difference between "/"
	// and "%2F" when anything else is out of the ordinary.
	path, _ := paths.Target(c.Target) // "" for what is no path, which no endpoint has
	_, c.query, _ = strings.Cut(c.Target, "?")
	c.index, c.tail, c.allow = find(c.endpoints, c.Method, path)
	if c.index >= 0 {
		c.endpoint = &c.endpoints[c.index]
	}
	c.startSpan()
	defer c.end()
	c.dispatch()
}

// end finishes a call: it answers a panic and records metrics.
func (c *call) end() {
	if c.entered {
		c.inFlight.Add(-1)
	}
	v := recover()
	if v != nil {
		c.panicked(v)
	}
	c.metrics.record(c.ctx, c.index, c.Status, c.Now().Sub(c.start))
	c.endSpan(v != nil)
	if v == nil && c.valid() {
		c.Conn.Prove() // it stays longer than those of strangers
	}
	if v != nil && c.mounted {
		panic(http.ErrAbortHandler)
	}
}

// panicked logs a panic and answers 500. What another handler has begun cannot be
// taken back, so its connection is cut and the client sees that it is incomplete.
func (c *call) panicked(v any) {
	c.metrics.panics.Add(1)
	c.Logger.LogAttrs(c.ctx, slog.LevelError, "panic",
		slog.String("route", c.pattern()), slog.String("panic", quota.Clip(fmt.Sprint(v))), slog.String("stack", string(debug.Stack())))
	c.Fields = nil
	if c.w != nil && !c.mounted {
		clear(c.w.Header()) // another handler's, of an answer that it did not begin
	}
	if c.forwardAuth() {
		c.unavailable(noDecision)
		return
	}
	c.refuse(answer.Problem{Kind: answer.Internal, Detail: "The error is in the service's log. Whether anything was charged is unknown."})
}

func (c *call) dispatch() {
	switch {
	case c.endpoint == nil && c.allow != "":
		c.Fields.Set("Allow", c.allow)
		c.refuse(answer.Problem{Kind: answer.Method, Detail: "Use " + c.allow + "." + c.elsewhere()})
	case c.endpoint == nil:
		c.refuse(answer.Problem{Kind: answer.NotFound, Detail: "See /v1/openapi.yaml on the data listener for the calls that exist." + c.elsewhere()})
	case c.large():
		c.Response = Refuse(http.StatusRequestHeaderFieldsTooLarge, LargeHeader())
	case c.late():
		c.shed()
	case c.misdirected():
	case c.crowded:
		c.shed()
	case c.mayCall():
		c.admitted = c.endpoint.guard != guardNone && c.endpoint.guard != guardLogin
		c.endpoint.handle(c)
	}
}

// late reports whether a request has waited for a processor for so long that it cannot be answered within the deadline. Then
// the client may wait no more, and reading the request would only delay the next ones. Nothing is shed on the admin listener.
func (c *call) late() bool { return c.sheds && !c.overGRPC && c.Conn.Late(c.Deadline) }

// misdirected refuses a request under a host that is not the listener's. Not checked are health checks, /metrics and the
// OpenAPI document, which collectors and probes call by whatever name they have and which change nothing, and
// forward-auth, where gateways pass the end user's Host.
func (c *call) misdirected() bool {
	if g := c.endpoint.guard; !c.checksHost || g == guardNone || g == guardMetrics || g.forwardAuth() {
		return false
	}
	detail := c.settings.Access.Misdirected(c.Host, c.host)
	if detail == "" {
		return false
	}
	c.logRefusal("misdirected", detail)
	c.refuse(answer.Problem{Kind: answer.Misdirected, Detail: detail})
	return true
}

// mayCall finds who calls; it refuses a caller that is not known or may not make the call.
func (c *call) mayCall() bool {
	caller, detail := c.authenticate()
	if detail != "" {
		c.unauthorized(detail)
		return false
	}
	c.caller = caller
	if why := c.endpoint.forbids(caller); why != "" {
		c.forbidden(why)
		return false
	}
	if c.endpoint.guard == guardCostly && c.foreignPage() {
		c.forbidden(noOwnPage)
		return false
	}
	return true
}

// shown is what the request shows of its caller.
func (c *call) shown() access.Shown { return access.Shown{Header: c.Header, Chains: c.Chains} }

// authenticate returns who calls, or why nobody may by what the request shows.
func (c *call) authenticate() (caller *access.Token, detail string) {
	a, g := &c.settings.Access, c.endpoint.guard
	switch g {
	case guardNone, guardLogin:
		return access.Everyone(), ""
	case guardData, guardForward, guardForwardNginx:
		return a.Caller(c.shown(), !g.forwardAuth())
	case guardAdmin, guardCostly, guardMetrics:
	}
	caller, detail = a.Admin(c.shown())
	if detail != "" && g.admin() {
		if own, why := c.bySession(); own != nil {
			return own, ""
		} else if why != "" {
			detail = why
		}
	}
	return caller, detail
}

// forbids returns why a known caller may not make the call, "" if it may.
func (e *endpoint) forbids(caller *access.Token) string {
	if missing := e.scope &^ caller.Scopes; missing == access.UsageOfAll {
		return "the caller needs scope usage in so many words: scopes=usage in its line of the tokens file"
	} else if missing != 0 {
		return "the caller needs scope " + missing.String()
	}
	// Calls with {tenant} hold the caller to its own tenants.
	if e.scope&(access.AdminScopes|access.UsageOfAll) != 0 && caller.Tenants != nil && !strings.Contains(e.pattern, "{tenant}") {
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
	switch c.Status {
	case http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return c.admitted
	}
	return c.admitted && c.Status < http.StatusBadRequest
}

func (c *call) unauthorized(detail string) {
	c.logRefusal("unauthorized", detail)
	if len(c.Chains) > 0 {
		c.Fields.Set("Connection", "close") // the next may show a renewed certificate
	}
	if !c.forwardAuth() {
		c.Fields.Set("Www-Authenticate", `Bearer realm="regiond"`)
	}
	c.refuse(answer.Problem{Kind: answer.Unauthorized, Detail: detail})
}

// forbidden answers a known caller that may not do this.
func (c *call) forbidden(detail string) {
	c.logRefusal("forbidden", detail)
	c.refuse(answer.Problem{Kind: answer.Forbidden, Detail: detail})
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
	if explain && c.caller.Scopes&access.Explain == 0 {
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
	o := quota.Outcome{Decision: c.Limiter.Shed(c.ctx)}
	c.decided(&o, false)
	c.answer(&o.Decision, c.denial(&o.Decision))
}

// unavailable answers a request that cannot be decided.
func (c *call) unavailable(detail string) {
	c.Fields.Set(answer.RetryAfter, "1")
	c.refuse(answer.Problem{Kind: answer.Reduced, Detail: detail})
}

// LargeHeader is what is wrong with a header above MaxHeaderBytes.
func LargeHeader() string { return fmt.Sprintf("A header has at most %d bytes.", MaxHeaderBytes) }

// Refuse is the answer to what no endpoint sees.
func Refuse(status int, detail string) Response {
	var c call
	c.refuse(answer.Problem{Kind: answer.Invalid, Status: status, Detail: detail})
	return c.Response
}

// refuse answers with a problem document.
func (c *call) refuse(p answer.Problem) {
	if c.forwardAuth() {
		c.forGateway(&p)
	}
	c.write(p.Code(), typeProblem, answer.JSON(p.Body()))
}

// broken refuses a request that breaks rules, if there are errors.
func (c *call) broken(errs []quota.FieldError) bool {
	if len(errs) > 0 {
		c.refuse(answer.Broken(quota.FaultInput, errs...))
	}
	return len(errs) > 0
}

// Types of answers.
const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// json answers with a value.
func (c *call) json(v any) { c.write(http.StatusOK, typeJSON, answer.JSON(v)) }

// write sets the whole answer.
func (c *call) write(status int, contentType string, body []byte) {
	c.Fields.Set("Cache-Control", "no-store")
	if len(body) > 0 {
		c.Fields.Set("Content-Type", contentType)
	}
	c.Status, c.Response.Body = status, body
}

func (c *call) forwardAuth() bool { return c.endpoint != nil && c.endpoint.guard.forwardAuth() }

func (c *call) pattern() string {
	if c.endpoint == nil {
		return noEndpoint
	}
	return c.endpoint.pattern
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
		c.Denied(d)
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
		slog.Any("violated", d.Violated()), slog.Int64("retry_after_ms", (d.RetryAfter() + time.Millisecond - 1).Milliseconds()),
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
	attrs = append(attrs, slog.String("route", c.pattern()), slog.String("peer", c.Remote.String()))
	if c.caller != nil && c.caller.Name != "" {
		attrs = append(attrs, slog.String("caller", c.caller.Name))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int64("suppressed", suppressed))
	}
	c.Logger.LogAttrs(c.ctx, slog.LevelInfo, message, attrs...)
}
