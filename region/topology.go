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
//
// The first paragraph of a comment of a field, here and in the types below, is what docs/topology.md and the JSON Schema
// say of its key. They take "Default: `…`." and "`…` to `…`." from it; the tests hold both against Parse.
type Topology struct {
	// Cluster is a name that separates two deployments that can reach each other, such as prod and staging on one network.
	Cluster string `yaml:"cluster"`
	// Revision numbers the regions and their weights, `0` to `1000000000000`. Default: `0`. Raise it whenever you change them.
	// Each region keeps the revision in force in its Redis. It refuses a lower one, and other regions or weights under the
	// same one, at the start and at a reload. So an old file cannot come back by mistake, and a restart during an outage does
	// not take a share that others still use.
	Revision int64 `yaml:"revision"`
	// Regions are 1 to 100. Each decides by itself. Their order and weights must be the same in all regions, because they
	// determine the shares of global limits.
	Regions []Region `yaml:"regions,required"`
	// Policies are named sets of limits, which `tenants` assigns. All limits of a policy are decided together: a request is
	// charged to all of them or to none, and a denied request is not charged.
	//
	// They are in the order of the file, with unique names. By and When of their limits are sorted.
	Policies []quota.Policy `yaml:"policies,required"`
	// Tenants maps the id of each tenant to what it gets. The entry `default` applies to all that are not listed, each counted
	// separately; without it other tenants are refused. An id has 1 to 256 printable ASCII characters without space or braces.
	Tenants Tenants `yaml:"tenants,required"`
	// MaxUnknown is how many partitions of unlisted tenants may be live at once, for each process of a region, `0` to
	// `100000000`. Default: `100000`. Those beyond share one count, which is logged and exported. A partition is live as long
	// as its keys are in Redis, so this bounds what invented ids can make Redis hold. A restarted process counts anew.
	MaxUnknown int64 `yaml:"max_unknown"`
	// MaxValues is how many values of a dimension have counts of their own, for each listed tenant and each process of a
	// region, `1` to `100000000`. Default: `100000`. Values beyond share one count until another has not been used for a
	// while. A value keeps its place for as long as its keys are in Redis, at most twice as long. `by: [user, ip]` counts pairs.
	MaxValues int64 `yaml:"max_values"`
	// MaxOverride is how many times the units of a limit an override (`regiond limits set`) may give a tenant, 1x to 1000x.
	// Default: `10x`. With 1x limits can only be lowered.
	//
	// 0 means DefaultMaxOverride.
	MaxOverride quota.Times `yaml:"max_override"`
	// ShareTop is whether processes send each other, sealed under the shared key, the tenants and values that they denied most
	// and that used most, so that `regiond top --scope global` adds them up. Default: `true`. With false no name leaves its
	// process.
	ShareTop bool `yaml:"share_top"`
	// ForwardAuth is how a request that a gateway forwards becomes a check. Without it such requests are refused with 403.
	ForwardAuth *quota.ForwardAuth `yaml:"forward_auth"`
	// Headers are how responses describe the limits to customers.
	Headers quota.Headers `yaml:"headers"`
	// Access is how callers authenticate. A check whose key is absent is not made.
	Access Access `yaml:"access"`
	// LogLevel is the least severe level that is logged. Default: `info`. A reload applies it.
	LogLevel slog.Level `yaml:"log_level"`
	// RLS is what the listener `grpc` answers by: files of envoyproxy/ratelimit, unmodified.
	RLS RLS `yaml:"rls"`
}

// Region is one region: its processes share a store and make their own decisions.
type Region struct {
	// Name is what `--region` selects. It has a-z, 0-9, _ and -, at most 63 characters, as all names of this file.
	Name string `yaml:"name,required"`
	// Weight is this region's share of each global limit while it cannot see the other regions, relative to their weights,
	// `1` to `1000000`. Default: `1`. With weights 2, 1 and 1 a limit of 600 is divided into 300, 150 and 150. Give regions
	// with more traffic more.
	Weight int64 `yaml:"weight"`
	// HTTP is host:port of the API for gateways. 0.0.0.0 is every interface; port 0 is any free port. Every client that
	// reaches it can spend a tenant's quota: keep it on a private network, or set `access`.
	HTTP string `yaml:"http,required"`
	// GRPC is host:port of a listener for Envoy's rate limit service and ext_authz, with the certificate and the callers of
	// `access`. Without it there is none.
	GRPC string `yaml:"grpc"`
	// Admin is host:port of metrics, health, profiles, overrides and the deletion of usage. Default: `127.0.0.1:9090`, which
	// this host alone reaches.
	Admin string `yaml:"admin"`
	// Gossip is how processes find each other. It also distinguishes a dead process from one that only NATS has lost. Further
	// processes of the region take their own address with `--gossip`.
	Gossip *Gossip `yaml:"gossip"`
	// Redis is where this region counts. Decisions are exact because one script makes them there. Each region needs its own.
	// Without it, as with `{embedded: true}`, usage is kept in the memory of the process, for this process only.
	Redis Redis `yaml:"redis"`
	// NATS is the bus on which regions exchange usage. Without it, as with `{embedded: true}`, a server runs inside the
	// process, connected to its peers by gateways. A region that no bus connects to the others is limited to its share of each
	// global limit.
	NATS NATS `yaml:"nats"`
}

// Gossip is how a region's processes are found by the others.
type Gossip struct {
	// Bind is host:port to listen on, TCP and UDP.
	Bind string `yaml:"bind,required"`
	// Advertise is host:port by which other regions reach it, unique in the file.
	Advertise string `yaml:"advertise,required"`
	// KeyFile is the path of the shared key, one line of base64 (`openssl rand -base64 32`), the same in all regions or in
	// none. It encrypts gossip and authenticates what regions send each other. Without it gossip and an embedded NATS server
	// listen on 127.0.0.1 only, and no limit of several regions may have `max_overshoot`. docs/operate.md says how to
	// replace it.
	KeyFile string `yaml:"key_file"`
}

// Redis is the region's store. Embedded, which is also the meaning of an absent
// field, keeps usage in the memory of the process.
type Redis struct {
	// Embedded keeps usage in the memory of the process, which forgets it at its end. It excludes all other keys.
	Embedded bool `yaml:"embedded"`
	// Addrs are host:port: one for standalone, any nodes of a cluster, or the sentinels.
	Addrs []string `yaml:"addrs"`
	// Mode is how the servers belong together. Default: `standalone`.
	Mode quota.RedisMode `yaml:"mode"`
	// Master is the name of the primary, with `mode: sentinel`.
	Master string `yaml:"master"`
	// Username is the user at Redis, and needs `password_file`. deploy/redis.acl lists the commands that it needs.
	Username string `yaml:"username"`
	// PasswordFile is the path of a file with the password.
	PasswordFile string `yaml:"password_file"`
	// TLS encrypts. `{}` trusts the system's roots.
	TLS *TLS `yaml:"tls"`

	// SentinelUsername is the user at the sentinels, if they require one.
	SentinelUsername string `yaml:"sentinel_username"`
	// SentinelPasswordFile is the path of a file with that user's password.
	SentinelPasswordFile string `yaml:"sentinel_password_file"`
}

// NATS is the bus between regions. Embedded, which is also the meaning of an
// absent field, runs a server inside the process.
type NATS struct {
	// Embedded runs a server inside the process. It excludes `urls` and the keys of a user.
	Embedded bool `yaml:"embedded"`
	// Gateway is host:port where embedded servers of other regions connect. Without it, it is the host that gossip advertises
	// and the port after gossip's.
	Gateway string `yaml:"gateway"`
	// URLs are `nats://host:4222`, one or more, of one server or cluster. Credentials in a URL are refused. examples/nats has
	// a configuration for your own servers.
	URLs []string `yaml:"urls"`
	// CredsFile is the path of NATS credentials, in place of `username`.
	CredsFile string `yaml:"creds_file"`
	// Username is this region's user at its NATS, and needs `password_file`.
	Username string `yaml:"username"`
	// PasswordFile is the path of a file with that user's password.
	PasswordFile string `yaml:"password_file"`
	// TLS encrypts; without it the URLs decide. Of an embedded server it is that of gateways on both sides, with all three
	// files; without it their certificates are derived from the shared key.
	TLS *TLS `yaml:"tls"`
}

// TLS holds paths of PEM files. Without CAFile the system's roots are used; with
// CertFile comes KeyFile.
type TLS struct {
	// CAFile is the path of the PEM authorities that are trusted. Without it those of the system are.
	CAFile string `yaml:"ca_file"`
	// CertFile is the path of our own PEM certificate, and needs `key_file`.
	CertFile string `yaml:"cert_file"`
	// KeyFile is the path of its PEM key.
	KeyFile string `yaml:"key_file"`
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
	// TokensFile is the path of the bearer tokens for `http`, a line for each:
	// `name sha256 [scopes=check,report,usage] [tenants=acme,globex]`. Scopes are check, report, usage, explain (`?explain=1`),
	// admin (the admin listener), metrics (of it /metrics alone) and limits (of it /v1/overrides alone); without any the first
	// three. With tenants the token serves for these only.
	TokensFile string `yaml:"tokens_file"`
	// CertFile is the path of the PEM certificate of `http`, which then speaks TLS. It needs `key_file`.
	CertFile string `yaml:"cert_file"`
	// KeyFile is the path of its PEM key.
	KeyFile string `yaml:"key_file"`
	// ClientCAFile is the path of a PEM authority. A client certificate signed by it is accepted in place of a token, with the
	// scopes check, report and usage. It needs `cert_file`.
	ClientCAFile string `yaml:"client_ca_file"`
	// AdminTokensFile is the path of the tokens for `admin`: the same lines, with scope admin where none is given. /healthz and
	// /readyz need no token.
	AdminTokensFile string `yaml:"admin_tokens_file"`
	// ClientNames are the common names and DNS names of client certificates that are accepted; without any, all that
	// `client_ca_file` has signed.
	ClientNames []string `yaml:"client_names"`
	// AdminCertFile is the path of the PEM certificate of `admin`, which then speaks TLS. It needs `admin_key_file`.
	AdminCertFile string `yaml:"admin_cert_file"`
	// AdminKeyFile is the path of its PEM key.
	AdminKeyFile string `yaml:"admin_key_file"`
	// AdminClientCAFile is the path of a PEM authority. A client certificate signed by it, with one of `admin_client_names`, is
	// accepted on `admin` in place of a token. Both keys are set, or none.
	AdminClientCAFile string `yaml:"admin_client_ca_file"`
	// AdminClientNames are the common names and DNS names of these certificates.
	AdminClientNames []string `yaml:"admin_client_names"`
	// AllowedHosts are names by which browsers and tools may call `admin`, and `http` where that is on loopback, in lower case.
	// Without any, these answer under localhost, IP addresses and the name that they listen on; forward-auth, health and
	// /metrics under any name.
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

// Policy returns the policy of a name, nil for none.
func (t *Topology) Policy(name string) *quota.Policy {
	for i := range t.Policies {
		if t.Policies[i].Name == name {
			return &t.Policies[i]
		}
	}
	return nil
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
