//go:build unix

// Package deploy_test holds the files that operators copy against the programs
// that read them: the ACL against a real Redis and the real regiond.
package deploy_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/regiond/regiond/limiter/limitertest"
	"github.com/regiond/regiond/limiter/redisstore"
	"github.com/regiond/regiond/limiter/store"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
	"github.com/regiond/regiond/test/redisserver"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const secret = "s3cret"

// auditor is a user beside those of the file, for the test's own client, which may do everything.
const auditor = "user auditor on nopass ~* &* +@all\n"

// documented starts a Redis with the settings of docs/deploy.md and the users of
// redis.acl, and an auditor.
func documented(t *testing.T, acl string) (addr string, client *redis.Client) {
	t.Helper()
	s := serverWith(t, documentedSettings(t), "/etc/redis/users.acl", acl)
	s.start(t)
	return s.addr, s.auditor
}

// documentedSettings are those of docs/deploy.md.
func documentedSettings(t *testing.T) string {
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
	return settings
}

// shipped is a Redis by a shipped file of settings and one of users.
type shipped struct {
	dir, file, addr string
	auditor         *redis.Client
}

// serverWith prepares one; the settings name the file of users as aclFile.
func serverWith(t *testing.T, settings, aclFile, acl string) *shipped {
	t.Helper()
	dir := t.TempDir()
	s := &shipped{dir: dir, file: filepath.Join(dir, "redis.conf"), addr: gateway.FreeAddrs(t, 1)[0]}
	users := filepath.Join(dir, "users.acl")
	write(t, users, acl+auditor)
	write(t, s.file, gateway.Apply(t, "the settings", settings, gateway.Edit{Old: aclFile, New: users}))
	s.auditor = redis.NewClient(&redis.Options{Addr: s.addr, Username: "auditor", Password: "any"})
	t.Cleanup(func() { s.auditor.Close() })
	return s
}

func (s *shipped) start(t *testing.T) *gateway.Process {
	t.Helper()
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	p := gateway.Run(t, s.dir, redisserver.Binary(t), syscall.SIGTERM, s.file, "--bind", host, "--port", port, "--dir", s.dir)
	p.Await(t, func() error { return s.auditor.Ping(t.Context()).Err() })
	return p
}

// dump is all that the server holds, by key.
func (s *shipped) dump(t *testing.T) map[string]string {
	t.Helper()
	keys, err := s.auditor.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, key := range keys {
		if all[key], err = s.auditor.Dump(t.Context(), key).Result(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestRestartKeepsData: Redis 7.0 to 7.2 replays what scripts wrote as user default, so what that user may not do is lost in
// a restart. For each file of users that is shipped, made or shown.
func TestRestartKeepsData(t *testing.T) {
	for _, row := range []struct {
		name, settings, aclFile string
		users                   func(t *testing.T) (acl, password string)
	}{
		{"docs/deploy.md", documentedSettings(t), "/etc/redis/users.acl", func(t *testing.T) (string, string) { return readACL(t), secret }},
		{"docker-compose.multi.yml", gateway.Read(t, "redis.conf", gateway.Edit{Old: "dir /data", New: "dir ."}), "/run/secrets/redis-acl", composeUsers},
	} {
		t.Run(row.name, func(t *testing.T) {
			acl, password := row.users(t)
			s := serverWith(t, row.settings, row.aclFile, acl)
			p := s.start(t)
			charge(t, s.addr, password)
			before := s.dump(t)
			if len(before) < 5 {
				t.Fatalf("only %d keys were written", len(before))
			}
			p.End(syscall.SIGTERM)
			s.start(t)
			if after := s.dump(t); !maps.Equal(before, after) {
				t.Errorf("of %d keys a restart left %d, or less of them", len(before), len(after))
			}
			users, err := s.auditor.Do(t.Context(), "ACL", "LIST").StringSlice()
			if err != nil || !slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(u, "user default off ") }) {
				t.Errorf("user default is not disabled (%v): %q", err, users)
			}
		})
	}
}

// composeUsers are what scripts/compose-keys makes.
func composeUsers(t *testing.T) (acl, password string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "../scripts/compose-keys", dir).CombinedOutput(); err != nil {
		t.Fatalf("compose-keys: %v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "redis.password"))
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Read(t, filepath.Join(dir, "redis.acl")), strings.TrimSpace(string(text))
}

// charge has regiond's store write keys of each kind.
func charge(t *testing.T, addr, password string) {
	t.Helper()
	s, err := redisstore.New(redisstore.Options{
		Addrs: []string{addr}, Budget: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Credentials: func() (string, string) { return "regiond", password },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := store.NewKeyPlan([]*quota.Limit{
		{Name: "log", Units: 100, Window: time.Hour},
		{Name: "window", Units: 100, Window: time.Hour, Algorithm: quota.SlidingWindow},
		{Name: "level", Units: 100, Window: time.Hour, Algorithm: quota.GCRA},
		{Name: "global", Units: 100, Window: time.Hour, Scope: quota.ScopeGlobal},
	})
	for i := range 50 {
		call := limitertest.CallOf(plan, "acme", 1)
		call.Counters = plan.AppendCounters(nil, call.Keys, "acme", "standard")
		if i == 0 {
			call.Record, call.Print = "rl:{acme}:i:k", "p"
		}
		if _, err := limitertest.DecideOne(s, call); err != nil {
			t.Fatal(err)
		}
	}
}

// commands are what redis.acl grants to regiond.
func commands(t *testing.T, acl string) (granted []string) {
	t.Helper()
	_, rules, _ := strings.Cut(acl, "user regiond ")
	for word := range strings.FieldsSeq(rules) {
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
	redis, client := documented(t, readACL(t))
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
	refused, err := client.Do(t.Context(), "ACL", "LOG").Slice()
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
	for _, password := range []string{"", "any", secret} {
		if err := stranger.Do(t.Context(), "AUTH", "default", password).Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGPASS") {
			t.Errorf("user default with password %q is answered with %v, want WRONGPASS", password, err)
		}
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
