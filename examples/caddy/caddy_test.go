//go:build unix

// Package caddy_test runs the example with Debian's caddy, a real redis-server
// and the real regiond.
package caddy_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestBehindCaddy(t *testing.T) { example().Run(t) }

func TestUnderLoad(t *testing.T) { example().TestUnderLoad(t, false) }

func example() gateway.Example {
	return gateway.Example{
		Launch: launch,
		LongTimeouts: []gateway.Edit{
			{Old: "dial_timeout 100ms", New: "dial_timeout 10s"},
			{Old: "response_header_timeout 100ms", New: "response_header_timeout 10s"},
		},
		Opposite:   []gateway.Edit{{Old: "handle @away {\n\t\t\timport app", New: "handle @away {\n\t\t\timport refuse"}},
		NoTenant:   []gateway.Edit{{Old: "header_up -Cookie", New: "header_up -X-Tenant"}},
		DownStatus: http.StatusServiceUnavailable,
		Timeout:    100 * time.Millisecond,
		// Only a regiond that fails makes Caddy fail open.
		Statuses: map[int]int{
			200: 200,
			500: 200, 502: 200, 503: 200, 504: 200,
			400: 500, 404: 500, 431: 500, 302: 500,
		},
		// Method and path are the customer's, identity and address are Caddy's, and no secret of the
		// customer is sent.
		Check: &gateway.Received{Method: http.MethodGet, URI: "/v1/authz", Header: http.Header{
			"X-Tenant": {"acme"}, "X-Forwarded-For": {"127.0.0.2"},
			"X-Forwarded-Method": {"POST"}, "X-Forwarded-Uri": {"/login?next=%2Fhome"},
		}},
		MoreFields:    true,
		Absent:        []string{"X_tenant", "Authorization", "Cookie"},
		Shed:          http.StatusTooManyRequests,
		ReadsDecision: true,
	}
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	dir := t.TempDir()
	addr := gateway.FreeAddrs(t, 1)[0]
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	conf := gateway.Render(t, "Caddyfile", dir, append([]gateway.Edit{
		// Other tests may run Caddy too: no admin port, loopback only.
		{Old: "\n{\n", New: "\n{\n\tadmin off\n\tdefault_bind 127.0.0.1\n"},
		{Old: "\n:80 {", New: "\n:" + port + " {"},
		{Old: "reverse_proxy 127.0.0.1:8080", New: "reverse_proxy " + regiond},
		{Old: "reverse_proxy 127.0.0.1:3000", New: "reverse_proxy " + app},
	}, edits...)...)
	p := gateway.Run(t, dir, "caddy", syscall.SIGTERM, "run", "--adapter", "caddyfile", "--config", conf)
	p.Await(t, func() error { return gateway.Dial(addr) })
	return addr, p
}

// TestManyFieldsOverTLS: a regiond with TLS offers HTTP/2, whose fields count 32 bytes more each. Caddy would not send those that
// exceed what regiond takes, and fail open.
func TestManyFieldsOverTLS(t *testing.T) {
	denies := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }))
	denies.EnableHTTP2, denies.Config.MaxHeaderBytes = true, 16<<10
	denies.StartTLS()
	defer denies.Close()
	app := gateway.NewApp(t)
	c, _ := example().InFrontOf(t, denies.URL, app.Addr, append(example().LongTimeouts,
		gateway.Edit{Old: "transport http {", New: "transport http {\n\t\t\t\ttls_insecure_skip_verify"})...)
	for _, fields := range []int{1, 1000} { // what the server takes is known after the first request
		c.Send(t, gateway.Request{As: "acme", Header: http.Header{"X": slices.Repeat([]string{"y"}, fields)}}).Is(t, http.StatusTooManyRequests)
	}
	if len(app.Requests()) != 0 {
		t.Error("the request reached the app")
	}
}

// TestBrokenApp: the app's error reaches the customer, and the request is not sent
// to the app twice.
func TestBrokenApp(t *testing.T) {
	regiond := gateway.NewServer(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	c, _ := example().InFrontOf(t, regiond.Addr, gateway.FreeAddrs(t, 1)[0], example().LongTimeouts...)
	c.Send(t, gateway.Request{As: "acme"}).Is(t, http.StatusBadGateway)
}

// TestLog: requests that passed unlimited lack the Ratelimit field.
func TestLog(t *testing.T) {
	broken := gateway.NewServer(t, http.StatusBadGateway, nil, "")
	c, caddy := example().InFrontOf(t, broken.Addr, gateway.NewApp(t).Addr, example().LongTimeouts...)
	c.Exhaust(t, gateway.Request{As: "acme"}, 1)
	caddy.AwaitLines(t, 1, `"status":200,"resp_headers":{`)
	if lines := caddy.AwaitLines(t, 0, `"Ratelimit"`); len(lines) != 0 {
		t.Errorf("an unlimited request is logged with a Ratelimit field:\n%s", lines)
	}
}

// TestFile: caddy accepts the file as shipped, and its formatting.
func TestFile(t *testing.T) {
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
