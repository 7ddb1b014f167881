package quota

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tenant is what a topology says of a tenant.
type Tenant struct {
	// Policy is the name of one of `policies`.
	Policy string `yaml:"policy,required"`
	// Enforcement is in place of that of the policy.
	Enforcement *Enforcement `yaml:"enforcement"`
}

// DefaultIPv6Prefix is what a customer with IPv6 holds at least, so counting single
// addresses would limit nothing.
const DefaultIPv6Prefix = 64

// ForwardAuth says how a request that a gateway forwards becomes a check.
type ForwardAuth struct {
	// Tenant is where the id of the tenant comes from.
	Tenant TenantSource `yaml:"tenant,required"`
	// Missing is what a request without a tenant gets. Default: `deny`. A duplicated or invalid header is always refused.
	Missing Missing `yaml:"missing"`
	// PolicyFrom is where a request has its tenant's policy, which wins over `tenants`. Without it: nowhere. docs/configure.md
	// shows how to use it.
	PolicyFrom *PolicySource `yaml:"policy_from"`
	// Dimensions are by name, each with the source of its value: a header, or the client's address. `route` cannot be among
	// them, because routes set it.
	//
	// Sorted by name, and unique.
	Dimensions []DimensionSource `yaml:"dimensions"`
	// TrustedProxies are prefixes of proxies whose X-Forwarded-For is trusted. Without any, the client's address is that of the
	// direct peer, which is your gateway. Never 0.0.0.0/0: clients could then choose their address.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// IPv6Prefix counts clients with IPv6 by a prefix of so many bits, `32` to `128`, because each holds many addresses.
	// Providers give a customer a /64, a /56 or a /48. Default: `64`.
	//
	// 0 means DefaultIPv6Prefix.
	IPv6Prefix int64 `yaml:"ipv6_prefix"`
	// Routes are tried in order: the first match sets the dimension `route`, and without a match it is `other`. What a server
	// could read as a route counts as it (docs/gateways.md).
	Routes []Route `yaml:"routes"`
	// CaseSensitive is true if your API serves /Login and /login differently. Default: `false`: routes match in any case, except
	// those with `skip`.
	CaseSensitive bool `yaml:"case_sensitive"`
}

// TenantSource is where the tenant comes from: a header that the gateway overwrites,
// in canonical form. An address does not say who pays.
type TenantSource struct {
	// Header is the header with the tenant's id. The gateway must overwrite it: otherwise clients can choose their tenant.
	Header string `yaml:"header,required"`
}

// PolicySource is where a request has the policy of its tenant: exactly one of Header and Metadata, which are trusted as the
// tenant's header is. An override of the tenant wins over it, and it wins over what the topology says of the tenant.
type PolicySource struct {
	// Header is the header with the value. The gateway must overwrite it.
	//
	// In canonical form.
	Header string `yaml:"header"`
	// Metadata is a place in Envoy's dynamic metadata, NAMESPACE/KEY/KEY, in place of a header. Only ext_authz over gRPC has it.
	Metadata string `yaml:"metadata"`
	// Policies are the values that count: a list of policies, or a mapping of values to policies. Without it: the names of all
	// policies. Any other value leaves the tenant what `tenants` says.
	//
	// nil: each value is the name of a policy.
	Policies map[string]string `yaml:"policies"`
}

// Missing says what becomes of a forwarded request without tenant.
type Missing string

const (
	// MissingDeny refuses it with 403.
	MissingDeny Missing = "deny"
	// MissingAnonymous counts all such requests as one tenant, `anonymous`.
	MissingAnonymous Missing = "anonymous"
)

const (
	// AnonymousTenant is the tenant of all requests without one under MissingAnonymous.
	AnonymousTenant = "anonymous"
	// RouteDimension is the dimension that routes set.
	RouteDimension = "route"
	// RouteOther is its value when no route matches.
	RouteOther = "other"
)

// DimensionSource is where the value of a dimension comes from: exactly one of
// Header and ClientIP.
type DimensionSource struct {
	Name string
	// Header is the header with the value.
	//
	// In canonical form.
	Header string `yaml:"header"`
	// ClientIP takes the client's address, in place of a header.
	ClientIP bool `yaml:"client_ip"`
	// Hash stores the first 128 bits of the value's SHA-256, for tokens that must not appear in Redis or in a log. Default:
	// `false`.
	Hash bool `yaml:"hash"`
}

// RedisMode says how the servers of a region's Redis belong together.
type RedisMode string

