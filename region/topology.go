package region

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Defaults of absent fields.
const (
	// DefaultWeight makes all regions equal.
	DefaultWeight = int64(1)
	// DefaultAdmin keeps metrics, profiles and resets off the network.
	DefaultAdmin = "127.0.0.1:9090"
	// DefaultMaxUnknown bounds what invented tenants can store: about a hundred
	// megabytes of logs at a thousand bytes each.
	DefaultMaxUnknown = int64(100_000)
	// DefaultMaxValues bounds the same of a listed tenant, by each dimension.
	DefaultMaxValues = int64(100_000)
	// DefaultMaxOverride lets a customer grow tenfold, and a slip of the finger do no more.
	DefaultMaxOverride = quota.Times(10)
)

// MaxUnknownTenants bounds max_unknown, MaxTenantValues max_values, and MaxRevision revision.
const (
	MaxUnknownTenants = int64(100_000_000)
	MaxTenantValues   = int64(100_000_000)
	MaxRevision       = int64(1_000_000_000_000)
)

// Topology is one topology.yaml, the same for all regions. One from Parse obeys
// every rule of Validate. It is immutable once in force and shared between
// goroutines.
type Topology struct {
	// Cluster separates deployments that can reach each other; a valid name or "".
	Cluster string `yaml:"cluster"`
	// Revision numbers the regions and weights: a change of them needs a higher one.
	// 0…MaxRevision, 0 when absent.
	Revision int64 `yaml:"revision"`
	// Regions are in the order of the file; 1…MaxRegions.
	Regions []Region `yaml:"regions,required"`
	// Policies are in the order of the file, with unique names. By and When of their
	// limits are sorted.
	Policies []quota.Policy `yaml:"policies,required"`
	Tenants  Tenants        `yaml:"tenants,required"`
	// MaxUnknown is how many partitions of unlisted tenants may be live at once.
	MaxUnknown int64 `yaml:"max_unknown"`
	// MaxValues is how many values of a dimension may have partitions of their own at once,
	// for each listed tenant.
	MaxValues int64 `yaml:"max_values"`
	// MaxOverride is how many times the units of a limit an override may give a tenant; 0 means DefaultMaxOverride.
	MaxOverride quota.Times `yaml:"max_override"`
	// ShareTop is whether processes send each other, sealed, whom they denied and who used most.
	ShareTop    bool               `yaml:"share_top"`
	ForwardAuth *quota.ForwardAuth `yaml:"forward_auth"` // nil: forwarded requests are refused
	Headers     quota.Headers      `yaml:"headers"`
	Access      Access             `yaml:"access"`
	LogLevel    slog.Level         `yaml:"log_level"` // the least severe level that is logged
	RLS         RLS                `yaml:"rls"`
}

// Region is one region: its processes share a store and make their own decisions.
type Region struct {
	Name   string  `yaml:"name,required"`
	Weight int64   `yaml:"weight"`        // relative to the other regions', 1…MaxWeight
	HTTP   string  `yaml:"http,required"` // listener of the API, host:port; port 0 means any free one
	GRPC   string  `yaml:"grpc"`          // listener of Envoy's rate limit service, the same; "": none
	Admin  string  `yaml:"admin"`         // admin listener, the same
	Gossip *Gossip `yaml:"gossip"`        // nil: none
	Redis  Redis   `yaml:"redis"`
	NATS   NATS    `yaml:"nats"`
}

// Gossip is how a region's processes are found by the others.
type Gossip struct {
	Bind      string `yaml:"bind,required"`      // host:port
	Advertise string `yaml:"advertise,required"` // host:port that the other regions can reach
	KeyFile   string `yaml:"key_file"`           // path; "": not encrypted
}

// Redis is the region's store. Embedded, which is also the meaning of an absent
// field, keeps usage in the memory of the process.
type Redis struct {
	Embedded     bool            `yaml:"embedded"`
	Addrs        []string        `yaml:"addrs"` // host:port; of the sentinels in RedisSentinel, of any nodes in RedisCluster
	Mode         quota.RedisMode `yaml:"mode"`
	Master       string          `yaml:"master"` // the primary's name with sentinels
	Username     string          `yaml:"username"`
	PasswordFile string          `yaml:"password_file"`
	TLS          *TLS            `yaml:"tls"` // nil: not encrypted

	SentinelUsername     string `yaml:"sentinel_username"`
	SentinelPasswordFile string `yaml:"sentinel_password_file"`
}

