//go:build unix

// Package caddy_test runs the example with Debian's caddy, a real redis-server
// and the real regiond, and looks at it from where a customer stands: the far
// side of Caddy.
package caddy_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regiond/regiond/test/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBehindCaddy(t *testing.T) { example().Run(t) }

func example() gateway.Example {
	return gateway.Example{
		Launch: launch,
		Patient: []gateway.Edit{
			{Old: "dial_timeout 100ms", New: "dial_timeout 10s"},
			{Old: "response_header_timeout 100ms", New: "response_header_timeout 10s"},
		},
		Switch:     []gateway.Edit{{Old: "handle @away {\n\t\t\timport app", New: "handle @away {\n\t\t\timport refuse"}},
		Forgetful:  []gateway.Edit{{Old: "header_up -Cookie", New: "header_up -X-Tenant"}},
		AwayStatus: http.StatusServiceUnavailable,
		Wait:       100 * time.Millisecond,
	}
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) string {
	t.Helper()
	addr, _ := launchLogging(t, regiond, app, edits...)
	return addr
}

// launchLogging also returns the process, which logs to its standard error.
func launchLogging(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	dir := t.TempDir()
	addr := gateway.FreeAddrs(t, 1)[0]
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	conf := gateway.Render(t, "Caddyfile", dir, append([]gateway.Edit{
		// Other tests may have a Caddy of their own: no admin port, loopback only.
		{Old: "(app) {\n", New: "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n(app) {\n"},
		{Old: "\n:80 {", New: "\n:" + port + " {"},
		{Old: "reverse_proxy 127.0.0.1:8080", New: "reverse_proxy " + regiond},
		{Old: "reverse_proxy 127.0.0.1:3000", New: "reverse_proxy " + app},
	}, edits...)...)
	p := gateway.Run(t, dir, "caddy", syscall.SIGTERM, "run", "--adapter", "caddyfile", "--config", conf)
	p.Await(t, func() error { return gateway.Dial(addr) })
	return addr, p
}

// TestTheQuestion: method and path are the customer's, identity and address are
// Caddy's, and no secret of the customer goes along.
func TestTheQuestion(t *testing.T) {
	regiond := gateway.NewStandIn(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	c := example().Before(t, regiond.Addr, gateway.NewApp(t).Addr, example().Patient...)
	c.Ask(t, gateway.Question{
		Method: http.MethodPost, Path: "/login?next=%2Fhome", As: "acme", From: "127.0.0.2",
		Header: http.Header{
			"X-Tenant": {"globex", "hobby"}, "X_Tenant": {"globex"}, "X-Forwarded-For": {"198.51.100.1"},
			"X-Forwarded-Method": {"GET", "PUT"}, "X-Forwarded-Uri": {"/healthz", "/status"},
			"Authorization": {"Bearer b"}, "Cookie": {"c=d"},
		},
		Body: "user=u&password=p",
	}).Is(t, http.StatusOK)

	got := regiond.Requests()[0]
	if got.Method != http.MethodGet || got.URI != "/v1/authz" || got.Body != "" {
		t.Errorf("regiond was asked %s %s with body %q, want GET /v1/authz without one", got.Method, got.URI, got.Body)
	}
	for field, want := range map[string]string{
		"X-Tenant": "acme", "X-Forwarded-For": "127.0.0.2", "X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/login?next=%2Fhome",
	} {
		if values := got.Header.Values(field); len(values) != 1 || values[0] != want {
			t.Errorf("regiond was sent %s: %q, want %q alone", field, values, want)
		}
	}
	for _, field := range []string{"X_tenant", "Authorization", "Cookie"} {
		if values, ok := got.Header[field]; ok {
			t.Errorf("regiond was sent %s: %q, want none", field, values)
		}
	}
}

// TestWhatCountsAsAway: only a regiond that fails opens the gate.
func TestWhatCountsAsAway(t *testing.T) {
	example().TestAway(t, map[int]int{
		200: 200,
		500: 200, 502: 200, 503: 200, 504: 200,
		400: 500, 404: 500, 431: 500, 302: 500,
	})
}

func TestAnotherServerIsNotRegiond(t *testing.T) { example().TestImpostor(t) }

// TestABrokenAppIsNotARegiondAway: the error of the app is the customer's to see,
// and the request is not sent to it twice.
func TestABrokenAppIsNotARegiondAway(t *testing.T) {
	regiond := gateway.NewStandIn(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	c := example().Before(t, regiond.Addr, gateway.FreeAddrs(t, 1)[0], example().Patient...)
	c.Ask(t, gateway.Question{As: "acme"}).Is(t, http.StatusBadGateway)
}

// TestLogShowsWhatWentThroughUnlimited, by the fields that are missing.
func TestLogShowsWhatWentThroughUnlimited(t *testing.T) {
	broken := gateway.NewStandIn(t, http.StatusBadGateway, nil, "")
	addr, caddy := launchLogging(t, broken.Addr, gateway.NewApp(t).Addr, example().Patient...)
	gateway.Customer{Addr: addr, Prove: gateway.APIKey}.Exhaust(t, gateway.Question{As: "acme"}, 1)
	caddy.AwaitLines(t, 1, `"status":200,"resp_headers":{`)
	if lines := caddy.AwaitLines(t, 0, `"Ratelimit"`); len(lines) != 0 {
		t.Errorf("a request that nobody limited is logged with a Ratelimit field:\n%s", lines)
	}
}

// TestCaddyAcceptsTheFile as it is shipped, and finds its formatting right.
func TestCaddyAcceptsTheFile(t *testing.T) {
	path, err := exec.LookPath("caddy")
	if err != nil {
		t.Fatalf("%v: run scripts/test-deps, which installs it or says how", err)
	}
	home := t.TempDir()
	for _, args := range [][]string{{"fmt", "Caddyfile"}, {"validate", "--adapter", "caddyfile", "--config", "Caddyfile"}} {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_DATA_HOME="+home, "XDG_CONFIG_HOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("caddy %s: %v\n%s", args[0], err, out)
		}
	}
}
