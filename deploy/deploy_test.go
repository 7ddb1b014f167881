//go:build unix

// Package deploy_test holds the files that operators copy against the programs
// that read them: the unit against systemd's own judgement, the ACL against a real
// Redis and the real regiond.
package deploy_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
	"github.com/regiond/regiond/test/redisserver"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// exposure is the highest exposure level that systemd-analyze may report, in tenths: below
// 2 it calls a service well protected.
const exposure = "20"

func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("only systemd can judge a unit, and this machine has none")
	}
	dir := t.TempDir()
	program, err := exec.LookPath("true") // any program that is there: verify looks for one
	if err != nil {
		t.Fatal(err)
	}
	unit := gateway.Render(t, "regiond.service", dir, gateway.Edit{Old: "/usr/local/bin/regiond", New: program})
	for _, args := range [][]string{
		{"verify", "--man=no", unit},
		{"security", "--offline=true", "--no-pager", "--threshold=" + exposure, unit},
	} {
		out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

const secret = "s3cret"

// documented starts a Redis with the settings of docs/deploy.md and the users of
// redis.acl, and another one for the client, which may do everything.
func documented(t *testing.T, acl string) (addr string, auditor *redis.Client) {
	t.Helper()
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "In redis.conf:\n```\n")
	settings, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("docs/deploy.md has no settings of Redis")
	}
	dir := t.TempDir()
	users, file := filepath.Join(dir, "users.acl"), filepath.Join(dir, "redis.conf")
	write(t, users, acl+"user auditor on nopass ~* &* +@all\n")
	write(t, file, gateway.Apply(t, "the settings", settings, gateway.Edit{Old: "/etc/redis/users.acl", New: users}))
	addr = gateway.FreeAddrs(t, 1)[0]
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	p := gateway.Run(t, dir, redisserver.Binary(t), syscall.SIGTERM, file, "--bind", host, "--port", port, "--dir", dir)
	auditor = redis.NewClient(&redis.Options{Addr: addr, Username: "auditor", Password: "any"})
	t.Cleanup(func() { auditor.Close() })
	p.Await(t, func() error { return auditor.Ping(t.Context()).Err() })
	return addr, auditor
}

// commands are what redis.acl grants.
func commands(t *testing.T, acl string) (granted []string) {
	t.Helper()
	for word := range strings.FieldsSeq(acl) {
		if name, ok := strings.CutPrefix(word, "+"); ok {
			granted = append(granted, name)
		}
	}
	if len(granted) < 10 {
		t.Fatalf("redis.acl grants %q", granted)
	}
	return granted
}

func readACL(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("redis.acl")
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Apply(t, "redis.acl", string(data), gateway.Edit{Old: ">CHANGE", New: ">" + secret})
}

// TestACLIsEnough: regiond counts in Redis, resets, and finds its totals again,
// without one command being refused.
func TestACLIsEnough(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-server and regiond")
	}
	redis, auditor := documented(t, readACL(t))
	binary, dir := gateway.Build(t, ".."), t.TempDir()
	addrs := gateway.FreeAddrs(t, 3)
	password := filepath.Join(dir, "password")
	write(t, password, secret)
	file := filepath.Join(dir, "topology.yaml")
	write(t, file, fmt.Sprintf(`
regions:
  - name: eu-west
    http: %s
    admin: %s
    gossip: {bind: %q, advertise: %q}
    nats: {embedded: true, gateway: %q}
    redis: {addrs: [%q], username: regiond, password_file: %q}
policies:
  - name: standard
    limits:
      - {name: log,    units: 100, per: 1h, scope: global}
      - {name: window, units: 100, per: 1h, algorithm: sliding_window, by: [user]}
      - {name: gcra,   units: 100, per: 1h, algorithm: gcra, burst: 100, by: [ip]}
tenants: {default: {policy: standard}}
`, addrs[0], addrs[1], addrs[2], addrs[2], gateway.FreeAddrs(t, 1)[0], redis, password))
	for range 2 { // the second process reads the totals of the first
		p := gateway.Run(t, dir, binary, syscall.SIGINT, "serve", "--config", file, "--region", "eu-west", "--redis-budget", "5s", "--deadline", "6s")
		p.Await(t, func() error { return call(http.MethodGet, "http://"+addrs[1]+"/readyz", "") })
		for range 3 {
			if err := call(http.MethodPost, "http://"+addrs[0]+"/v1/check", `{"tenant":"acme","cost":2,"dimensions":{"user":"1","ip":"::1"}}`); err != nil {
				t.Errorf("check: %v\n%s", err, p.Output())
			}
		}
		if err := call(http.MethodDelete, "http://"+addrs[1]+"/v1/usage/acme", ""); err != nil {
			t.Errorf("reset: %v\n%s", err, p.Output())
		}
		p.End(syscall.SIGINT)
	}
	refused, err := auditor.Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(refused) != 0 {
		t.Errorf("ACL LOG (%v): Redis has refused regiond %d commands:\n%v", err, len(refused), refused)
	}
}

// TestACLIsNotMore: commands that are not listed are refused, and so are other keys and
// connections without a user.
func TestACLIsNotMore(t *testing.T) {
	acl := readACL(t)
	addr, _ := documented(t, acl)
	for _, name := range commands(t, acl) {
		if strings.HasPrefix(name, "@") {
			t.Errorf("redis.acl grants the category %s; name the commands", name)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: addr, Username: "regiond", Password: secret})
	defer client.Close()
	for _, refused := range [][]any{{"FLUSHALL"}, {"CONFIG", "GET", "*"}, {"KEYS", "*"}, {"ACL", "LIST"}, {"GET", "session:1"}, {"CLIENT", "LIST"}} {
		if err := client.Do(t.Context(), refused...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%v is answered with %v, want NOPERM", refused, err)
		}
	}
	stranger := redis.NewClient(&redis.Options{Addr: addr})
	defer stranger.Close()
	if err := stranger.Get(t.Context(), "rl:{acme}:a").Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a name Redis answers %v, want NOAUTH", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// call expects a 2xx.
func call(method, url, body string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s answers %s", method, url, resp.Status)
	}
	return nil
}
