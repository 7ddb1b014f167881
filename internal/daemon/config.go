package daemon

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/internal/base/files"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/keyfile"
)

// config is what may change while serving: a topology, and what was read from the
// files that it names. It is not modified after readConfig.
type config struct {
	topology *region.Topology
	hash     string         // of the topology: gossip, and each explained check of a bound, ask for it
	region   *region.Region // of this process
	settings *httpapi.Settings
	grpc     *grpcapi.Settings
	password string // of Redis
	// of its sentinels, read at the start only
	sentinelPassword string
	keys             *keyfile.Keys        // the secrets of the deployment; zero when it has none
	tls              *tls.Config          // of the data listener; nil without a certificate
	adminTLS         *tls.Config          // of the admin listener, the same
	once             [3][sha256.Size]byte // what is in onceFiles
}

// readConfig reads the files that a topology names. A region with peers is checked
// for what it connects to them with, so that a mistake there fails a reload and not a
// later handshake. Its error has all mistakes.
func readConfig(top *region.Topology, name string) (*config, error) {
	c := &config{topology: top}
	var ok bool
	if c.region, ok = top.Region(name); !ok {
		return nil, fmt.Errorf("the topology has %w", top.NoRegion(name))
	}
	var errs []error
	about := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	var err error
	c.settings, err = apiSettings(top)
	about("access", err)
	c.grpc = &grpcapi.Settings{Access: c.settings.Access, Headers: c.settings.Headers}
	c.grpc.Domains, err = rls.Domains(top)
	about("rls", err)
	a := &top.Access
	c.tls, err = readServerTLS("data", a.CertFile, a.KeyFile, a.ClientCAFile)
	about("access", err)
	c.adminTLS, err = readServerTLS("admin", a.AdminCertFile, a.AdminKeyFile, a.AdminClientCAFile)
	about("access", err)
	c.keys = &keyfile.Keys{}
	if g := c.region.Gossip; g != nil && g.KeyFile != "" {
		c.keys, err = keyfile.Read(g.KeyFile)
		about("region "+name+": gossip", err)
	}
	redis, nats := "region "+name+": redis", "region "+name+": nats"
	c.once = readOnce(c.region)
	c.password, err = readSecret(c.region.Redis.PasswordFile)
	about(redis, err)
	c.sentinelPassword, err = readSecret(c.region.Redis.SentinelPasswordFile)
	about(redis+": sentinels", err)
	_, err = clientTLS(c.region.Redis.TLS)
	about(redis, err)
	if c.hasPeers() {
		_, err = clientTLS(c.region.NATS.TLS)
		about(nats, err)
		_, err = readSecret(c.region.NATS.PasswordFile)
		about(nats, err)
		about(nats, checkCreds(c.region.NATS.CredsFile))
	}
	c.hash = top.Hash() // with the contents of files
	return c, errors.Join(errs...)
}

// CheckFiles returns what is wrong with the files that a topology names for a region: all that keeps a process of it from
// starting, and a reload from being put in force.
func CheckFiles(top *region.Topology, name string) []error {
	_, err := readConfig(top, name)
	if all, ok := err.(interface{ Unwrap() []error }); ok { // what readConfig joined, and no deeper
		return all.Unwrap()
	}
	return nil
}

// fitListeners adapts a reloaded configuration to listeners that were opened with TLS or
// without, which takes a restart to change. Without, no client can show a certificate,
// and to require one of gateways would refuse all traffic; operators can wait. With, the
// certificate in force stays where the new configuration has none.
func (c *config) fitListeners(inForce *config) {
	if inForce.tls == nil {
		c.tls, c.settings.Access.ClientCA = nil, false
	} else if c.tls == nil {
		c.tls = inForce.tls
	}
	if inForce.adminTLS == nil || c.adminTLS == nil {
		c.adminTLS = inForce.adminTLS
	}
	a := &c.settings.Access
	a.ClientCAs, a.AdminClientCAs = authorities(c.tls), authorities(c.adminTLS)
}

