package region

import (
	"log/slog"
	"net/netip"

	"github.com/regiond/regiond/quota"
)

// What a field of topology.yaml is when it is absent.
const (
	// DefaultWeight makes all regions equal.
	DefaultWeight = int64(1)
	// DefaultAdmin keeps metrics, profiles and resets away from the network
	// until somebody asks for them there.
	DefaultAdmin = "127.0.0.1:9090"
	// DefaultMaxUnknown bounds what strangers can make the store hold: about a
	// hundred megabytes of logs at a thousand bytes each.
	DefaultMaxUnknown = int64(100_000)
)

// Bounds of the schema that quota does not already set.
const (
	// MaxRegions bounds the regions of one topology, and with MaxWeight the sum
	// that Parts divides by.
	MaxRegions = 100
	// MaxWeight bounds one region's weight; only the ratios matter.
	MaxWeight = int64(1_000_000)
	// MaxUnknownTenants bounds max_unknown.
	MaxUnknownTenants = int64(100_000_000)
)

// Topology is one topology.yaml: one file serves all regions. A Topology that
// came from Parse obeys every rule of Validate. It is immutable once in force
// and shared between goroutines.
type Topology struct {
	// Cluster keeps two deployments apart that can reach each other; a valid
	// name, or "" when the file gives none.
	Cluster string
	// Regions stand in the order of the file, which Parts depends on; 1…MaxRegions.
	Regions []Region
	// Policies stand in the order of the file, names unique. By and When of
	// their limits are sorted, as quota wants them.
	Policies []quota.Policy
	Tenants  Tenants
	// MaxUnknown is how many partitions of unlisted tenants may be live at once.
	MaxUnknown int64
	// ForwardAuth is nil when forward-auth calls are to be refused.
	ForwardAuth *ForwardAuth
	Headers     Headers
	Access      Access
	// LogLevel is the least that processes log; the zero value is Info.
	LogLevel slog.Level
}

// Region is one place that decides on its own.
type Region struct {
	Name string
	// Weight is relative to the other regions', 1…MaxWeight.
	Weight int64
	HTTP   string  // data listener, host:port; port 0 means any free one
	Admin  string  // admin listener, the same
	Gossip *Gossip // nil: this region looks for no others
	Redis  Redis
	NATS   NATS
}

// Gossip is how a region's processes are found by the others.
type Gossip struct {
	Bind      string // host:port
	Advertise string // host:port that the other regions can reach
	KeyFile   string // path, "" for gossip in the clear
}

// Redis is the region's store. Embedded, which is also what an absent field
// means, keeps everything in the memory of the process.
type Redis struct {
	Embedded     bool
	Addrs        []string // host:port; of sentinels in RedisSentinel, of any nodes in RedisCluster
	Mode         RedisMode
	Master       string // the name that sentinels know the primary by
	Username     string
	PasswordFile string
	TLS          *TLS // nil: in the clear

	// What the sentinels themselves ask for, where they do.
	SentinelUsername     string
	SentinelPasswordFile string
}

// NATS is the bus between regions. Embedded, which is also what an absent field
// means, runs a server inside the process.
type NATS struct {
	Embedded bool
	// Gateway is host:port where embedded servers of other regions connect; ""
	// when there is no gossip to find them by. Its default is the advertised
	// gossip host and the port after it.
	Gateway   string
	URLs      []string
	CredsFile string
	TLS       *TLS // nil: as the URLs say
}

// TLS holds paths of PEM files. Without CAFile the system's roots count; CertFile
// and KeyFile come together or not at all.
type TLS struct {
	CAFile   string
	CertFile string
	KeyFile  string
}

// Tenants says who is served under which policy.
type Tenants struct {
	// Default is the entry called "default": each tenant that is not listed is
	// a tenant of its own under it. Nil when there is none, and then nobody but
	// the listed is known.
	Default *Tenant
	Listed  map[string]Tenant
}

// Tenant is one entry of tenants.
type Tenant struct {
	Policy string // names one of Topology.Policies
	// Enforcement overrides the policy's when it is not nil.
	Enforcement *quota.Enforcement
}

// ForwardAuth says how a gateway's forwarded request becomes a check.
type ForwardAuth struct {
	// TenantHeader is the header field that the gateway overwrites with the
	// tenant, in canonical form.
	TenantHeader string
	Dimensions   map[string]Source
	// TrustedProxies are masked prefixes whose word about the client's address
	// is believed.
	TrustedProxies []netip.Prefix
	Missing        Missing
	// Routes are tried in order; the first match sets the dimension `route`,
	// and a request that matches none gets RouteOther.
	Routes []Route
}

// Names that routes give a meaning to.
const (
	// RouteDimension is the dimension that routes set.
	RouteDimension = "route"
	// RouteOther is its value when no route matches.
	RouteOther = "other"
	// DefaultTenant is the entry of tenants that is not an id.
	DefaultTenant = "default"
)

// Source is where the value of a dimension comes from: exactly one of Header and
// ClientIP.
type Source struct {
	Header   string // canonical form, as net/http spells it
	ClientIP bool
	// Hash stores a digest of the header's value instead of the value, for
	// tokens that must not appear in a store.
	Hash bool
}

// Route names requests by method and path.
type Route struct {
	Name    string
	Methods []string // none: every method
	// Path is clean and begins with "/"; "/search/*" is /search and everything
	// below it.
	Path string
	// Cost is 1…quota.MaxUnits, and 0 when Skip lets the request pass uncounted.
	Cost int64
	Skip bool
}

// Headers says which fields an answer carries about its limits.
type Headers struct {
	Format HeaderFormat
	XReset ResetStyle
}

// Access says who may call. Every field is a path; "" asks for nothing.
type Access struct {
	TokensFile      string // lines "name sha256", for the data listener
	CertFile        string // PEM, the data listener's own certificate: it then speaks TLS
	KeyFile         string // PEM, its key; comes with CertFile
	ClientCAFile    string // PEM, client certificates for the data listener
	AdminTokensFile string // lines "name sha256", for the admin listener
}

// Region returns the region of that name.
func (t *Topology) Region(name string) (*Region, bool) {
	for i := range t.Regions {
		if t.Regions[i].Name == name {
			return &t.Regions[i], true
		}
	}
	return nil, false
}

// Policy returns the policy of that name.
func (t *Topology) Policy(name string) (*quota.Policy, bool) {
	for i := range t.Policies {
		if t.Policies[i].Name == name {
			return &t.Policies[i], true
		}
	}
	return nil, false
}
