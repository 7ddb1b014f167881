package httpapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

// Limiter decides. Implementations are safe for concurrent use and return
// before ctx's deadline or soon after; they read it, since that ctx has no timer. An error is *quota.Invalid for a request
// that breaks a rule; any other error means that no decision exists, and is
// answered with 503 (429 on forward-auth).
type Limiter interface {
	// Decide answers the questions one after the other, and returns one outcome for each, in the same order.
	Decide(ctx context.Context, qs []quota.Question) []quota.Outcome
	// Reserve decides as Decide does, and holds the units of requests with Reserve that are allowed.
	Reserve(ctx context.Context, rs []quota.Request) []quota.Outcome
	// Settle charges what reservations have used, and frees the rest; decisions have a Settlement, but for those that are shed.
	Settle(ctx context.Context, cs []quota.Claim) []quota.Outcome
	// Extend gives reservations more time.
	Extend(ctx context.Context, cs []quota.Claim) []quota.Outcome
	// Shed counts a request that is turned away unread, and returns the decision about it.
	Shed(ctx context.Context) quota.Decision
	// Reset deletes what this region has logged of a tenant.
	Reset(ctx context.Context, tenant string) error
}

// Overrides keeps what tenants have in place of what the topology says. Implementations are safe for concurrent use. An error
// that is *quota.Invalid is about the edit; after any other it is not known whether it was carried out.
type Overrides interface {
	Edit(ctx context.Context, e quota.Edit) (quota.Edited, error)
	// Read returns the override that a tenant has, nil for none.
	Read(ctx context.Context, tenant string) (*quota.Override, error)
	// List returns up to n of all, after that of a tenant, without By and Reason, and where to go on, "" at the end.
	List(after string, n int) (all []*quota.Override, next string, err error)
	// History returns the last edits of a tenant's override, the newest first, and what the oldest of them has replaced.
	History(ctx context.Context, tenant string) ([]*quota.Override, error)
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
// required; NewAdmin also requires Ready, Regions, Top, Overrides, Metrics, Page and Events.
type Options struct {
	Limiter Limiter
	// Settings returns the settings in force; nil means the zero Settings. It is called
	// once per request and must be cheap.
	Settings func() *Settings
	// Ready reports whether traffic should come here, and if not, why.
	Ready func() (ok bool, reasons []string)
	// Regions returns what GET /v1/regions renders as JSON.
	Regions func() any
	// Reopen ends what a loss of data costs our region, if it has that name. It reports why there is nothing to reopen, "" if
	// it was done; nil where there never is.
	Reopen func(ctx context.Context, region string) (refused string, err error)
	// Top ranks partitions for GET /v1/top. Its error is as those of Limiter.
	Top func(q quota.TopQuery) (quota.TopReport, error)
	// Usage returns a page of what tenants have used in our region, for GET /v1/usage; nil where that is not known. Its error is as
	// those of Limiter.
	Usage func(ctx context.Context, q quota.UsageQuery) (quota.UsagePage, error)
	// ResetEverywhere deletes what all regions have logged and counted of a tenant, and
	// reports what each has done; on an error our own has not. nil where no other region can
	// be asked.
	ResetEverywhere func(ctx context.Context, tenant string) ([]quota.RegionReset, error)
	// Overrides are those of tenants.
	Overrides Overrides
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
	Access      access.Access
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
		o.Settings = func() *Settings { return &Settings{} }
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
	h, err := newHandler(o, dataEndpoints(), listener{adminHint, adminEndpoints()})
	if err != nil {
		return nil, err
	}
	h.sheds, h.checksHost = true, access.IsLoopback(h.host)
	return h, nil
}

// NewAdmin returns the handler of the admin listener, for operators and their
// tools. Keep it on loopback or behind admin tokens: it serves profiles and
// deletes usage.
func NewAdmin(o Options) (*Handler, error) {
	if o.Ready == nil || o.Regions == nil || o.Top == nil || o.Overrides == nil || o.Metrics == nil || o.Page == nil || o.Events == nil {
		return nil, errors.New("httpapi: the admin handler needs Options.Ready, Regions, Top, Overrides, Metrics, Page and Events")
	}
	h, err := newHandler(o, adminEndpoints(), listener{dataHint, dataEndpoints()})
	if err != nil {
		return nil, err
	}
	h.checksHost = true
	return h, nil
}
