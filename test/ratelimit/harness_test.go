package ratelimit_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/ports"
)

// server is theirs or ours.
type server struct {
	ratelimit.RateLimitServiceClient
	addr string
}

func newServer(t *testing.T, addr string) *server {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &server{ratelimit.NewRateLimitServiceClient(conn), addr}
}

// ask answers a request; a service error is a failure.
func (s *server) ask(t *testing.T, r *ratelimit.RateLimitRequest) *ratelimit.RateLimitResponse {
	t.Helper()
	a, err := s.ShouldRateLimit(t.Context(), r)
	if err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return a
}

// domain is one of both servers: its file, and what our topology says of it.
type domain struct{ name, file, settings string }

// install builds programs of their module into dir. It has its own versions of what both depend on.
func install(t *testing.T, dir string, programs ...string) {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "github.com/envoyproxy/ratelimit").Output()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"install"}
	for _, p := range programs {
		args = append(args, "github.com/envoyproxy/ratelimit/src/"+p+"@"+strings.TrimSpace(string(version)))
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", programs, err, out)
	}
}

// startTheirs runs their server on a Redis.
func startTheirs(t *testing.T, binary, redis string, domains []domain) *server {
	t.Helper()
	root := t.TempDir()
	config := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range domains {
		write(t, filepath.Join(config, d.name+".yaml"), d.file)
	}
	args := []string{
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "DISABLE_STATS=true", "RESPONSE_DYNAMIC_METADATA=true",
	}
	addrs := map[string]string{}
	for _, name := range []string{"", "GRPC_", "DEBUG_"} {
		addrs[name] = ports.Addr(t)
		host, port, _ := net.SplitHostPort(addrs[name])
		args = append(args, name+"HOST="+host, name+"PORT="+port)
	}
	gateway.Run(t, root, "env", syscall.SIGTERM, append(args, binary)...).Await(t, func() error { return get(t, "http://"+addrs[""]+"/healthcheck") })
	return newServer(t, addrs["GRPC_"])
}

// startOurs runs regiond on a Redis. Its budgets are long, since a busy machine must not decide.
func startOurs(t *testing.T, binary, redis string, domains []domain) *server {
	t.Helper()
	s, _ := startOursOn(t, binary, fmt.Sprintf("addrs: [%q]", redis), domains)
	return s
}

// startOursOn is startOurs for a Redis as the topology has it. It returns the folder of the configuration too.
func startOursOn(t *testing.T, binary, redis string, domains []domain) (s *server, root string) {
	t.Helper()
	root, http, admin, grpc := t.TempDir(), ports.Addr(t), ports.Addr(t), ports.Addr(t)
	topology := fmt.Sprintf("regions:\n  - {name: eu-west, http: %q, admin: %q, grpc: %q, redis: {%s}}\n"+
		"policies: [{name: standard, limits: [{name: a, units: 1, per: 1m}]}]\ntenants: {default: {policy: standard}}\nrls:\n  domains:\n",
		http, admin, grpc, redis)
	for _, d := range domains {
		write(t, filepath.Join(root, d.name+".yaml"), d.file)
		topology += fmt.Sprintf("    %s: {file: %s.yaml%s}\n", d.name, d.name, d.settings)
	}
	write(t, filepath.Join(root, "topology.yaml"), topology)
	gateway.Run(t, root, binary, syscall.SIGTERM, "serve", "--config", "topology.yaml", "--region", "eu-west", "--redis-budget", "5s", "--deadline", "6s").
		Await(t, func() error { return get(t, "http://"+admin+"/readyz") })
	return newServer(t, grpc), root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := gateway.Get(ctx, url)
	return err
}
