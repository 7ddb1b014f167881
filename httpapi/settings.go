package httpapi

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Settings are what may change while the door is open. A value is immutable
// once it has been returned by Options.Settings; a reload returns another one.
type Settings struct {
	// ForwardAuth says how to read a gateway's request; nil refuses all of them.
	ForwardAuth *ForwardAuth
	Headers     Headers
	Access      Access
}

// Headers choose the header fields of answers.
type Headers struct {
	Format Format
	XReset XReset
}

// Format is a generation of rate limit header fields. The zero value is Draft11.
type Format uint8

const (
	// Draft11 emits RateLimit-Policy and RateLimit as lists of all limits, in
	// the syntax of revision 11 of the IETF draft.
	Draft11 Format = iota
	// Triplet emits RateLimit-Limit, -Remaining and -Reset of the headline, as
	// revisions 00–06 had them.
	Triplet
	// XRateLimit emits X-RateLimit-Limit, -Remaining and -Reset of the headline.
	XRateLimit
	// Off emits none of them; Retry-After stays.
	Off
)

// XReset is what X-RateLimit-Reset counts. The zero value is ResetDelta.
type XReset uint8

const (
	// ResetDelta: seconds from now.
	ResetDelta XReset = iota
	// ResetEpoch: seconds since 1970, by the clock of the region's store.
	ResetEpoch
)

// ForwardAuth says where a gateway's request carries identity and route.
type ForwardAuth struct {
	// TenantHeader names the header that the gateway overwrites with the tenant.
	TenantHeader string
	// Anonymous lets a request without tenant through as the one shared tenant
	// AnonymousTenant. A duplicated or invalid header is refused all the same.
	Anonymous  bool
	Dimensions []DimensionSource
	// TrustedProxies may add to X-Forwarded-For; nobody else is believed.
	TrustedProxies []netip.Prefix
	// Routes are tried in order. When there are any, each request gets the
	// dimension RouteDimension, and must say its original method and path.
	Routes []Route
}

// AnonymousTenant is the tenant of all requests without one, where
// ForwardAuth.Anonymous admits them.
const AnonymousTenant = "anonymous"

// RouteDimension is the dimension that holds the name of the matched route, or
// OtherRoute.
const (
	RouteDimension = "route"
	OtherRoute     = "other"
)

// DimensionSource says where the value of one dimension comes from: a header,
// or the client's address.
type DimensionSource struct {
	Name     string
	Header   string // empty with ClientIP
	ClientIP bool
	// Hash replaces the header's value by the first 128 bits of its SHA-256 in
	// hex, so that a token never reaches a store or a log.
	Hash bool
}

// Route names requests by method and path.
type Route struct {
	Name    string
	Methods []string // empty means any
	// Path is a cleaned absolute path, "/login", or a prefix, "/search/*", which
	// matches /search and everything below it.
	Path string
	Cost int64 // 0 means 1
	Skip bool  // answer 200 without asking the limiter
}

// Access says who may call. The zero value lets everyone: bind to loopback or
// keep the network closed.
type Access struct {
	Tokens      []Token // of the data listener
	AdminTokens []Token // of the admin listener
	// ClientCA accepts a verified client certificate on the data listener in
	// place of a token. The listener's tls.Config does the verifying.
	ClientCA bool
}

// Validate returns the first mistake of the settings: what would make every
// forward-auth call wrong, or a route unreachable.
func (s *Settings) Validate() error {
	if s.Headers.Format > Off {
		return fmt.Errorf("headers format %d is none of draft-11, triplet, x-ratelimit, off", s.Headers.Format)
	}
	if s.Headers.XReset > ResetEpoch {
		return fmt.Errorf("headers x_reset %d is neither delta nor epoch", s.Headers.XReset)
	}
	if s.ForwardAuth == nil {
		return nil
	}
	if err := s.ForwardAuth.validate(); err != nil {
		return fmt.Errorf("forward_auth: %w", err)
	}
	return nil
}

func (f *ForwardAuth) validate() error {
	if err := validHeaderName(f.TenantHeader); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	seen := map[string]bool{}
	for _, s := range f.Dimensions {
		if err := s.validate(); err != nil {
			return fmt.Errorf("dimension %q: %w", s.Name, err)
		}
		if seen[s.Name] {
			return fmt.Errorf("dimension %q stands twice", s.Name)
		}
		seen[s.Name] = true
	}
	if len(f.Routes) > 0 && seen[RouteDimension] {
		return fmt.Errorf("dimension %q is set by routes and cannot have another source", RouteDimension)
	}
	for i := range f.Routes {
		if err := f.Routes[i].validate(); err != nil {
			return fmt.Errorf("route %q: %w", f.Routes[i].Name, err)
		}
	}
	return nil
}

func (s *DimensionSource) validate() error {
	if err := quota.ValidName(s.Name); err != nil {
		return err
	}
	if !s.ClientIP {
		return validHeaderName(s.Header)
	}
	if s.Header != "" || s.Hash {
		return errors.New("client_ip goes with neither header nor hash")
	}
	return nil
}

func (r *Route) validate() error {
	if err := quota.ValidName(r.Name); err != nil {
		return err
	}
	literal := strings.TrimSuffix(r.Path, "/*")
	if literal != "" || r.Path == "" {
		if cleaned, err := readPath(literal, resolveDots); err != nil || cleaned != literal {
			return fmt.Errorf("path %q must be absolute, decoded and clean, as in /login or /search/*", r.Path)
		}
	}
	if strings.ContainsRune(literal, '*') {
		return fmt.Errorf("path %q may have * only as its last segment", r.Path)
	}
	if r.Cost < 0 || r.Cost > quota.MaxUnits {
		return fmt.Errorf("cost must be between 1 and %d, is %d", quota.MaxUnits, r.Cost)
	}
	for _, m := range r.Methods {
		if m == "" || m != strings.ToUpper(m) {
			return fmt.Errorf("method %q must be in capitals", m)
		}
	}
	return nil
}

// validHeaderName accepts letters, digits and "-". An underscore would be
// indistinguishable from "-" behind gateways that map one to the other.
func validHeaderName(name string) error {
	if name == "" {
		return errors.New("the header's name is missing")
	}
	if strings.EqualFold(name, "Host") {
		return errors.New("header Host names the limiter behind some gateways; use X-Forwarded-Host")
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		if !letter && c != '-' {
			return fmt.Errorf("header %q may have only letters, digits and -", name)
		}
	}
	return nil
}
