//go:build linux

// Package haproxy_test runs the example with Debian's haproxy, a real redis-server
// and the real regiond. Linux only, since abstract sockets are.
package haproxy_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestBehindHAProxy(t *testing.T) { example().Run(t) }

func TestUnderLoad(t *testing.T) { example().TestUnderLoad(t, false) }

func example() gateway.Example {
	return gateway.Example{
		Launch:       launch,
		LongTimeouts: []gateway.Edit{{Old: " 100ms\n", New: " 10s\n", Times: 3}},
		Opposite:     []gateway.Edit{{Old: "#http-request return status 503", New: "http-request return status 503"}},
		NoTenant:     []gateway.Edit{{Old: "http-request lua.regiond", New: "http-request unset-var(txn.tenant)\n    http-request lua.regiond"}},
		DownStatus:   http.StatusServiceUnavailable,
		Timeout:      100 * time.Millisecond,
		// Only a regiond that fails makes HAProxy fail open.
		Statuses: map[int]int{
			200: 200,
			500: 200, 502: 200, 503: 200, 504: 200,
			400: 500, 404: 500, 431: 500, 302: 500,
		},
		// Nothing of the customer's reaches regiond unless HAProxy puts it there.
		Check: &gateway.Received{Method: http.MethodGet, Host: "regiond", URI: "/v1/authz", Header: http.Header{
			"User-Agent": {"HAProxy"}, "Accept": {"*/*"}, // of HAProxy's HTTP client
			"X-Tenant": {"acme"}, "X-Forwarded-For": {"127.0.0.2"},
			"X-Forwarded-Method": {"POST"}, "X-Forwarded-Uri": {"/login?next=%2Fhome"},
		}},
		Shed:          http.StatusTooManyRequests,
		ReadsDecision: true,
	}
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
	t.Helper()
	dir := t.TempDir()
	addr := gateway.FreeAddrs(t, 1)[0]
	socket := "abns@regiond-" + strings.ReplaceAll(addr, ":", "-")
	lua := gateway.Render(t, "regiond.lua", dir,
		gateway.Edit{Old: `"abns@regiond"`, New: `"` + socket + `"`},
		gateway.Edit{Old: "timeout = 1000,", New: "timeout = 30000,"},
	)
	tenants := gateway.Render(t, "tenants.map", dir)
	conf := gateway.Render(t, "haproxy.cfg", dir, append([]gateway.Edit{
		{Old: "    user haproxy\n    group haproxy\n"},
		{Old: "lua-load /etc/haproxy/regiond.lua", New: "lua-load " + lua},
		{Old: "map(/etc/haproxy/tenants.map)", New: "map(" + tenants + ")"},
		{Old: "log /dev/log local0", New: "log stdout format raw local0"},
		{Old: "bind :80 ", New: "bind " + addr + " "},
		{Old: "bind abns@regiond", New: "bind " + socket},
		{Old: "server regiond 127.0.0.1:8080", New: "server regiond " + regiond},
		{Old: "server app 127.0.0.1:3000", New: "server app " + app},
	}, edits...)...)
	p := gateway.Run(t, dir, "haproxy", syscall.SIGTERM, "-db", "-f", conf)
	p.Await(t, func() error { return gateway.Dial(addr) })
	return addr, p
}

// TestLog: requests that passed unlimited have decision=away.
func TestLog(t *testing.T) {
	allows := gateway.NewServer(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	broken := gateway.NewServer(t, http.StatusBadGateway, nil, "")
	for _, c := range []struct{ regiond, decision string }{{allows.Addr, "allow"}, {broken.Addr, "away"}} {
		customer, haproxy := example().InFrontOf(t, c.regiond, gateway.NewApp(t).Addr, example().LongTimeouts...)
		customer.Exhaust(t, gateway.Request{As: "acme"}, 3)
		customer.Send(t, gateway.Request{As: "guessed"}).Is(t, http.StatusUnauthorized)
		haproxy.AwaitLines(t, 3, " 200 tenant=acme decision="+c.decision+" ")
		haproxy.AwaitLines(t, 1, " 401 tenant=- decision=- ")
	}
}

// TestFile: haproxy accepts the file as shipped, with this folder's paths.
func TestFile(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := gateway.Render(t, "haproxy.cfg", dir,
		gateway.Edit{Old: "lua-load /etc/haproxy/", New: "lua-load " + here + "/"},
		gateway.Edit{Old: "map(/etc/haproxy/", New: "map(" + here + "/"},
		gateway.Edit{Old: "    user haproxy\n    group haproxy\n"},
	)
	p := gateway.Run(t, dir, "haproxy", syscall.SIGTERM, "-c", "-f", conf)
	p.AwaitLines(t, 1, "Configuration file is valid")
}