const (
	// RedisStandalone is one server at one address.
	RedisStandalone RedisMode = "standalone"
	// RedisSentinel is the primary that the sentinels at the addresses name.
	RedisSentinel RedisMode = "sentinel"
	// RedisCluster is every primary of the cluster that the addresses belong to.
	RedisCluster RedisMode = "cluster"
)

// Headers choose the header fields of answers.
type Headers struct {
	// Format is which header fields answers have. Default: `draft-11`.
	Format HeaderFormat `yaml:"format"`
	// XReset is what X-RateLimit-Reset counts, with `format: x-ratelimit`. Default: `delta`.
	XReset XReset `yaml:"x_reset"`
}

// HeaderFormat is a generation of rate limit header fields. Any other value, "" too,
// means Draft11.
type HeaderFormat string

const (
	// Draft11 emits RateLimit-Policy and RateLimit as lists of all limits, in the syntax of revision 11 of the IETF draft.
	Draft11 HeaderFormat = "draft-11"
	// Triplet emits RateLimit-Limit, -Remaining and -Reset of the headline, as
	// revisions 00–06 had them.
	Triplet HeaderFormat = "triplet"
	// XRateLimit emits X-RateLimit-Limit, -Remaining and -Reset of the headline.
	XRateLimit HeaderFormat = "x-ratelimit"
	// OpenAI emits x-ratelimit-limit-requests, -remaining- and -reset-, and the same of tokens.
	OpenAI HeaderFormat = "openai"
	// Anthropic emits anthropic-ratelimit-requests-limit, -remaining and -reset, and the same of tokens, input-tokens
	// and output-tokens.
	Anthropic HeaderFormat = "anthropic"
	// HeadersOff emits none of them; a denial still has Retry-After.
	HeadersOff HeaderFormat = "off"
)

// XReset is what X-RateLimit-Reset counts. Any other value, "" too, means ResetDelta.
type XReset string

const (
	// ResetDelta counts seconds from now.
	ResetDelta XReset = "delta"
	// ResetEpoch counts seconds since 1970, by the clock of the region's Redis.
	ResetEpoch XReset = "epoch"
)

// Bounds of a topology.
const (
	// MaxRegions bounds the regions of one topology, and with MaxWeight the sum of weights.
	MaxRegions = 100
	// MaxWeight bounds one region's weight; only the ratios matter.
	MaxWeight = int64(1_000_000)
)

// Process is one run of one regiond process.
type Process struct {
	Region   string
	Instance string
	Boot     int64 // when it started, µs since the epoch; distinguishes the runs of one instance
}

// Weight is what one region of a topology weighs. A region's share of a global limit
// is its weight over the sum of all weights.
type Weight struct {
	Region string
	Weight int64
}

// IsLoopback reports whether a host, a name or an IP address without brackets, is this one for
// every resolver. Names other than localhost do not count: they may mean another address
// tomorrow.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Route names requests by method and path.
type Route struct {
	// Name is the value of the dimension `route`, unique in the file; not `other`.
	Name string `yaml:"name,required"`
	// Methods are in capitals. Without any, every method matches; GET means HEAD too.
	Methods []string `yaml:"methods"`
	// Path is /login, or a prefix such as /search/* for /search and everything below it. Paths are compared decoded and clean.
	Path string `yaml:"path,required"`
	// Cost is what a request costs, `1` to `1099511627776` units. Without it: 1.
	//
	// 0 with Skip.
	Cost int64 `yaml:"cost"`
	// Skip admits a request without counting it. Default: `false`. It excludes `cost`.
	Skip bool `yaml:"skip"`
}

// MatchesMethod reports whether the route has a method, which is in capitals.
func (r *Route) MatchesMethod(method string) bool {
	return len(r.Methods) == 0 || slices.Contains(r.Methods, method) ||
		method == http.MethodHead && slices.Contains(r.Methods, http.MethodGet)
}

// MatchesPath reports whether the route has a decoded path; fold ignores case. A path
// with a slash at its end is not the path without it, except below a prefix.
func (r *Route) MatchesPath(path string, fold bool) bool {
	base, prefix := strings.CutSuffix(r.Path, "/*")
	rest, ok := cutPrefix(path, base, fold)
	return ok && (rest == "" || prefix && rest[0] == '/')
}

func cutPrefix(s, prefix string, fold bool) (rest string, ok bool) {
	if !fold {
		return strings.CutPrefix(s, prefix)
	}
	for _, want := range prefix {
		got, size := utf8.DecodeRuneInString(s)
		if got != want && foldRune(got) != foldRune(want) {
			return "", false
		}
		s = s[size:]
	}
	return s, true
}

// foldRune maps all cases of a letter to one: also K, the sign of Kelvin, to k, which
// is what some servers that ignore case do.
func foldRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }
