package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/region"
)

// What each room needs of a topology. The rooms do not know each other, so the
// words of one are turned into those of the other here.

// doorSettings is how the door reads requests and writes answers. It reads the
// token files.
func doorSettings(top *region.Topology) (*httpapi.Settings, error) {
	s := &httpapi.Settings{ForwardAuth: forwardAuth(top.ForwardAuth)}
	s.Access.ClientCA = top.Access.ClientCAFile != ""
	s.Headers = httpapi.Headers{Format: httpapi.Format(top.Headers.Format), XReset: httpapi.XReset(top.Headers.XReset)}
	var err error
	if s.Access.Tokens, err = readTokens(top.Access.TokensFile); err != nil {
		return nil, err
	}
	if s.Access.AdminTokens, err = readTokens(top.Access.AdminTokensFile); err != nil {
		return nil, err
	}
	return s, nil
}

func forwardAuth(f *region.ForwardAuth) *httpapi.ForwardAuth {
	if f == nil {
		return nil
	}
	out := &httpapi.ForwardAuth{
		TenantHeader:   f.Tenant.Header,
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
