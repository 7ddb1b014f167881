package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
)

// Limiter decides. Implementations are safe for concurrent use and return
// before ctx's deadline or soon after. An error is *quota.Invalid for a request
// that breaks a rule; any other error means that no decision exists, and is
// answered with 503 (429 on forward-auth).
type Limiter interface {
	Check(ctx context.Context, r quota.Request) (quota.Decision, error)
	// CheckBatch decides one after the other and returns one outcome per
	// request, in the same order.
	CheckBatch(ctx context.Context, rs []quota.Request) []quota.Outcome
	// Peek is Check that charges nothing.
	Peek(ctx context.Context, r quota.Request) (quota.Decision, error)
	// Report charges whatever is left.
	Report(ctx context.Context, r quota.Request) (quota.Decision, error)
	// Shed counts a request that is turned away unread, and returns the decision about it.
	Shed(ctx context.Context) quota.Decision
	// Reset deletes what this region has logged of a tenant.
	Reset(ctx context.Context, tenant string) error
}

// Defaults of Options.
const (
	// DefaultDeadline bounds a whole answer: gateways wait for it on every request.
	DefaultDeadline = 50 * time.Millisecond
	// DefaultMaxInFlight bounds the requests in progress. At 50 ms each it is
	// more than one process can answer, so only a stall reaches it.
	DefaultMaxInFlight = 4096
)

// Options configure NewData and NewAdmin. Limiter, Logger and Meter are
// required; NewAdmin also requires Ready, Regions, Top, Metrics, Page and Events.
type Options struct {
	Limiter Limiter
	// Settings returns the settings in force; nil, and a nil result, mean the
	// zero Settings. It is called once per request and must be cheap.
	Settings func() *Settings
	// Ready reports whether traffic should come here, and if not, why.
	Ready func() (ok bool, reasons []string)
	// Regions returns what GET /v1/regions renders as JSON.
	Regions func() any
	// Top ranks partitions for GET /v1/top. Its error is as those of Limiter.
	Top func(q quota.TopQuery) (quota.TopReport, error)
	// ResetEverywhere deletes what all regions have logged and counted of a tenant, and
	// reports what each has done; on an error our own has not. nil where no other region can
	// be asked.
	ResetEverywhere func(ctx context.Context, tenant string) ([]quota.RegionReset, error)
	// Metrics answers GET /metrics.
	Metrics http.Handler
	// Page answers GET / and GET /page/{path}, to anyone. Events answers GET /v1/events.
	Page, Events http.Handler
	// Demo answers POST /demo/{path}, to whom the admin listener admits. nil outside a demo.
	Demo   http.Handler
	Logger *slog.Logger
	Meter  metric.Meter
	// Denied is given each denial that is answered; nil for nobody. It must neither wait nor
	// keep or change the decision.
	Denied func(*quota.Decision)
	// Tracing creates a span for each check; nil creates none, at no cost.
	Tracing *Tracing
	// Jitter returns a number in [0,1), by default from math/rand/v2.
	Jitter func() float64
	// NewID returns the id of a decision without a trace, by default NewID of this package.
	NewID func() quota.DecisionID
	// Now is the host's clock, by default time.Now. It measures durations, paces
	// the log, and replaces the store's clock in epoch header fields of a
	// decision that did not reach the store; it decides nothing.
	Now func() time.Time
	// Deadline bounds a whole answer, counted from the moment the request has
	// been read; 0 means DefaultDeadline. A request that waited longer than that
	// for a processor is turned away unread.
	Deadline time.Duration
	// MaxInFlight bounds the requests in progress; 0 means DefaultMaxInFlight.
	MaxInFlight int
	// Address is what the listener was opened with, host:port. The admin listener answers
	// under its host, loopback names, IP addresses and Access.AllowedHosts; the data
	// listener under any name, unless the address is of loopback.
	Address string
}

// Settings are what may change between requests. A value is immutable once it
// has been returned by Options.Settings; a reload returns another one.
type Settings struct {
	// ForwardAuth is how to read a gateway's request; nil refuses all of them.
	ForwardAuth *quota.ForwardAuth
	Headers     quota.Headers
	Access      Access
}