// authorities are those of a listener's client certificates.
func authorities(c *tls.Config) *x509.CertPool {
	if c == nil {
		return nil
	}
	return c.ClientCAs
}

// hasPeers reports whether this process has others to talk to: of other regions, or
// of its own.
func (c *config) hasPeers() bool { return len(c.topology.Regions) > 1 || c.region.Gossip != nil }

// tenantSecret keys what spans show of tenants: the key of partitions, as on the wire, or the
// cluster's name when there is none.
func (c *config) tenantSecret() []byte {
	if c.keys.Partitions == nil {
		return []byte(c.topology.Cluster)
	}
	return c.keys.Partitions
}

// apiSettings is how the API reads requests and writes answers. It reads the token files.
func apiSettings(top *region.Topology) (*httpapi.Settings, error) {
	s := &httpapi.Settings{ForwardAuth: top.ForwardAuth}
	s.Access.ClientCA = top.Access.ClientCAFile != ""
	s.Access.ClientNames = top.Access.ClientNames
	s.Access.AdminClientNames = top.Access.AdminClientNames
	s.Access.AllowedHosts = top.Access.AllowedHosts
	s.Headers = top.Headers
	var err, err2 error
	s.Access.Tokens, err = readTokens(top.Access.TokensFile, access.DefaultScopes)
	s.Access.AdminTokens, err2 = readTokens(top.Access.AdminTokensFile, access.AdminScopes)
	for _, t := range s.Access.Tokens {
		if t.Scopes&access.AdminScopes != 0 {
			s.Access.AdminTokens = append(s.Access.AdminTokens, t)
		}
	}
	return s, errors.Join(err, err2)
}

func readTokens(file string, scopes access.Scope) ([]access.Token, error) {
	if file == "" {
		return nil, nil
	}
	text, err := files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	tokens, err := access.ParseTokens(bytes.NewReader(text), scopes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(tokens) == 0 { // an empty list would allow all callers
		return nil, fmt.Errorf("%s contains no token; remove the setting to allow all callers", file)
	}
	return tokens, nil
}

func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := files.Read(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	if secret == "" { // or it would count as no password
		return "", fmt.Errorf("read secret: %s is empty; write the password into it, or remove the setting to log in without", file)
	}
	return secret, nil
}

// checkCreds returns what the NATS client would find wrong with a file of credentials when it connects.
func checkCreds(file string) error {
	if file == "" {
		return nil
	}
	b, err := files.Read(file)
	if err != nil {
		return fmt.Errorf("read credentials: %w", err)
	}
	if _, err = nkeys.ParseDecoratedJWT(b); err == nil {
		_, err = nkeys.ParseDecoratedNKey(b)
	}
	if err != nil {
		return fmt.Errorf("%s holds no credentials as `nsc generate creds` writes them: %w", file, err)
	}
	return nil
}

// LimiterConfig is what the limiter of one region enforces.
func LimiterConfig(top *region.Topology, name string, g limiter.Global, processes func() int64) limiter.Config {
	c := limiter.Config{
		Hash:        top.Hash(),
		Region:      name,
		Policies:    top.Policies,
		Tenants:     top.Tenants.Listed,
		Default:     top.Tenants.Default,
		MaxUnknown:  int(top.MaxUnknown),
		MaxValues:   int(top.MaxValues),
		MaxOverride: top.MostOverride(),
		Global:      g,
		Processes:   processes,
	}
	for i := range top.RLS.Domains {
		if d, ok := top.RLS.Domains[i].Rules.(*rls.Domain); ok {
			c.Domains = append(c.Domains, quota.Domain{Policy: d.Policy(), Tenant: d.Tenant})
		}
	}
	if f := top.ForwardAuth; f != nil {
		c.Dimensions = append(c.Dimensions, quota.RouteDimension)
		for _, d := range f.Dimensions {
			c.Dimensions = append(c.Dimensions, d.Name)
		}
	}
	return c
}
