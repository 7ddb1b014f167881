package httpapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/quota"
)

// Forwarded is a request that a gateway asks about over another protocol than HTTP. It gets the answer of /v1/authz/{path...}.
type Forwarded struct {
	Method, Path string              // as the client sent them, the path with its query
	Header       map[string][]string // of the request, by names in lower case
	Remote       string              // address of the client as the gateway sees it
	Said

	// The gateway: its connection, nil for one without bounds, its token, "" for none, and its verified certificates.
	Conn   net.Conn
	Token  string
	Chains [][]*x509.Certificate
}

// Said is what the gateway's configuration says, in place of forward_auth: its tenant, route and dimensions win over those of
// the request. "" and 0 say nothing, but the value "" of a dimension says that there is none.
type Said struct {
	Tenant, Policy, Route string // with NoPolicy, Policy is what the tenant has where nothing else says it
	// TenantPolicy is what the gateway has verified of the tenant's own policy, as that of quota.Request.
	TenantPolicy string
	// Metadata returns what the gateway's metadata has at a place, "" for nothing; nil without metadata.
	Metadata func(place string) (string, error)
	// NoTenant says that no header has the tenant, and NoPolicy that none has its policy.
	NoTenant   bool
	NoPolicy   bool
	Cost       int64
	Dimensions quota.Dimensions
	// Unclear is why that cannot be known; the request is refused.
	Unclear error
}

// ForwardedAnswer is what the gateway's client gets: 200 is that the request may pass.
type ForwardedAnswer struct {
	Response
	Decision *quota.Decision // nil where none was made
	Trace    trace.TraceID   // zero without a trace
}

// ForClient are the header fields of a refusal, or those that an answer which passes shall have.
func (a *ForwardedAnswer) ForClient() answer.Fields {
	if a.Status != http.StatusOK {
		return a.Fields
	}
	return slices.DeleteFunc(slices.Clone(a.Fields), func(f answer.Field) bool {
		return slices.Contains([]string{decisionHeader, answer.IDHeader, "Cache-Control", "Content-Type"}, f.Name)
	})
}

// Forward decides about a request that a gateway holds. It may set f.Unclear.
// Safe for concurrent use on a handler of NewData.
func (h *Handler) Forward(ctx context.Context, f *Forwarded) *ForwardedAnswer {
	if !strings.HasPrefix(f.Path, "/") {
		f.Unclear = cmp.Or(f.Unclear, errors.New("the path does not begin with /"))
	}
	if slices.ContainsFunc(f.Dimensions, func(d quota.Dimension) bool { return d.Name == quota.RouteDimension }) {
		f.Unclear = cmp.Or(f.Unclear, errors.New("the dimension route is set by the route"))
	}
	c := h.newCall(&Request{
		Method: f.Method, Target: "/v1/authz/" + strings.TrimPrefix(f.Path, "/"), Remote: address(f.Remote), Header: f,
		Chains: f.Chains, Context: ctx, Conn: conn.Of(f.Conn),
	})
	c.overGRPC, c.said = true, f.Said
	c.serve()
	return &ForwardedAnswer{c.Response, c.decision, c.trace}
}

// Values implements Header. The token is the gateway's, whatever its client sent.
func (f *Forwarded) Values(name string) []string {
	switch {
	case name != access.TokenHeader:
		return f.Header[strings.ToLower(name)]
	case f.Token == "":
		return nil
	}
	return []string{f.Token}
}

// Names implements Header.
func (f *Forwarded) Names() iter.Seq[string] { return maps.Keys(f.Header) }

// route returns the route of that name, one that counts as 1 where forward_auth has none.
func (s *Said) route(f *quota.ForwardAuth) (*quota.Route, error) {
	if i := slices.IndexFunc(f.Routes, func(r quota.Route) bool { return r.Name == s.Route }); i >= 0 {
		return &f.Routes[i], nil
	}
	if err := quota.ValidID(s.Route); err != nil {
		return nil, fmt.Errorf("the route %w", err)
	}
	return &quota.Route{Name: s.Route}, nil
}
