//go:build linux

package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/regiond/regiond/test/chaos/judge"
	"github.com/regiond/regiond/test/chaos/traffic"
)

// What Envoys ask for in each region, and how.
const (
	envoyAddr     = "127.0.0.1:8091"
	envoyRate     = 100                   // decisions a second in each region
	envoyDeadline = 20 * time.Millisecond // Envoy's own default
	envoyMargin   = 3 * time.Millisecond  // that regiond leaves of it
	// envoyTurn is for how long one user is asked for in domain shut, and envoyUnits is that user's
	// limit in a minute, for all regions together; they ask for two and a half times as much.
	envoyTurn  = 500 * time.Millisecond
	envoyUnits = 20
)

// envoyDomains are the domains of the rate limit service, and what each does without Redis.
var envoyDomains = []struct{ name, options, units string }{
	{judge.Shut, "on_store_loss: closed, max_overshoot: 0%", fmt.Sprint(envoyUnits)},
	{judge.Open, "on_store_loss: open", "1000000"},
	{judge.Own, "on_store_loss: share", "1000000"},
}

// envoyTopology is the part of the topology that configures the service.
func envoyTopology() string {
	b := &strings.Builder{}
	b.WriteString("rls:\n  domains:\n")
	for _, d := range envoyDomains {
		fmt.Fprintf(b, "    %s: {file: %s.yaml, scope: global, tenant: [user], %s}\n", d.name, d.name, d.options)
	}
	return b.String()
}

// writeEnvoyFiles writes the domains' files beside the topology.
func (w *World) writeEnvoyFiles() error {
	for _, d := range envoyDomains {
		text := fmt.Sprintf("domain: %s\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: %s}\n", d.name, d.units)
		if err := os.WriteFile(filepath.Join(w.dir, d.name+".yaml"), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// envoys ask each region's rate limit service, in an open loop.
type envoys struct {
	w     *World
	conns []*grpc.ClientConn

	mu  sync.Mutex
	all []judge.Call
}

// dialEnvoys connects to all regions, until t ends.
func (x *trial) dialEnvoys() *envoys {
	e := &envoys{w: x.w}
	for _, r := range x.w.Regions {
		conn, err := grpc.NewClient("passthrough:///"+envoyAddr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return r.ns.Dial(ctx, "tcp", addr) }))
		if err != nil {
			x.t.Fatal(err)
		}
		x.t.Cleanup(func() { _ = conn.Close() }) // fails only when it is closed already
		ctx, cancel := context.WithTimeout(x.t.Context(), readyWithin)
		_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true))
		cancel()
		if err != nil {
			x.t.Fatalf("%s: the health over gRPC: %v", r.Name, err)
		}
		e.conns = append(e.conns, conn)
	}
	return e
}

// run asks until ctx ends, and waits for the last answers.
func (e *envoys) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / envoyRate)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i, conn := range e.conns {
			c := judge.Call{Region: e.w.Regions[i].Name, Domain: envoyDomains[n%len(envoyDomains)].name, Call: e.w.History.Now()}
			c.User = fmt.Sprintf("u%d", c.Call/envoyTurn)
			wg.Go(func() { e.ask(conn, c) })
		}
	}
}

func (e *envoys) ask(conn *grpc.ClientConn, c judge.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), envoyDeadline)
	defer cancel()
	answer, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
		Domain: c.Domain, Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: c.User}}}},
	})
	c.Code = answer.GetOverallCode().String()
	why := answer.GetDynamicMetadata().GetFields()
	c.From, c.Mode, c.Basis = why["region"].GetStringValue(), why["mode"].GetStringValue(), why["basis"].GetStringValue()
	c.Return = e.w.History.Now()
	if err != nil {
		c.Code = status.Code(err).String()
	}
	e.mu.Lock()
	e.all = append(e.all, c)
	e.mu.Unlock()
}

// expected is what answers have to be.
func (e *envoys) expected(x *trial, records []traffic.Record) judge.Envoys {
	want := judge.Envoys{Units: envoyUnits, Turn: envoyTurn, Before: x.injected, Away: map[string]judge.Span{}, Busy: x.Busy, Deadline: envoyDeadline, Margin: envoyMargin}
	for name, within := range x.Notice {
		if slices.Contains(x.Modes, "local") {
			want.Away[name] = judge.Span{From: x.injected + within + x.bare(records), To: x.healed}
		}
	}
	return want
}
