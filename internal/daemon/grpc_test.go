package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/test/redisserver"
)

// threeAnHour is a file of envoyproxy/ratelimit.
const threeAnHour = `domain: DOMAIN
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
`

// withDomains adds domains with those settings to a topology, beside a file for each in dir.
func withDomains(t *testing.T, dir, topology string, domains map[string]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(topology + "rls:\n  domains:\n")
	for name, settings := range domains {
		file := filepath.Join(dir, name+".yaml")
		write(t, file, strings.Replace(threeAnHour, "DOMAIN", name, 1))
		fmt.Fprintf(&b, "    %s: {file: %q, tenant: [user]%s}\n", name, file, settings)
	}
	return b.String()
}

// gateway asks Envoy's service.
type gateway struct {
	ratelimit.RateLimitServiceClient
}

// gateway returns one that shows what config says; nil is plain text.
func (p *program) gateway(t *testing.T, config *tls.Config) gateway {
	t.Helper()
	shown := insecure.NewCredentials()
	if config != nil {
		shown = credentials.NewTLS(config)
	}
	c, err := grpc.NewClient(p.daemon.GRPCAddr().String(), grpc.WithTransportCredentials(shown))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return gateway{ratelimit.NewRateLimitServiceClient(c)}
}

// ask asks for a user of a domain, with a token unless that is empty.
func (g gateway) ask(t *testing.T, domain, user, token string) (*ratelimit.RateLimitResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	return g.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}},
	}})
}

// TestWhoMayAskOverGRPC: what the data listener asks of a caller, the listener of Envoy's services asks too.
func TestWhoMayAskOverGRPC(t *testing.T) {
	g := startGuardedWith(t, tokenLine("ci", "data-secret")+tokenLine("held", "held-secret", "tenants=other")+tokenLine("reader", "usage-secret", "scopes=usage"),
		func(dir, topology string) string { return withDomains(t, dir, topology, map[string]string{"edge": ""}) }, "--grpc", "127.0.0.1:0")
	for i, c := range []struct {
		who   *authority
		token string
		want  codes.Code
	}{
		{nil, "", codes.Unauthenticated},
		{g.clients, "", codes.OK},
		{nil, "data-secret", codes.OK},
		{nil, "admin-secret", codes.Unauthenticated},
		{nil, "usage-secret", codes.PermissionDenied},
		{newAuthority(t, "strangers"), "data-secret", codes.Unavailable}, // the handshake fails
	} {
		_, err := g.gateway(t, g.server.config(t, c.who, "gateway")).ask(t, "edge", "acme", c.token)
		if status.Code(err) != c.want {
			t.Errorf("%d: certificate %v, token %q: %v, want %v", i, c.who != nil, c.token, err, c.want)
		}
	}
	if _, err := g.gateway(t, g.server.config(t, nil, "")).ask(t, "edge", "other", "held-secret"); err != nil {
		t.Errorf("the tenant that the token is held to: %v", err)
	}
	// Whose a request is, an end user may choose, and an error would let it pass.
	if a, err := g.gateway(t, g.server.config(t, nil, "")).ask(t, "edge", "acme", "held-secret"); err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
		t.Errorf("another tenant: %v %v", a, err)
	}
	if _, err := g.gateway(t, nil).ask(t, "edge", "acme", "data-secret"); status.Code(err) != codes.Unavailable {
		t.Errorf("plain text: %v", err)
	}
}

// TestGRPCWithoutRedis: while Redis is away a domain does what its on_store_loss says, and that is never an error.
func TestGRPCWithoutRedis(t *testing.T) {
	srv := redisserver.Start(t, redisserver.Options{})
	p := start(t, withDomains(t, t.TempDir(), onRedis(srv.Addr()), map[string]string{
		"sharing": "", "opening": ", on_store_loss: open", "closing": ", on_store_loss: closed",
	}), "--grpc", "127.0.0.1:0")
	g := p.gateway(t, nil)
	answer := func(domain string) string {
		t.Helper()
		a, err := g.ask(t, domain, "acme", "")
		if err != nil {
			t.Fatalf("%s: %v", domain, err)
		}
		return a.GetOverallCode().String() + " " + a.GetDynamicMetadata().GetFields()["mode"].GetStringValue()
	}
	for _, domain := range []string{"sharing", "opening", "closing"} {
		if got := answer(domain); got != "OK global" {
			t.Errorf("%s with Redis: %s", domain, got)
		}
	}
	srv.Kill()
	for range 5 {
		for domain, want := range map[string]string{"opening": "OK local", "closing": "OVER_LIMIT local"} {
			if got := answer(domain); got != want {
				t.Errorf("%s without Redis: %s, want %s", domain, got, want)
			}
		}
	}
	passed := 0
	for range 6 {
		if answer("sharing") == "OK local" {
			passed++
		}
	}
	if passed != 2 { // one of three was used before
		t.Errorf("sharing without Redis lets %d of 6 requests pass, 2 are left", passed)
	}
}
