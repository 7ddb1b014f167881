package daemon

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
	"github.com/regiond/regiond/region/warnings"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/redisserver"
)

// limited is the town with another limit.
func limited(t *testing.T, topology string, units int) string {
	t.Helper()
	return replace(t, topology, "units: 5,", fmt.Sprintf("units: %d,", units))
}

// inForce waits until a topology with that limit is in force, down to the door.
func (p *program) inForce(t *testing.T, units int64) {
	t.Helper()
	capture.Eventually(t, func() error {
		if d := p.get(t, "/v1/usage/nobody").decision(t); d.Limit != units {
			return fmt.Errorf("the limit in force is %d, not %d", d.Limit, units)
		}
		if read := p.daemon.config.Load().topology.Policies[0].Limits[0].Units; read != units { // stored last
			return fmt.Errorf("the topology in force has the limit %d, not %d", read, units)
		}
		return nil
	})
}

// TestReloadOnRedis: usage that Redis holds is judged by the new limit, in each
// process that reads the file.
func TestReloadOnRedis(t *testing.T) {
	p := start(t, onRedis(redisserver.Start(t, redisserver.Options{}).Addr()))
	q := startFile(t, p.file, "--instance", "second")
	for range 4 {
		p.check(t, "acme").is(t, http.StatusOK)
	}
	p.rewrite(t, "units: 5,", "units: 4,")
	p.inForce(t, 4)
	q.inForce(t, 4)
	p.check(t, "acme").is(t, http.StatusTooManyRequests)
	q.check(t, "acme").is(t, http.StatusTooManyRequests)
	p.rewrite(t, "units: 4,", "units: 6,")
	p.inForce(t, 6)
	q.inForce(t, 6)
	p.check(t, "acme").is(t, http.StatusOK)
	q.check(t, "acme").is(t, http.StatusOK)
	p.check(t, "acme").is(t, http.StatusTooManyRequests)

	// An emptied file is no password, and what is in force stays.
	empty := filepath.Join(t.TempDir(), "password")
	write(t, empty, "\n")
	p.rewrite(t, "redis: {", "redis: {password_file: "+empty+", ")
	if said := fmt.Sprint(p.log.Await(t, "reload: the configuration in force stays", 1)["error"]); !strings.Contains(said, empty+" is empty") {
		t.Errorf("the log says %s", said)
	}
	p.check(t, "other").is(t, http.StatusOK)
}

// TestHangUp: SIGHUP reads the file again whether or not it changed, and both
// metrics follow.
func TestHangUp(t *testing.T) {
	p := start(t, inMemory())
	p.signals <- syscall.SIGHUP
	if line := p.log.Await(t, "reloaded", 1); line["why"] != "SIGHUP" || line["config_hash"] != p.daemon.hash() {
		t.Errorf("the log says %v", line)
	}
	s := p.metrics(t)
	if n := s.series[`regiond_config_reloads_total{result="ok"}`]; n != 1 {
		t.Errorf("%v reloads are counted, want 1", n)
	}
	before := `regiond_config_info{hash="` + p.daemon.hash() + `"}`
	if s.series[before] != 1 {
		t.Errorf("%s is not exported", before)
	}
	p.rewrite(t, "units: 5,", "units: 6,")
	p.signals <- syscall.SIGHUP
	p.inForce(t, 6)
	s = p.metrics(t)
	after := `regiond_config_info{hash="` + p.daemon.hash() + `"}`
	if _, still := s.series[before]; after == before || still || s.series[after] != 1 {
		t.Errorf("%s is followed by %s in\n%s", before, after, s.text)
	}
}