// NATS is the bus between regions. Embedded, which is also the meaning of an
// absent field, runs a server inside the process.
type NATS struct {
	Embedded bool `yaml:"embedded"`
	// Gateway is host:port where embedded servers of other regions connect. The
	// default is the advertised gossip host and the port after gossip's, or "".
	Gateway   string   `yaml:"gateway"`
	URLs      []string `yaml:"urls"`
	CredsFile string   `yaml:"creds_file"` // path; instead of Username
	// Username and PasswordFile, a path, come together.
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`
	// TLS is nil to do as the URLs say. Of an embedded server it is that of gateways, with
	// all three files; nil derives their certificates from the shared key.
	TLS *TLS `yaml:"tls"`
}

// TLS holds paths of PEM files. Without CAFile the system's roots are used; with
// CertFile comes KeyFile.
type TLS struct {
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Tenants are the listed tenants, and the policy of all others.
type Tenants struct {
	// Default is the entry "default": every tenant that is not listed has it, and
	// is counted separately. Nil: other tenants are refused.
	Default *quota.Tenant
	Listed  map[string]quota.Tenant
}

// DefaultTenant is the entry of tenants that is not an id.
const DefaultTenant = "default"

// Access is how callers authenticate. Every *File is a path; "" requires nothing.
type Access struct {
	TokensFile      string `yaml:"tokens_file"`       // lines "name sha256", for the API
	CertFile        string `yaml:"cert_file"`         // PEM, the API's own certificate: it then speaks TLS
	KeyFile         string `yaml:"key_file"`          // PEM, its key
	ClientCAFile    string `yaml:"client_ca_file"`    // PEM, signs client certificates for the API
	AdminTokensFile string `yaml:"admin_tokens_file"` // lines "name sha256", for the admin listener
	// ClientNames are the common names and DNS names of client certificates that may call
	// the API; none means all that ClientCAFile has signed.
	ClientNames []string `yaml:"client_names"`
	// AdminCertFile and AdminKeyFile are CertFile and KeyFile of the admin listener.
	AdminCertFile string `yaml:"admin_cert_file"`
	AdminKeyFile  string `yaml:"admin_key_file"`
	// AdminClientCAFile signs client certificates for the admin listener, of which those
	// with one of AdminClientNames are accepted. There are both or none.
	AdminClientCAFile string   `yaml:"admin_client_ca_file"`
	AdminClientNames  []string `yaml:"admin_client_names"`
	// AllowedHosts are names by which callers may call the admin listener, and the API's
	// where that is on loopback, besides addresses and loopback names. In lower case.
	AllowedHosts []string `yaml:"allowed_hosts"`
}

// Region returns the region of that name.
func (t *Topology) Region(name string) (*Region, bool) {
	i := slices.IndexFunc(t.Regions, func(g Region) bool { return g.Name == name })
	if i < 0 {
		return nil, false
	}
	return &t.Regions[i], true
}

// MostOverride is MaxOverride, or what its absence means.
func (t *Topology) MostOverride() int64 { return int64(cmp.Or(t.MaxOverride, DefaultMaxOverride)) }

// Weights are those of the regions, in the order of the file.
func (t *Topology) Weights() []quota.Weight {
	weights := make([]quota.Weight, len(t.Regions))
	for i := range t.Regions {
		weights[i] = quota.Weight{Region: t.Regions[i].Name, Weight: t.Regions[i].Weight}
	}
	return weights
}

// RegionNames are in the order of the file.
func (t *Topology) RegionNames() []string {
	names := make([]string, len(t.Regions))
	for i := range t.Regions {
		names[i] = t.Regions[i].Name
	}
	return names
}

// NoRegion is the error of a name that no region has, to be put after the name of the file and "has".
func (t *Topology) NoRegion(name string) error {
	return fmt.Errorf("no region %q; its regions are %s", quota.Clip(name), strings.Join(t.RegionNames(), ", "))
}
