package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/quota"
)

// Limiter decides. Implementations are safe for concurrent use and always
// answer before ctx's deadline or soon after. An error is *quota.Invalid for a
// request that breaks a rule; any other error means that no decision exists,
// and is answered with 503 (429 on forward-auth).
type Limiter interface {
	Check(ctx context.Context, r quota.Request) (quota.Decision, error)
	// CheckBatch decides one after the other and returns as many outcomes, in
	// the same order.
	CheckBatch(ctx context.Context, rs []quota.Request) []quota.Outcome
	// Peek is Check that spends nothing.
	Peek(ctx context.Context, r quota.Request) (quota.Decision, error)
	// Report charges without asking.
	Report(ctx context.Context, r quota.Request) (quota.Decision, error)
	// Reset forgets what this region has logged of a tenant.
	Reset(ctx context.Context, tenant string) error
}

// Defaults of Options.
const (
	// DefaultDeadline is the budget of a whole answer: what a gateway that
	// waits on every request can still bear.
	DefaultDeadline = 50 * time.Millisecond
	// DefaultMaxInFlight bounds the requests in progress; at 50 ms each it is
	// more than a process can answer, so it is met only when something is stuck.
	DefaultMaxInFlight = 4096
)

// Options are what a door needs. Limiter, Logger and Meter are required, and
// Ready, Regions and Metrics too for NewAdmin.
type Options struct {
	Limiter Limiter
	// Settings returns the settings in force; nil, and a nil result, mean the
	// zero Settings. It is called once per request and must be cheap.
	Settings func() *Settings
	// Ready says whether traffic should come here, and if not, why.
	Ready func() (ok bool, reasons []string)
	// Regions returns what GET /v1/regions renders as JSON.
	Regions func() any
	// Metrics answers GET /metrics.
	Metrics http.Handler
	Logger  *slog.Logger
	Meter   metric.Meter
	// Tracing makes a span of each check; nil makes none, and costs nothing.
	Tracing *Tracing
	// Jitter returns a number in [0,1), by default from math/rand/v2.
	Jitter func() float64
	// Now is the host's clock, by default time.Now. It measures durations, paces
	// the log, and stands in for the store's clock in epoch header fields when
	// the store was not asked; it decides nothing.
	Now func() time.Time
	// Deadline bounds a whole answer, counted from the moment the request has
	// been read; 0 means DefaultDeadline.
	Deadline time.Duration
	// MaxInFlight bounds the requests in progress; 0 means DefaultMaxInFlight.
	MaxInFlight int
}

func (o *Options) validate() error {
	switch {
	case o.Limiter == nil:
		return errors.New("httpapi: Options.Limiter is missing")
	case o.Logger == nil:
		return errors.New("httpapi: Options.Logger is missing")
	case o.Meter == nil:
		return errors.New("httpapi: Options.Meter is missing")
	case o.Deadline < 0:
		return errors.New("httpapi: Options.Deadline is negative")
	case o.MaxInFlight < 0:
		return errors.New("httpapi: Options.MaxInFlight is negative")
	}
	return o.Tracing.validate()
}

func (o *Options) setDefaults() {
	if o.Settings == nil {
		o.Settings = func() *Settings { return nil }
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Deadline == 0 {
		o.Deadline = DefaultDeadline
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
}

// NewData returns the handler of the data listener: what gateways and services
// call. It fails when an option is missing or an instrument cannot be created.
func NewData(o Options) (http.Handler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return newDoor(o, dataRoutes())
}

func dataRoutes() []route {
	return []route{
		{"POST", "/v1/check", guardData, (*call).check},
		{"POST", "/v1/check:batch", guardData, (*call).batch},
		{"POST", "/v1/report", guardData, (*call).report},
		{"GET", "/v1/usage/{tenant}", guardData, (*call).usage},
		{"ANY", "/v1/authz", guardForward, (*call).authzForwarded},
		{"ANY", "/v1/authz/{path...}", guardForward, (*call).authzPath},
		{"ANY", "/v1/authz-nginx", guardForwardNginx, (*call).authzNginx},
		{"GET", "/v1/openapi.yaml", guardNone, (*call).openapi},
	}
}

// NewAdmin returns the handler of the admin listener: what operators and their
// machines call. Keep it on loopback or behind admin tokens: it shows profiles
// and forgets usage.
func NewAdmin(o Options) (http.Handler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Ready == nil || o.Regions == nil || o.Metrics == nil {
		return nil, errors.New("httpapi: the admin handler needs Options.Ready, Regions and Metrics")
	}
	return newDoor(o, adminRoutes())
}

func adminRoutes() []route {
	return []route{
		{"GET", "/healthz", guardNone, (*call).healthz},
		{"GET", "/readyz", guardNone, (*call).readyz},
		{"GET", "/metrics", guardAdmin, (*call).scrape},
		{"GET", "/v1/regions", guardAdmin, (*call).regions},
		{"DELETE", "/v1/usage/{tenant}", guardAdmin, (*call).reset},
		{"GET", "/debug/pprof/{path...}", guardAdmin, (*call).pprof},
		{"POST", "/debug/pprof/symbol", guardAdmin, (*call).pprof},
	}
}
