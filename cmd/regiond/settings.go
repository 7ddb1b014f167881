package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/limiter"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

// What each room needs of a topology. The rooms do not know each other, so the
// words of one are turned into those of the other here.

// limiterConfig is what the limiter of one region enforces.
func limiterConfig(top *region.Topology, name string, processes int64) limiter.Config {
	c := limiter.Config{
		Hash:       top.Hash(),
		Region:     name,
		Policies:   top.Policies,
		Tenants:    make(map[string]limiter.Tenant, len(top.Tenants.Listed)),
		MaxUnknown: int(top.MaxUnknown),
		Ceiling:    ceiling(top, name),
		Processes:  processes,
	}
	for id, t := range top.Tenants.Listed {
		c.Tenants[id] = limiter.Tenant(t)
	}
	if f := top.ForwardAuth; f != nil {
		c.Dimensions = append(slices.Collect(maps.Keys(f.Dimensions)), region.RouteDimension)
	}
	if d := top.Tenants.Default; d != nil {
		t := limiter.Tenant(*d)
		c.Default = &t
	}
	return c
}

// ceiling holds a global limit to this region's part: regions do not hear each
// other yet, and the parts of all of them sum to the limit.
// It depends on the topology alone, so it is worked out once for each limit.
func ceiling(top *region.Topology, name string) func(*quota.Policy, *quota.Limit) limiter.Ceiling {
	type key struct{ policy, limit string }
	ceilings := map[key]limiter.Ceiling{}
	for i := range top.Policies {
		p := &top.Policies[i]
		for j := range p.Limits {
			ceilings[key{p.Name, p.Limits[j].Name}] = blindCeiling(top, name, p, &p.Limits[j])
		}
	}
	return func(p *quota.Policy, l *quota.Limit) limiter.Ceiling { return ceilings[key{p.Name, l.Name}] }
}

func blindCeiling(top *region.Topology, name string, p *quota.Policy, l *quota.Limit) limiter.Ceiling {
	part := top.Part(name, l)
	c := limiter.Ceiling{Units: part, Part: part, Formula: fmt.Sprintf("the whole limit, %d: this is the only region", part)}
	if len(top.Regions) == 1 {
		return c
	}
	c.Mode, c.Reason = quota.ModeStale, quota.ReasonPeerSilent
	if p.OnPartition == quota.FailShare {
		c.Mode = quota.ModeShare
	}
	c.Formula = fmt.Sprintf("this region's part of %d, by weight: no other region is heard", l.Units)
	return c
}

// doorSettings is how the door reads requests and writes answers. It reads the
// token files.
func doorSettings(top *region.Topology) (*httpapi.Settings, error) {
	s := &httpapi.Settings{ForwardAuth: forwardAuth(top.ForwardAuth)}
	s.Access.ClientCA = top.Access.ClientCAFile != ""
	err := errors.Join(
		s.Headers.Format.UnmarshalText([]byte(top.Headers.Format)),
		s.Headers.XReset.UnmarshalText([]byte(top.Headers.XReset)))
	if err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	if s.Access.Tokens, err = readTokens(top.Access.TokensFile); err != nil {
		return nil, err
	}
	if s.Access.AdminTokens, err = readTokens(top.Access.AdminTokensFile); err != nil {
		return nil, err
	}
	return s, s.Validate()
}

func forwardAuth(f *region.ForwardAuth) *httpapi.ForwardAuth {
	if f == nil {
		return nil
	}
	out := &httpapi.ForwardAuth{
		TenantHeader:   f.TenantHeader,
		Anonymous:      f.Missing == region.MissingAnonymous,
		TrustedProxies: f.TrustedProxies,
	}
	for _, name := range slices.Sorted(maps.Keys(f.Dimensions)) {
		d := f.Dimensions[name]
		out.Dimensions = append(out.Dimensions, httpapi.DimensionSource{
			Name: name, Header: d.Header, ClientIP: d.ClientIP, Hash: d.Hash,
		})
	}
	for _, r := range f.Routes {
		out.Routes = append(out.Routes, httpapi.Route(r))
	}
	return out
}

func readTokens(file string) ([]httpapi.Token, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close()
	tokens, err := httpapi.ParseTokens(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(tokens) == 0 { // an empty list would let everyone in
		return nil, fmt.Errorf("%s has no token in it; remove the setting to let everyone in", file)
	}
	return tokens, nil
}

func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// clientTLS is how to dial something that the topology gives certificates for.
func clientTLS(t *region.TLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		pool, err := readPool(t.CAFile)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

func readPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New(file + " holds no PEM certificate")
	}
	return pool, nil
}
