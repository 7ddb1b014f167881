package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/regiond/regiond/test/ports"
)

// compatAt is a topology's rls.compat on three ports from base.
func compatAt(base int) string {
	return fmt.Sprintf("  compat: {http: '127.0.0.1:%d', grpc: '127.0.0.1:%d', debug: '127.0.0.1:%d'}\n", base, base+1, base+2)
}

// oneRequest is of user acme in domain edge, which has three an hour.
const oneRequest = `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "acme"}]}]}`

// TestCompat: the listeners of envoyproxy/ratelimit's image hold one limit, with a region's `grpc` and without, and stop.
func TestCompat(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"with grpc": {"--grpc", "127.0.0.1:0"}, "alone": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := ports.Take(t, 0, 1, 2)
			p := start(t, withDomains(t, t.TempDir(), inMemory(), map[string]string{"edge": ""})+compatAt(base), flags...)
			at := func(offset int) client { return newClient(t, fmt.Sprintf("http://127.0.0.1:%d", base+offset), nil) }
			if a := at(0).get(t, "/healthcheck"); a.status != http.StatusOK || a.body != "OK" {
				t.Errorf("/healthcheck: %d %q", a.status, a.body)
			}
			if a := at(2).get(t, "/rlconfig"); a.body != "edge.user: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false\n" {
				t.Errorf("/rlconfig: %d %q", a.status, a.body)
			}
			at(0).ask(t, http.MethodPost, "/json", oneRequest).is(t, http.StatusOK)
			at(0).ask(t, http.MethodPost, "/json", oneRequest).is(t, http.StatusOK)
			c, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", base+1), grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			a, err := ratelimit.NewRateLimitServiceClient(c).ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{
				Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "acme"}}}},
			})
			if err != nil || a.GetOverallCode() != ratelimit.RateLimitResponse_OK {
				t.Errorf("the third: %v, %v", a, err)
			}
			at(0).ask(t, http.MethodPost, "/json", oneRequest).is(t, http.StatusTooManyRequests)
			p.stop()
			for offset := range 3 {
				l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
				if err != nil {
					t.Errorf("after it has stopped: %v", err)
					continue
				}
				_ = l.Close()
			}
		})
	}
}

// TestCompatPortTaken: the error says which listener it is and how to move it.
func TestCompatPortTaken(t *testing.T) {
	t.Parallel()
	base := ports.Take(t, 0, 1, 2)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+2))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o, err := testOptions(append(patient(), "--config", topologyFile(t, withDomains(t, t.TempDir(), inMemory(), map[string]string{"edge": ""})+compatAt(base)), "--region", "town"))
	if err != nil {
		t.Fatal(err)
	}
	top, _, err := o.LoadTopology()
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(o, top, slog.New(slog.DiscardHandler), &slog.LevelVar{})
	if err == nil {
		t.Fatal("it has started", d.Close())
	}
	for _, part := range []string{"compat debug listener: ", fmt.Sprint(base + 2), `move it with rls: {compat: {debug: "host:port"}}`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v, without %q", err, part)
		}
	}
}