func (o *Options) validate() error {
	switch {
	case o.Limiter == nil || o.Logger == nil || o.Meter == nil:
		return errors.New("httpapi: Options needs Limiter, Logger and Meter")
	case o.Deadline < 0 || o.MaxInFlight < 0:
		return errors.New("httpapi: Deadline and MaxInFlight of Options must not be negative")
	case o.Tracing != nil && o.Tracing.Tracer == nil:
		return errors.New("httpapi: Options.Tracing has no Tracer")
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.Settings == nil {
		o.Settings = func() *Settings { return nil }
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.NewID == nil {
		o.NewID = NewID
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Deadline = cmp.Or(o.Deadline, DefaultDeadline)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, DefaultMaxInFlight)
}

// NewData returns the handler of the data listener, which gateways and services
// call. It fails when an option is missing or an instrument cannot be created.
func NewData(o Options) (*Handler, error) {
	h, err := newHandler(o, dataEndpoints(), listener{adminHint, adminEndpoints()}, isLoopback(hostname(o.Address)))
	if h != nil {
		h.sheds = true
	}
	return h, err
}

// NewAdmin returns the handler of the admin listener, for operators and their
// tools. Keep it on loopback or behind admin tokens: it serves profiles and
// deletes usage.
func NewAdmin(o Options) (*Handler, error) {
	if o.Ready == nil || o.Regions == nil || o.Top == nil || o.Metrics == nil || o.Page == nil || o.Events == nil {
		return nil, errors.New("httpapi: the admin handler needs Options.Ready, Regions, Top, Metrics, Page and Events")
	}
	return newHandler(o, adminEndpoints(), listener{dataHint, dataEndpoints()}, true)
}

// Limits of a connection. A gateway on the same network needs far less of each;
// what exceeds them is an attack or an accident.
const (
	// ReadHeaderTimeout bounds a client that sends its header slowly.
	ReadHeaderTimeout = 2 * time.Second
	// ReadTimeout bounds header and body together.
	ReadTimeout = 5 * time.Second
	// WriteTimeout bounds a client that does not read its answer.
	WriteTimeout = 5 * time.Second
	// ResetTimeout bounds DELETE /v1/usage/{tenant}, which scans every key of a
	// store and cannot keep the deadline of an answer. The second left of
	// WriteTimeout is for the answer that reports the timeout.
	ResetTimeout = WriteTimeout - time.Second
	// IdleTimeout is longer than the keep-alive of common gateways.
	IdleTimeout = 60 * time.Second
	// MaxHeaderBytes bounds all header lines together.
	MaxHeaderBytes = 16 << 10
)

// maxReadHTTP2 is how much of a header is read over HTTP/2, where each field counts 32 bytes more. What is above MaxHeaderBytes is
// refused once it is read: net/http ends the connection with all of its requests where a client sends more than it takes,
// and a client that heeds that sends nothing, which gateways take for an outage. Envoy sends 60 KiB in 100 fields.
const maxReadHTTP2 = 64 << 10

// MaxStreams bounds the requests that are under way on a connection of HTTP/2. Each beyond
// the first takes a place of the bound of connections.
const MaxStreams = 64

// NewServer returns a server for a handler of this package with every limit
// set. It speaks HTTP/1.1, and HTTP/2 only over TLS; the caller provides the
// listener, which comes from bound.Listen, and the TLSConfig. Errors of net/http are
// logged as warnings, at most ten a second. bound may be nil.
func NewServer(h http.Handler, log *slog.Logger, bound *Connections) *http.Server {
	s, over2 := server(h, bound, MaxHeaderBytes), server(h, bound, maxReadHTTP2)
	s.ErrorLog = slog.NewLogLogger(NewLogLimit().Handler(log.Handler()), slog.LevelWarn)
	over2.ErrorLog = s.ErrorLog
	var once sync.Once
	s.BaseContext = func(net.Listener) context.Context { // once Serve has set up HTTP/2, and before it accepts
		once.Do(func() {
			for name, serve := range s.TLSNextProto {
				s.TLSNextProto[name] = func(_ *http.Server, c *tls.Conn, h http.Handler) { serve(over2, c, h) }
			}
		})
		return context.Background()
	}
	return s
}

func server(h http.Handler, bound *Connections, maxHeader int) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	s := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: ReadHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: MaxStreams,
			// net/http's are 1 MiB each, for a connection that has sent a few bytes.
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerConnection: MaxBody,
			MaxReceiveBufferPerStream:     MaxBody,
			WriteByteTimeout:              WriteTimeout,
		},
	}
	if bound != nil {
		bound.serve(s)
	}
	return s
}

// endpoint is one line of the table of calls. A pattern is a literal path, or
// ends in "{name}" for one segment, or in "{name...}" for anything.
//
// This is not http.ServeMux because that redirects unclean paths: behind
// /v1/authz/ is the path of an end user's request, so "//login" must be decided
// and not redirected, and every error must be a problem document.
type endpoint struct {
	method  string // "GET" serves HEAD too, "ANY" serves all
	pattern string
	guard   guard
	scope   Scope // that a caller needs
	handle  func(*call)
}

// guard is who may call an endpoint, and the form of a refusal there.
type guard uint8

const (
	guardNone         guard = iota // anyone
	guardData                      // Bearer or X-Regiond-Token, else 401
	guardForward                   // X-Regiond-Token only, else 403; every other refusal is 429 or 403
	guardForwardNginx              // as guardForward, every refusal is 403
	guardAdmin                     // an admin token, else 401
	guardCostly                    // as guardAdmin, and never for a page of another origin: it holds a connection, a profile or a look-up
	guardMetrics                   // as guardAdmin, under any host
	guardLogin                     // anyone, under a host that is the listener's
)

