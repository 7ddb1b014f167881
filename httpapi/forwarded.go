package httpapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// Forwarded is a request that a gateway asks about over another protocol than HTTP. It gets the answer of /v1/authz/{path...}.
type Forwarded struct {
	Method, Path string              // as the client sent them, the path with its query
	Header       map[string][]string // of the request, by names in lower case
	Remote       string              // address of the client as the gateway sees it

	// What the gateway's configuration says, in place of forward_auth: its tenant, route and dimensions win over those of the
	// request. "" and 0 say nothing, but the value "" of a dimension says that there is none.
	Tenant, Policy, Route string
	// NoTenant says that no header has the tenant.
	NoTenant   bool
	Cost       int64
	Dimensions quota.Dimensions
	// Unclear is why that cannot be known; the request is refused.
	Unclear error

	// The gateway: its connection, nil for one without bounds, its token, "" for none, and its verified certificates.
	Conn   net.Conn
	Token  string
	Chains [][]*x509.Certificate
}

// ForwardedAnswer is what the gateway's client gets: 200 is that the request may pass.
type ForwardedAnswer struct {
	Status   int
	Body     []byte
	Decision *quota.Decision // nil where none was made
	Trace    trace.TraceID   // zero without a trace
	fields   fields
}

// Fields calls add with the header fields of a refusal, or those that an answer which passes shall have.
func (a *ForwardedAnswer) Fields(add func(name, value string)) {
	for _, f := range a.fields {
		own := f.name == decisionHeader || f.name == IDHeader || f.name == "Cache-Control" || f.name == "Content-Type"
		if a.Status != http.StatusOK || !own {
			add(f.name, f.value)
		}
	}
}

// Forward decides about a request. It returns by ctx's deadline or that of the options, whichever is earlier, or soon after.
// Safe for concurrent use on a handler of NewData.
func (h *Handler) Forward(ctx context.Context, f *Forwarded) *ForwardedAnswer {
	c, _ := h.calls.Get().(*call) // New makes no other
	x := &forwardedExchange{ctx: ctx, Forwarded: f}
	if !strings.HasPrefix(f.Path, "/") {
		f.Unclear = cmp.Or(f.Unclear, errors.New("the path does not begin with /"))
	}
	if slices.ContainsFunc(f.Dimensions, func(d quota.Dimension) bool { return d.Name == quota.RouteDimension }) {
		f.Unclear = cmp.Or(f.Unclear, errors.New("the dimension route is set by the route"))
	}
	c.forwarded = x
	c.serve(x, false)
	return &x.answer
}

// forwardedExchange is that of a Forwarded.
type forwardedExchange struct {
	*Forwarded
	ctx    context.Context //nolint:containedctx // an exchange is one request
	answer ForwardedAnswer
}

func (x *forwardedExchange) method() string                       { return x.Method }
func (x *forwardedExchange) target() string                       { return "/v1/authz/" + strings.TrimPrefix(x.Path, "/") }
func (x *forwardedExchange) hostField() string                    { return "" }
func (x *forwardedExchange) remote() string                       { return x.Remote }
func (x *forwardedExchange) names() iter.Seq[string]              { return maps.Keys(x.Header) }
func (x *forwardedExchange) certificates() [][]*x509.Certificate  { return x.Chains }
func (x *forwardedExchange) context() context.Context             { return x.ctx }
func (x *forwardedExchange) connection() *connection              { return ownConnection(x.Conn) }
func (x *forwardedExchange) body() (from io.Reader, length int64) { return http.NoBody, 0 }
func (x *forwardedExchange) takeBack() bool                       { return true }

func (x *forwardedExchange) values(name string) []string {
	switch {
	case name != tokenHeader:
		return x.Header[strings.ToLower(name)]
	case x.Token == "":
		return nil
	}
	return []string{x.Token} // the gateway's, whatever its client sent
}

func (x *forwardedExchange) send(status int, header fields, body []byte) {
	x.answer.Status, x.answer.fields, x.answer.Body = status, slices.Clone(header), slices.Clone(body)
}

// said is what the gateway's configuration says about the request; nothing over HTTP.
func (c *call) said() *Forwarded {
	if c.forwarded == nil {
		return &c.unsaid
	}
	return c.forwarded.Forwarded
}

// routeSaid returns the route of that name, one that counts as 1 where forward_auth has none.
func routeSaid(f *quota.ForwardAuth, name string) (*quota.Route, error) {
	if i := slices.IndexFunc(f.Routes, func(r quota.Route) bool { return r.Name == name }); i >= 0 {
		return &f.Routes[i], nil
	}
	if err := quota.ValidID(name); err != nil {
		return nil, fmt.Errorf("the route %w", err)
	}
	return &quota.Route{Name: name}, nil
}
