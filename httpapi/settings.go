package httpapi

import (
	"net/netip"
)

// Settings are what may change between requests. A value is immutable once it
// has been returned by Options.Settings; a reload returns another one.
type Settings struct {
	// ForwardAuth is how to read a gateway's request; nil refuses all of them.
	ForwardAuth *ForwardAuth
	Headers     Headers
	Access      Access
}

// Headers choose the header fields of answers.
type Headers struct {
	Format Format
	XReset XReset
}

// Format is a generation of rate limit header fields, as named in topology.yaml.
// Any other value, "" too, means Draft11.
type Format string

const (
	// Draft11 emits RateLimit-Policy and RateLimit as lists of all limits, in
	// the syntax of revision 11 of the IETF draft.
	Draft11 Format = "draft-11"
	// Triplet emits RateLimit-Limit, -Remaining and -Reset of the headline, as
	// revisions 00–06 had them.
	Triplet Format = "triplet"
	// XRateLimit emits X-RateLimit-Limit, -Remaining and -Reset of the headline.
	XRateLimit Format = "x-ratelimit"
	// Off emits none of them; Retry-After stays.
	Off Format = "off"
)

// XReset is what X-RateLimit-Reset counts. Any other value, "" too, means ResetDelta.
type XReset string

const (
	// ResetDelta: seconds from now.
	ResetDelta XReset = "delta"
	// ResetEpoch: seconds since 1970, by the clock of the region's store.
	ResetEpoch XReset = "epoch"
)

// ForwardAuth is where a gateway's request carries identity and route. Package
// region validates what topology.yaml has of it.
type ForwardAuth struct {
	// TenantHeader names the header that the gateway overwrites with the tenant.
	TenantHeader string
	// Anonymous lets a request without tenant through as the one shared tenant
	// AnonymousTenant. A duplicated or invalid header is refused all the same.
	Anonymous  bool
	Dimensions []DimensionSource
	// TrustedProxies may add to X-Forwarded-For; the hops of others are ignored.
	TrustedProxies []netip.Prefix
	// Routes are tried in order. When there are any, each request gets the
	// dimension RouteDimension, and must carry its original method and path.
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

// DimensionSource is where the value of one dimension comes from: a header, or
// the client's address.
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
	Skip bool  // answer 200 without calling the limiter
}

// Access is who may call. The zero value admits everyone: bind to loopback or
// keep the network closed.
type Access struct {
	Tokens      []Token // of the data listener
	AdminTokens []Token // of the admin listener
	// ClientCA accepts a verified client certificate on the data listener in
	// place of a token. The listener's tls.Config verifies it.
	ClientCA bool
}
