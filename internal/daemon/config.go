package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/regiond/regiond/grpcapi"
	"github.com/regiond/regiond/grpcapi/rls"
	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/internal/files"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/keyfile"
)

// config is what may change while serving: a topology, and what was read from the
// files that it names. It is not modified after readConfig.
type config struct {
	topology *region.Topology
	region   *region.Region // of this process
	settings *httpapi.Settings
	grpc     *grpcapi.Settings
	password string // of Redis
	keys     *keyfile.Keys
	tls      *tls.Config // of the data listener; nil without a certificate
	adminTLS *tls.Config // of the admin listener, the same
}

// readConfig reads the files that a topology names. A region with peers is checked
// for what it connects to them with, so that a mistake there fails a reload and not a
// later handshake.
func readConfig(top *region.Topology, name string) (_ *config, err error) {
	c := &config{topology: top}
	var ok bool
	if c.region, ok = top.Region(name); !ok {
		return nil, fmt.Errorf("the topology has no region %q any more", name)
	}
	if c.settings, err = apiSettings(top); err != nil {
		return nil, err
	}
	c.grpc = &grpcapi.Settings{Access: c.settings.Access, Headers: c.settings.Headers}
	if c.grpc.Domains, err = rls.Domains(top); err != nil {
		return nil, err
	}
	if c.password, err = readSecret(c.region.Redis.PasswordFile); err != nil {
		return nil, err
	}
	if c.keys, err = sharedKeys(c.region); err != nil {
		return nil, err
	}
	a := &top.Access
	if c.tls, err = readServerTLS("data", a.CertFile, a.KeyFile, a.ClientCAFile); err != nil {
		return nil, err
	}
	if c.adminTLS, err = readServerTLS("admin", a.AdminCertFile, a.AdminKeyFile, a.AdminClientCAFile); err != nil {
		return nil, err
	}
	if _, err := clientTLS(c.region.Redis.TLS); err != nil {
		return nil, fmt.Errorf("region %s: redis: %w", name, err)
	}
	if c.hasPeers() {
		if _, err := clientTLS(c.region.NATS.TLS); err != nil {
			return nil, fmt.Errorf("region %s: nats: %w", name, err)
		}
		if _, err := readSecret(c.region.NATS.PasswordFile); err != nil {
			return nil, fmt.Errorf("region %s: nats: %w", name, err)
		}
	}
	return c, nil
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

// sharedKeys are the secrets of the deployment; zero when it has none.
func sharedKeys(r *region.Region) (*keyfile.Keys, error) {
	if r.Gossip == nil || r.Gossip.KeyFile == "" {
		return &keyfile.Keys{}, nil
	}
	keys, err := keyfile.Read(r.Gossip.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("region %s: gossip: %w", r.Name, err)
	}
	return keys, nil
}

// apiSettings is how the API reads requests and writes answers. It reads the token files.
func apiSettings(top *region.Topology) (*httpapi.Settings, error) {
	s := &httpapi.Settings{ForwardAuth: top.ForwardAuth}
	s.Access.ClientCA = top.Access.ClientCAFile != ""
	s.Access.ClientNames = top.Access.ClientNames
	s.Access.AdminClientNames = top.Access.AdminClientNames
	s.Access.AllowedHosts = top.Access.AllowedHosts
	s.Headers = top.Headers
	var err error
	if s.Access.Tokens, err = readTokens(top.Access.TokensFile, httpapi.DefaultScopes); err != nil {
		return nil, err
	}
	if s.Access.AdminTokens, err = readTokens(top.Access.AdminTokensFile, httpapi.AdminScopes); err != nil {
		return nil, err
	}
	for _, t := range s.Access.Tokens {
		if t.Scopes&httpapi.AdminScopes != 0 {
			s.Access.AdminTokens = append(s.Access.AdminTokens, t)
		}
	}
	return s, nil
}

func readTokens(file string, scopes httpapi.Scope) ([]httpapi.Token, error) {
	if file == "" {
		return nil, nil
	}
	text, err := files.Read(file)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	tokens, err := httpapi.ParseTokens(bytes.NewReader(text), scopes)
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
	return strings.TrimRight(string(b), "\r\n"), nil
}

// LimiterConfig is what the limiter of one region enforces.
func LimiterConfig(top *region.Topology, name string, g limiter.Global, processes func() int64) limiter.Config {
	c := limiter.Config{
		Hash:       top.Hash(),
		Region:     name,
		Policies:   top.Policies,
		Tenants:    top.Tenants.Listed,
		Default:    top.Tenants.Default,
		MaxUnknown: int(top.MaxUnknown),
		MaxValues:  int(top.MaxValues),
		Global:     g,
		Processes:  processes,
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