// admin reports whether a session will do in place of an admin token.
func (g guard) admin() bool { return g == guardAdmin || g == guardCostly }

func (g guard) forwardAuth() bool { return g == guardForward || g == guardForwardNginx }

func dataEndpoints() []endpoint {
	return []endpoint{
		{"POST", "/v1/check", guardData, ScopeCheck, (*call).check},
		{"POST", "/v1/check:batch", guardData, ScopeCheck, (*call).batch},
		{"POST", "/v1/report", guardData, ScopeReport, (*call).report},
		{"GET", "/v1/usage/{tenant}", guardData, ScopeUsage, (*call).usage},
		{"GET", "/v1/explain/{tenant}", guardData, ScopeExplain, (*call).explain},
		{"ANY", "/v1/authz", guardForward, ScopeCheck, (*call).authzForwarded},
		{"ANY", "/v1/authz/{path...}", guardForward, ScopeCheck, (*call).authzPath},
		{"ANY", "/v1/authz-nginx", guardForwardNginx, ScopeCheck, (*call).authzNginx},
		{"GET", "/v1/openapi.yaml", guardNone, 0, (*call).openapi},
	}
}

func adminEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/healthz", guardNone, 0, (*call).healthz},
		{"GET", "/readyz", guardNone, 0, (*call).readyz},
		{"GET", "/metrics", guardMetrics, ScopeMetrics, (*call).scrape},
		{"GET", "/", guardNone, 0, (*call).page},
		{"GET", "/page/{path...}", guardNone, 0, (*call).page},
		{"POST", "/session", guardLogin, 0, (*call).login},
		{"DELETE", "/session", guardLogin, 0, (*call).logout},
		{"GET", "/v1/events", guardCostly, ScopeAdmin, (*call).events},
		{"POST", "/demo/{path...}", guardAdmin, ScopeAdmin, (*call).demo},
		{"GET", "/v1/regions", guardAdmin, ScopeAdmin, (*call).regions},
		{"GET", "/v1/top", guardCostly, ScopeAdmin, (*call).top},
		{"GET", "/v1/explain/{tenant}", guardCostly, ScopeAdmin, (*call).explain},
		{"DELETE", "/v1/usage/{tenant}", guardAdmin, ScopeAdmin, (*call).reset},
		{"GET", "/debug/pprof/{path...}", guardCostly, ScopeAdmin, (*call).pprof},
		{"POST", "/debug/pprof/symbol", guardCostly, ScopeAdmin, (*call).pprof},
	}
}

// match returns the part of the path that the pattern's last segment stands
// for. The path is escaped, so a slash in it was sent as a slash.
func (e *endpoint) match(path string) (tail string, ok bool) {
	open := strings.IndexByte(e.pattern, '{')
	if open < 0 {
		if strings.Contains(path, "%3") { // clients may encode the colon of /v1/check:batch
			path = strings.NewReplacer("%3A", ":", "%3a", ":").Replace(path)
		}
		return "", path == e.pattern
	}
	tail, ok = strings.CutPrefix(path, e.pattern[:open])
	if ok && !strings.HasSuffix(e.pattern, "...}") {
		ok = tail != "" && !strings.Contains(tail, "/")
	}
	return tail, ok
}

func (e *endpoint) serves(method string) bool {
	return e.method == method || e.method == "ANY" || e.method == http.MethodGet && method == http.MethodHead
}

// listener is the one that a call may have been meant for instead.
type listener struct {
	hint      string // where it is
	endpoints []endpoint
}

const (
	adminHint = "The admin listener has this call: `admin` of the region, by default 127.0.0.1:9090."
	dataHint  = "The data listener has this call: `http` of the region, by default 127.0.0.1:8080."
)

// elsewhere is a sentence that names the other listener, if it has this call; else "".
func (c *call) elsewhere() string {
	path, _ := target(c.target())
	if i, _, _ := find(c.other.endpoints, c.method(), path); i < 0 {
		return ""
	}
	return " " + c.other.hint
}

// find returns the index of the endpoint of a request. When only the method is
// wrong it returns −1 and the methods that exist; when nothing matches, −1 and "".
func find(endpoints []endpoint, method, path string) (index int, tail, allow string) {
	var methods []string
	for i := range endpoints {
		e := &endpoints[i]
		tail, ok := e.match(path)
		switch {
		case ok && e.serves(method):
			return i, tail, ""
		case ok && e.method == http.MethodGet:
			methods = append(methods, http.MethodGet, http.MethodHead)
		case ok:
			methods = append(methods, e.method)
		}
	}
	return -1, "", strings.Join(methods, ", ")
}
