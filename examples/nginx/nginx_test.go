//go:build unix

// Package nginx_test runs the example with Debian's nginx, a real redis-server
// and the real regiond.
package nginx_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestBehindNginx(t *testing.T) { example().Run(t) }

func TestUnderLoad(t *testing.T) { example().TestUnderLoad(t, true) }

func example() gateway.Example {
	return gateway.Example{
		Launch:       launch,
		LongTimeouts: []gateway.Edit{{Old: "100ms;", New: "10s;", Times: 3}},
		Opposite:     []gateway.Edit{{Old: "return 200; # to fail closed: return 403;", New: "return 403;"}},
		NoTenant:     []gateway.Edit{{Old: "proxy_set_header X-Tenant          $tenant;", New: `proxy_set_header X-Tenant          "";`}},
		DownStatus:   http.StatusServiceUnavailable,
		Timeout:      100 * time.Millisecond,
		// Only a regiond that fails makes nginx fail open. Any other status is a mistake of configuration.
		Statuses: map[int]int{
			200: 200,
			500: 200, 502: 200, 503: 200, 504: 200,
			400: 500, 404: 500, 429: 500, 431: 500, 302: 500,
		},
		// Nothing of the customer's reaches regiond unless nginx puts it there.
		Check: &gateway.Received{Method: http.MethodGet, Host: "regiond", URI: "/v1/authz-nginx", Header: http.Header{
			"X-Tenant": {"acme"}, "X-Forwarded-For": {"127.0.0.2"},
			"X-Original-Method": {"POST"}, "X-Original-Uri": {"/login?next=%2Fhome"},
		}},
		Shed: http.StatusForbidden,
	}
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	dir := t.TempDir()
	addr := gateway.FreeAddrs(t, 1)[0]
	conf := gateway.Render(t, "nginx.conf", dir, append([]gateway.Edit{
		{Old: "pid /run/nginx.pid;", New: "pid " + dir + "/nginx.pid;"},
		{Old: "error_log /var/log/nginx/error.log warn;", New: "error_log stderr warn;"},
		{Old: "access_log /var/log/nginx/access.log", New: "access_log /dev/stderr"},
		{Old: "http {\n", New: "http {\n" + tempPaths(dir)},
		{Old: "listen 80;", New: "listen " + addr + ";"},
		{Old: "server 127.0.0.1:8080;", New: "server " + regiond + ";"},
		{Old: "server 127.0.0.1:3000;", New: "server " + app + ";"},
	}, edits...)...)
	p := gateway.Run(t, dir, "nginx", syscall.SIGTERM, "-p", dir, "-c", conf, "-g", "daemon off;")
	p.Await(t, func() error { return gateway.Dial(addr) })
	return addr, p
}

// tempPaths keeps an nginx that is not root out of /var/lib/nginx.
func tempPaths(dir string) string {
	var b strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, "    %s_temp_path %s/%s;\n", kind, dir, kind)
	}
	return b.String()
}

// TestDecisionID: the id of a refusal reaches the customer and the log, so that both can be traced.
func TestDecisionID(t *testing.T) {
	const id = "8f1c2b90d4e65a37b0c94d1e7f236a58"
	denies := gateway.NewServer(t, http.StatusForbidden, http.Header{"X-Regiond-Decision": {"deny"}, "X-Regiond-Decision-Id": {id}}, "")
	customer, nginx := example().InFrontOf(t, denies.Addr, gateway.NewApp(t).Addr, example().LongTimeouts...)
	got := customer.Send(t, gateway.Request{As: "acme"})
	got.Is(t, http.StatusTooManyRequests)
	if has := got.Header.Get("X-Regiond-Decision-Id"); has != id {
		t.Errorf("the id is %q, want %s", has, id)
	}
	nginx.AwaitLines(t, 1, "decision=deny id="+id+" ")
}

// TestLog: requests that passed unlimited have decision=none.
func TestLog(t *testing.T) {
	allows := gateway.NewServer(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	broken := gateway.NewServer(t, http.StatusBadGateway, nil, "")
	for _, c := range []struct{ regiond, decision string }{{allows.Addr, "allow"}, {broken.Addr, "none"}} {
		customer, nginx := example().InFrontOf(t, c.regiond, gateway.NewApp(t).Addr, example().LongTimeouts...)
		customer.Exhaust(t, gateway.Request{As: "acme"}, 3)
		customer.Send(t, gateway.Request{As: "guessed"}).Is(t, http.StatusUnauthorized)
		nginx.AwaitLines(t, 3, "tenant=acme decision="+c.decision+" ")
		nginx.AwaitLines(t, 1, "401 tenant= decision=none ")
	}
}
