package daemon

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
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

	"github.com/regiond/regiond/test/ports"
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

// TestWhoMayAskOverGRPC: what the data listener asks of a caller, the listener of Envoy's services asks too, and so do those
// of envoyproxy/ratelimit's image.
func TestWhoMayAskOverGRPC(t *testing.T) {
	base := ports.Take(t, 0, 1, 2)
	g := startGuardedWith(t, tokenLine("ci", "data-secret")+tokenLine("held", "held-secret", "tenants=other")+tokenLine("reader", "usage-secret", "scopes=usage"),
		func(dir, topology string) string {
			return withDomains(t, dir, topology, map[string]string{"edge": ""}) + compatAt(base)
		}, "--grpc", "127.0.0.1:0")
	for i, c := range []struct {
		who                *certifier
		token              string
		want               codes.Code
		json, rules, alive int // of the image's listeners
	}{
		{nil, "", codes.Unauthenticated, 401, 401, 200},
		{g.clients, "", codes.OK, 200, 200, 200},
		{nil, "data-secret", codes.OK, 429, 200, 200},
		{nil, "admin-secret", codes.Unauthenticated, 401, 401, 200},
		{nil, "usage-secret", codes.PermissionDenied, 403, 403, 200},
		// Whose a request is, an end user may choose, and an error would let it pass.
		{nil, "held-secret", codes.OK, 429, 403, 200},
	} {
		answer, err := g.gateway(t, g.server.config(t, c.who, "gateway")).ask(t, "edge", "acme", c.token)
		if status.Code(err) != c.want || c.token == "held-secret" && answer.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%d: certificate %v, token %q: %v %v, want %v", i, c.who != nil, c.token, answer, err, c.want)
		}
		h := g.server.client(t, fmt.Sprintf("https://127.0.0.1:%d", base), c.who)
		var field []string
		if c.token != "" {
			field = []string{"X-Regiond-Token: " + c.token}
		}
		for path, want := range map[string]int{"/json": c.json, "/rlconfig": c.rules, "/healthcheck": c.alive} {
			if a := h.ask(t, http.MethodPost, path, oneRequest, field...); a.status != want {
				t.Errorf("%d: %s: %d %s, want %d", i, path, a.status, a.body, want)
			}
		}
	}
	if _, err := g.gateway(t, g.server.config(t, nil, "")).ask(t, "edge", "other", "held-secret"); err != nil {
		t.Errorf("the tenant that the token is held to: %v", err)
	}
	for name, config := range map[string]*tls.Config{"plain text": nil, "a stranger": g.server.config(t, newAuthority(t, "strangers"), "gateway")} {
		if _, err := g.gateway(t, config).ask(t, "edge", "acme", "data-secret"); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
