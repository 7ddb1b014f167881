//go:build compose

package compose

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// limit is how long all of it may take, an image that has to be built included;
// afterwards, or after Ctrl-C, everything is taken down.
const limit = 15 * time.Minute

// project is one deployment of docker-compose.multi.yml that is not in the way of
// any other: its own name, addresses, ports and secrets.
type project struct {
	ctx  context.Context
	tool []string // docker compose, or docker-compose
	name string
	env  []string
	// secrets is the folder of the secrets.
	secrets string
	// Cached answers of Compose, which takes seconds.
	ports, containers map[string]string
}

// newProject prepares a project and sees to it that it is taken down. Where no
// engine answers there is nothing that could be tested.
func newProject(t *testing.T) *project {
	t.Helper()
	if out, err := exec.Command("docker", "version", "--format", "{{.Server.Version}}").CombinedOutput(); err != nil {
		t.Skipf("no Docker engine answers here, so nothing was tested: %v: %s", err, out)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	p := &project{ctx: ctx, tool: tool(t), name: fmt.Sprintf("regiond-test-%d", os.Getpid()), ports: map[string]string{}, containers: map[string]string{}}
	p.secrets = secrets(t)
	p.env = append(os.Environ(),
		"REGIOND_VERSION=compose-test", "REGIOND_SECRETS="+p.secrets, "REGIOND_NET="+freeNet(t),
		"DOCKER_BUILDKIT=0", "COMPOSE_DOCKER_CLI_BUILD=0", "COMPOSE_IGNORE_ORPHANS=1")
	for _, r := range ours {
		word := strings.ToUpper(strings.ReplaceAll(r, "-", "_"))
		p.env = append(p.env, word+"_PORT=", word+"_GATEWAY_PORT=")
	}
	p.env = append(p.env, "PROMETHEUS_PORT=", "JAEGER_PORT=", "GRAFANA_PORT=")
	t.Cleanup(func() {
		p.ctx = context.Background() // also when Ctrl-C or the time limit ended the other
		if t.Failed() {
			out, _ := p.command("logs", "--tail", "30", "--no-color").CombinedOutput() // for the reader of a failure
			t.Logf("%s", out)
		}
		p.compose(t, "--profile", "gateways", "--profile", "observe", "down", "--volumes", "--timeout", "1")
		cancel()
		stop()
	})
	return p
}

// tool is Compose v2 where it is installed, else docker-compose.
func tool(t *testing.T) []string {
	t.Helper()
	if exec.Command("docker", "compose", "version").Run() == nil {
		return []string{"docker", "compose"}
	}
	if path, err := exec.LookPath("docker-compose"); err == nil {
		return []string{path}
	}
	t.Skip("neither docker compose nor docker-compose is installed, so nothing was tested")
	return nil
}

// secrets are made as an operator makes them, and Redis gets another user that may
// read what it has refused.
func secrets(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("../../scripts/compose-keys", dir).CombinedOutput(); err != nil {
		t.Fatalf("compose-keys: %v: %s", err, out)
	}
	acl := filepath.Join(dir, "redis.acl")
	rules, err := os.ReadFile(acl)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(acl, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(acl, append(rules, "user auditor reset on nopass +acl|log\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// secret is what one of the files that compose-keys made holds.
func (p *project) secret(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.secrets, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// freeNet finds a /24 that no network of this engine overlaps.
func freeNet(t *testing.T) string {
	t.Helper()
	ids, err := exec.Command("docker", "network", "ls", "--quiet").Output()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"network", "inspect", "--format", "{{range .IPAM.Config}}{{.Subnet}} {{end}}"}, strings.Fields(string(ids))...)
	out, err := exec.Command("docker", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2048 {
		n := (os.Getpid() + i) % 2048
		net := fmt.Sprintf("172.%d.%d", 24+n/256, n%256)
		if !overlaps(t, netip.MustParsePrefix(net+".0/24"), strings.Fields(string(out))) {
			return net
		}
	}
	t.Fatal("no free network in 172.24.0.0/13")
	return ""
}

func overlaps(t *testing.T, p netip.Prefix, taken []string) bool {
	t.Helper()
	for _, s := range taken {
		other, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		if p.Overlaps(other) {
			return true
		}
	}
	return false
}

func (p *project) command(args ...string) *exec.Cmd {
	all := append(p.tool[1:len(p.tool):len(p.tool)], "--project-name", p.name, "--file", "../../docker-compose.multi.yml")
	cmd := exec.CommandContext(p.ctx, p.tool[0], append(all, args...)...)
	cmd.Env = p.env
	return cmd
}

// compose runs Compose and shows what it wrote when it did not succeed.
func (p *project) compose(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, p.command(args...))
}

func (p *project) docker(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, exec.CommandContext(p.ctx, "docker", args...))
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, out, &complaint)
	}
	return strings.TrimSpace(string(out))
}

// port is where a container's port is published.
func (p *project) port(t *testing.T, service, port string) string {
	t.Helper()
	return p.compose(t, "port", service, port)
}

// container is the id of a service's only container.
func (p *project) container(t *testing.T, service string) string {
	t.Helper()
	if p.containers[service] == "" {
		p.containers[service] = p.compose(t, "ps", "--quiet", service)
	}
	return p.containers[service]
}

// reaches asks from inside a container whether something listens at an address.
// What listens need not speak HTTP: only a refusal, an unknown name and
// silence mean no.
func (p *project) reaches(t *testing.T, service, address string) (bool, string) {
	t.Helper()
	cmd := exec.CommandContext(p.ctx, "docker", "exec", p.container(t, service),
		"/regiond", "healthcheck", "--timeout", "3s", "--addr", "http://"+address)
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "regiond healthcheck: ") {
		t.Fatalf("ask for %s: %v: %s", address, err, out)
	}
	for _, no := range []string{"connection refused", "no such host", "server misbehaving", "deadline exceeded", "unreachable"} {
		if strings.Contains(string(out), no) {
			return false, string(out)
		}
	}
	return true, string(out)
}

// address is a container's on one of the project's networks.
func (p *project) address(t *testing.T, service, network string) string {
	t.Helper()
	return p.docker(t, "inspect", "--format", fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", p.name+"_"+network), p.container(t, service))
}

// sends is what an address answers to bytes that a container sends, "" where nothing
// listens or no network leads there.
func (p *project) sends(t *testing.T, service, host, port, text string) string {
	t.Helper()
	cmd := exec.CommandContext(p.ctx, "docker", "exec", "--interactive", p.container(t, service), "nc", "-w", "3", host, port)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

// acls is what a Redis has refused by its list of users, "" for nothing.
func (p *project) acls(t *testing.T, service string) string {
	t.Helper()
	return p.docker(t, "exec", p.container(t, service),
		"redis-cli", "--no-auth-warning", "--user", "auditor", "--pass", "any", "acl", "log")
}
