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
	Policy string `yaml:"policy,required"` // names a policy of the topology
	// Enforcement overrides the policy's when it is not nil.
	Enforcement *Enforcement `yaml:"enforcement"`
}

// DefaultIPv6Prefix is what a customer with IPv6 holds at least, so counting single
// addresses would limit nothing.
const DefaultIPv6Prefix = 64

// ForwardAuth says how a request that a gateway forwards becomes a check.
type ForwardAuth struct {
	Tenant TenantSource `yaml:"tenant,required"`
	// Missing is what becomes of a request without tenant. A duplicated or invalid
	// header is refused in any case.
	Missing Missing `yaml:"missing"`
	// PolicyFrom says where the request has the policy of its tenant; nil: nowhere.
	PolicyFrom *PolicySource     `yaml:"policy_from"`
	Dimensions []DimensionSource `yaml:"dimensions"` // sorted by name, unique
	// TrustedProxies are masked prefixes that may add to X-Forwarded-For; the hops of
	// others are ignored.
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies"`
	// IPv6Prefix is the length of the prefix by which IPv6 clients are counted, 32…128;
	// 0 means DefaultIPv6Prefix.
	IPv6Prefix int64 `yaml:"ipv6_prefix"`
	// Routes are tried in order. The first match sets the dimension RouteDimension;
	// a request that matches none gets RouteOther.
	Routes []Route `yaml:"routes"`
	// CaseSensitive makes /Login another path than /login for routes that count. For
	// those that skip it always is.
	CaseSensitive bool `yaml:"case_sensitive"`
}

// TenantSource is where the tenant comes from: a header that the gateway overwrites,
// in canonical form. An address does not say who pays.
type TenantSource struct {
	Header string `yaml:"header,required"`
}

// PolicySource is where a request has the policy of its tenant: exactly one of Header and Metadata, which are trusted as the
// tenant's header is. An override of the tenant wins over it, and it wins over what the topology says of the tenant.
type PolicySource struct {
	Header string `yaml:"header"` // in canonical form
	// Metadata is a place in Envoy's dynamic metadata, NAMESPACE/KEY/KEY. Only ext_authz over gRPC has it.
	Metadata string `yaml:"metadata"`
	// Policies are the policies of values. nil: each value is the name of a policy. A value without one says nothing.
	Policies map[string]string `yaml:"policies"`
}

// Missing says what becomes of a forwarded request without tenant.
type Missing string

const (
	// MissingDeny refuses it; the default.
	MissingDeny Missing = "deny"
	// MissingAnonymous counts all such requests as one tenant, AnonymousTenant.
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
	Name     string
	Header   string `yaml:"header"` // in canonical form
	ClientIP bool   `yaml:"client_ip"`
	// Hash replaces the header's value by the first 128 bits of its SHA-256 in hex,
	// so that a token never reaches a store or a log.
	Hash bool `yaml:"hash"`
}

// RedisMode says how the servers of a region's Redis belong together.
type RedisMode string

const (
	// RedisStandalone is one server at one address; the default.
	RedisStandalone RedisMode = "standalone"
	// RedisSentinel is the primary that the sentinels at the addresses name.
	RedisSentinel RedisMode = "sentinel"
	// RedisCluster is every primary of the cluster that the addresses belong to.
	RedisCluster RedisMode = "cluster"
)

// Headers choose the header fields of answers.
type Headers struct {
	Format HeaderFormat `yaml:"format"`
	XReset XReset       `yaml:"x_reset"`
}

// HeaderFormat is a generation of rate limit header fields. Any other value, "" too,
// means Draft11.
type HeaderFormat string

const (
	// Draft11 emits RateLimit-Policy and RateLimit as lists of all limits, in
	// the syntax of revision 11 of the IETF draft.
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
	// HeadersOff emits none of them; Retry-After stays.
	HeadersOff HeaderFormat = "off"
)

// XReset is what X-RateLimit-Reset counts. Any other value, "" too, means ResetDelta.
type XReset string

const (
	// ResetDelta: seconds from now.
	ResetDelta XReset = "delta"
	// ResetEpoch: seconds since 1970, by the clock of the region's store.
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
	Name string `yaml:"name,required"`
	// Methods are in capitals; none means every method, and GET means HEAD too.
	Methods []string `yaml:"methods"`
	// Path is clean and absolute, "/login", or a prefix, "/search/*", which matches
	// /search and everything below it.
	Path string `yaml:"path,required"`
	Cost int64  `yaml:"cost"` // 1…MaxUnits; 0 with Skip
	Skip bool   `yaml:"skip"` // allow the request without counting it
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