// TestAFileWithAMistake changes nothing, says where the mistake is, and is
// counted; the next good one is taken.
func TestAFileWithAMistake(t *testing.T) {
	p := start(t, inMemory())
	whole := limited(t, inMemory(), 7)
	half := whole[:strings.Index(whole, "per: 1h")] // in the middle of writing
	n := 0
	for i, c := range []struct {
		content, says string
		reloads       int
	}{
		{half, "topology.yaml:9:32", 1},
		{replace(t, inMemory(), "units: 5,", "units: 0,"), "topology.yaml:9:31", 1},
		{replace(t, inMemory(), "name: town", "name: village"), `no region "town"; its regions are village`, 1},
		{"", "topology.yaml:1:1", 1},
		// Once more, since a file that only this topology names may have changed since it was read.
		{inMemory() + "access: {tokens_file: " + filepath.Join(filepath.Dir(p.file), "absent") + "}\n", "absent", 2},
	} {
		put(t, p.file, c.content)
		n += c.reloads
		line := p.log.Await(t, "reload: the configuration in force stays", n)
		if said, _ := line["error"].(string); !strings.Contains(said, c.says) {
			t.Errorf("of mistake %d the log says %q, not %q", i, said, c.says)
		}
		if line["config_hash"] != p.daemon.hash() {
			t.Errorf("of mistake %d the log names hash %v, in force is %s", i, line["config_hash"], p.daemon.hash())
		}
		if got := p.metrics(t).series[`regiond_config_reloads_total{result="failed"}`]; got != float64(n) {
			t.Errorf("after mistake %d, %v failed reloads are counted, want %d", i, got, n)
		}
		p.inForce(t, 5)
		p.ask(t, http.MethodPost, "/v1/check", fmt.Sprintf(`{"tenant":"t%d"}`, i)).is(t, http.StatusOK)
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	p.log.Await(t, "reload: the configuration in force stays", n+1)
	put(t, p.file, whole)
	p.inForce(t, 7)
}

// tokenLine is a line of a tokens file.
func tokenLine(name, secret string, rights ...string) string {
	return fmt.Sprintf("%s %x %s\n", name, sha256.Sum256([]byte(secret)), strings.Join(rights, " "))
}

func TestTokensAreReplaced(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens") // not beside topology.yaml
	write(t, tokens, tokenLine("gateway", "old-secret"))
	p := start(t, inMemory()+"access: {tokens_file: "+tokens+"}\n")
	ask := func(secret string) int {
		return p.ask(t, http.MethodPost, "/v1/check", `{"tenant":"acme"}`, "Authorization: Bearer "+secret).status
	}
	if old, none := ask("old-secret"), p.check(t, "acme").status; old != 200 || none != 401 {
		t.Fatalf("with the token %d, without %d", old, none)
	}
	put(t, tokens, tokenLine("gateway", "new-secret"))
	capture.Eventually(t, func() error {
		if s := ask("new-secret"); s != http.StatusOK {
			return fmt.Errorf("the new token gets %d", s)
		}
		return nil
	})
	if s := ask("old-secret"); s != http.StatusUnauthorized {
		t.Errorf("the old token still gets %d", s)
	}
	// An empty list must not mean that everybody may.
	put(t, tokens, "# all gone\n")
	p.log.Await(t, "reload: the configuration in force stays", 1)
	if s := p.check(t, "acme").status; s != http.StatusUnauthorized {
		t.Errorf("an empty tokens file lets everyone in: %d", s)
	}
}

func TestSettingsThatFollow(t *testing.T) {
	p := start(t, inMemory())
	p.rewrite(t, "regions:\n", "log_level: debug\nheaders: {format: triplet}\nregions:\n")
	capture.Eventually(t, func() error {
		if l := p.daemon.level.Level(); l != slog.LevelDebug {
			return fmt.Errorf("the log level is %v", l)
		}
		return nil
	})
	p.log.Await(t, "reloaded", 1)
	if h := p.check(t, "acme").header; h.Get("RateLimit-Remaining") != "4" || h.Get("RateLimit") != "" {
		t.Errorf("after the format became triplet the header is %v", h)
	}
	p.ask(t, http.MethodPost, "/v1/authz/signin", "", "X-Tenant: globex").is(t, http.StatusOK)
	p.rewrite(t, "path: /status, skip: true", "path: /signin, skip: true")
	p.log.Await(t, "reloaded", 2)
	for range 6 { // more than there is: it is skipped now
		p.ask(t, http.MethodPost, "/v1/authz/signin", "", "X-Tenant: globex").is(t, http.StatusOK)
	}
	if left := p.left(t, "globex"); left != 4 {
		t.Errorf("%d of 5 remain, want 4: a skipped route costs nothing", left)
	}
}

// TestWhatNeedsARestart is logged at each reload for as long as it is true, and no
// longer; so is which limits start anew. A second region is refused.
func TestWhatNeedsARestart(t *testing.T) {
	p := start(t, inMemory())
	const message = "these changes need a restart"
	const fields = "cluster, rls/compat, regions/town/http, regions/town/admin"
	p.rewrite(t, "regions:\n  - name: town\n    http: 127.0.0.1:0\n    admin: 127.0.0.1:0", "cluster: staging\nrls: {compat: true}\n"+
		"regions:\n  - name: town\n    http: 127.0.0.1:18081\n    admin: 127.0.0.1:19091")
	if line := p.log.Await(t, message, 1); line["fields"] != fields {
		t.Errorf("the log says %v", line)
	}
	p.rewrite(t, "{embedded: true}", `{addrs: ["127.0.0.1:6379"]}`)
	if line := p.log.Await(t, message, 2); line["fields"] != fields+", regions/town/redis" {
		t.Errorf("the log says %v", line)
	}
	p.admin.get(t, "/readyz").is(t, http.StatusOK) // still where it was
	p.rewrite(t, "units: 5,", "units: 6,")
	p.log.Await(t, message, 3) // nothing new, and still not so
	put(t, p.file, limited(t, inMemory(), 7))
	p.log.Await(t, "reloaded", 4)
	p.inForce(t, 7)
	p.rewrite(t, "units: 7,", "units: 8, algorithm: sliding_window,")
	p.inForce(t, 8)
	p.log.Await(t, "reloaded", 5)
	if !strings.Contains(p.log.String(), ": these limits start anew, ") {
		t.Errorf("the log does not say that a limit starts anew:\n%s", p.log)
	}
	// A process that was started alone has no way to others: with a global limit held whole it would promise what is not its own.
	before := p.daemon.hash()
	p.rewrite(t, "\npolicies:", "\n  - {name: city, http: \"127.0.0.1:0\"}\npolicies:")
	line := p.log.Await(t, "reload: the configuration in force stays", 1)
	if why := fmt.Sprint(line["error"]); !strings.Contains(why, "a second region needs a restart") || p.daemon.hash() != before {
		t.Errorf("refused for %q, hash %s before and %s now", why, before, p.daemon.hash())
	}
	p.stop()
	if n := len(p.log.Lines(message)); n != 3 {
		t.Errorf("a restart is asked for %d times, want 3: what is in the file is what runs again", n)
	}
}

// TestFilesThatNeedARestart: each file that is read once is named when its contents
// change, and no longer when they are back; none that is read again when it is needed.
func TestFilesThatNeedARestart(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	top := &region.Topology{Regions: []region.Region{{
		Name:   "town",
		Gossip: &region.Gossip{KeyFile: at("live")},
		Redis:  region.Redis{PasswordFile: at("live"), SentinelPasswordFile: at("watch"), TLS: &region.TLS{CAFile: at("ca"), CertFile: at("live"), KeyFile: at("live")}},
		NATS:   region.NATS{CredsFile: at("live"), TLS: &region.TLS{CAFile: at("ca2"), CertFile: at("live"), KeyFile: at("live")}},
	}}}
	for _, name := range []string{"live", "watch", "ca", "ca2"} {
		write(t, at(name), "old")
	}
	read := func() *config {
		return &config{topology: top, region: &top.Regions[0], once: readOnce(&top.Regions[0])}
	}
	started := read()
	for name, want := range map[string]string{
		"watch": "regions/town/redis/sentinel_password_file",
		"ca":    "regions/town/redis/tls/ca_file", "ca2": "regions/town/nats/tls/ca_file", "live": "",
	} {
		write(t, at(name), "new")
		if got := strings.Join(read().needRestart(started), ", "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		write(t, at(name), "old")
		if got := read().needRestart(started); len(got) > 0 {
			t.Errorf("%s, with the old contents back: %v", name, got)
		}
	}
}

// startAnew is what warnings.OfReload names.
func startAnew(before, after *region.Topology) string {
	var names []string
	for _, w := range warnings.OfReload(before, after) {
		names = append(names, w.Detail[strings.LastIndex(w.Detail, ": ")+len(": "):])
	}
	return strings.Join(names, "; ")
}

// fileOf is the compiled file of a domain.
type fileOf struct{ policy quota.Policy }

func (f fileOf) Policy() *quota.Policy { return &f.policy }

// TestStartAnew: what no tenant can have used yet is not named, and limits of a domain are if they are counted otherwise.
// TestStartAnewIsWhatStartsAnew has all else.
func TestStartAnew(t *testing.T) {
	log := func(name string) quota.Limit { return quota.Limit{Name: name, Units: 5, Window: time.Minute} }
	domain := func(limits ...quota.Limit) *region.Topology {
		file := fileOf{quota.Policy{Name: "d", Limits: limits}}
		return &region.Topology{RLS: region.RLS{Domains: []region.Domain{{Name: "d", Rules: file}}}}
	}
	window := log("a")
	window.Algorithm = quota.SlidingWindow
	for _, row := range []struct {
		why           string
		before, after *region.Topology
		want          string
	}{
		{"above the units of a log", domain(log("a"), log("b")), domain(window, log("b")), "d.a"},
		{"another descriptor", domain(log("a")), domain(log("b")), ""},
		{"one more domain", &region.Topology{}, domain(log("a")), ""},
	} {
		if got := startAnew(row.before, row.after); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
	policies := func(names ...string) *region.Topology {
		top := &region.Topology{}
		for _, name := range names {
			top.Policies = append(top.Policies, quota.Policy{Name: name, Limits: []quota.Limit{log("a"), log("b")}})
		}
		return top
	}
	for _, row := range []struct{ why, before, after, want string }{
		{"a policy renamed", "p q", "p r", "r.a, r.b"},
		{"one more policy", "p q", "p q r", ""},
		{"a policy removed", "p q", "p", ""},
	} {
		if got := startAnew(policies(strings.Fields(row.before)...), policies(strings.Fields(row.after)...)); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}

// TestTenantsStartAnew: a tenant that gets another policy by a reload starts anew, those that are not listed by default among them. They
// are one line, however many they are.
func TestTenantsStartAnew(t *testing.T) {
	top := func(policies, tenants string) *region.Topology {
		top := &region.Topology{Tenants: region.Tenants{Listed: map[string]quota.Tenant{}}}
		for _, name := range strings.Fields(policies) {
			top.Policies = append(top.Policies, quota.Policy{Name: name, Limits: []quota.Limit{{Name: "a", Units: 5, Window: time.Minute}}})
		}
		for _, pair := range strings.Fields(tenants) {
			id, policy, _ := strings.Cut(pair, "=")
			if top.Tenants.Listed[id] = (quota.Tenant{Policy: policy}); id == region.DefaultTenant {
				top.Tenants.Default = &quota.Tenant{Policy: policy}
				delete(top.Tenants.Listed, id)
			}
		}
		return top
	}
	many := func(policy string) (tenants string) {
		for i := range 1000 {
			tenants += fmt.Sprintf(" t%03d=%s", i, policy)
		}
		return tenants
	}
	for _, row := range []struct{ why, policies, before, nowPolicies, after, want string }{
		{"the same", "p q", "x=p default=q", "p q", "x=p default=q", ""},
		{"a tenant is moved", "p q", "x=p y=q z=p", "p q", "z=q x=q y=q", "x, z"},
		{"to a new policy", "p", "x=p y=p", "p q", "x=q y=p", "x"},
		{"its policy is renamed", "p", "x=p", "q", "x=q", "q.a"},
		{"it gets another policy, and its own is gone", "p q", "x=p", "q", "x=q", "x"},
		{"it is listed now", "p q", "default=p", "p q", "x=q y=p default=p", "x"},
		{"and no longer", "p q", "x=q y=p default=p", "p q", "default=p", "x"},
		{"those that are not listed", "p q", "x=q default=p", "p q", "x=q default=q", "default"},
		{"the first default", "p q", "x=q", "p q", "x=q default=q", ""},
		{"a thousand", "p q", many("p"), "p q", many("q"), "t000, t001, t002, t003, t004, t005, t006, t007, t008, t009, and 990 more"},
	} {
		if got := startAnew(top(row.policies, row.before), top(row.nowPolicies, row.after)); got != row.want {
			t.Errorf("%s: %q, want %q", row.why, got, row.want)
		}
	}
}
