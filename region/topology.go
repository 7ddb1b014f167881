package region

import (
	"log/slog"

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
	Cluster string   `yaml:"cluster"`          // Regions stand in the order of the file, which Parts depends on; 1…MaxRegions.
	Regions []Region `yaml:"regions,required"` // Policies stand in the order of the file, names unique. By and When of
	// their limits are sorted, as quota wants them.
	Policies    []quota.Policy     `yaml:"policies,required"`
	Tenants     Tenants            `yaml:"tenants,required"` // MaxUnknown is how many partitions of unlisted tenants may be live at once.
	MaxUnknown  int64              `yaml:"max_unknown"`      // ForwardAuth is nil when forward-auth calls are to be refused.
	ForwardAuth *quota.ForwardAuth `yaml:"forward_auth"`
	Headers     Headers            `yaml:"headers"`
	Access      Access             `yaml:"access"` // LogLevel is the least that processes log; the zero value is Info.
	LogLevel    slog.Level         `yaml:"log_level"`
}

// Region is one place that decides on its own.
type Region struct {
	Name   string  `yaml:"name,required"` // Weight is relative to the other regions', 1…MaxWeight.
	Weight int64   `yaml:"weight"`
	HTTP   string  `yaml:"http,required"` // data listener, host:port; port 0 means any free one
	Admin  string  `yaml:"admin"`         // admin listener, the same
	Gossip *Gossip `yaml:"gossip"`        // nil: this region looks for no others
	Redis  Redis   `yaml:"redis"`
	NATS   NATS    `yaml:"nats"`
}

// Gossip is how a region's processes are found by the others.
type Gossip struct {
	Bind      string `yaml:"bind,required"`      // host:port
	Advertise string `yaml:"advertise,required"` // host:port that the other regions can reach
	KeyFile   string `yaml:"key_file"`           // path, "" for gossip in the clear
}

// Redis is the region's store. Embedded, which is also what an absent field
// means, keeps everything in the memory of the process.
type Redis struct {
	Embedded     bool            `yaml:"embedded"`
	Addrs        []string        `yaml:"addrs"` // host:port; of sentinels in quota.RedisSentinel, of any nodes in quota.RedisCluster
	Mode         quota.RedisMode `yaml:"mode"`
	Master       string          `yaml:"master"` // the name that sentinels know the primary by
	Username     string          `yaml:"username"`
	PasswordFile string          `yaml:"password_file"`
	TLS          *TLS            `yaml:"tls"` // nil: in the clear

	// What the sentinels themselves ask for, where they do.
	SentinelUsername     string `yaml:"sentinel_username"`
	SentinelPasswordFile string `yaml:"sentinel_password_file"`
}

// NATS is the bus between regions. Embedded, which is also what an absent field
// means, runs a server inside the process.
type NATS struct {
	Embedded bool `yaml:"embedded"` // Gateway is host:port where embedded servers of other regions connect; ""
	// when there is no gossip to find them by. Its default is the advertised
	// gossip host and the port after it.
	Gateway   string   `yaml:"gateway"`
	URLs      []string `yaml:"urls"`
	CredsFile string   `yaml:"creds_file"`
	TLS       *TLS     `yaml:"tls"` // nil: as the URLs say
}

// TLS holds paths of PEM files. Without CAFile the system's roots count; CertFile
// and KeyFile come together or not at all.
type TLS struct {
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Tenants says who is served under which policy.
type Tenants struct {
	// Default is the entry called "default": each tenant that is not listed is
	// a tenant of its own under it. Nil when there is none, and then nobody but
	// the listed is known.
	Default *quota.Tenant
	Listed  map[string]quota.Tenant
}

// DefaultTenant is the entry of tenants that is not an id.
const DefaultTenant = "default"

// Headers says which fields an answer carries about its limits.
type Headers struct {
	Format HeaderFormat `yaml:"format"`
	XReset ResetStyle   `yaml:"x_reset"`
}

// Access says who may call. Every field is a path; "" asks for nothing.
type Access struct {
	TokensFile      string `yaml:"tokens_file"`       // lines "name sha256", for the data listener
	CertFile        string `yaml:"cert_file"`         // PEM, the data listener's own certificate: it then speaks TLS
	KeyFile         string `yaml:"key_file"`          // PEM, its key; comes with CertFile
	ClientCAFile    string `yaml:"client_ca_file"`    // PEM, client certificates for the data listener
	AdminTokensFile string `yaml:"admin_tokens_file"` // lines "name sha256", for the admin listener
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

// HeaderFormat says which header fields tell a client about its limits.
type HeaderFormat string

// The words of headers.format.
const (
	// HeadersDraft11 is RateLimit-Policy and RateLimit as structured fields;
	// the default.
	HeadersDraft11 HeaderFormat = "draft-11"
	// HeadersTriplet is RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset.
	HeadersTriplet HeaderFormat = "triplet"
	// HeadersX is the same three with the prefix X-.
	HeadersX HeaderFormat = "x-ratelimit"
	// HeadersOff sends none of them; Retry-After stays.
	HeadersOff HeaderFormat = "off"
)

// ResetStyle says what X-RateLimit-Reset counts.
type ResetStyle string

// The words of headers.x_reset.
const (
	// ResetDelta is seconds from now; the default.
	ResetDelta ResetStyle = "delta"
	// ResetEpoch is seconds since 1970.
	ResetEpoch ResetStyle = "epoch"
)
