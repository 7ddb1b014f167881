//go:build linux

// Package haproxy_test runs the example with Debian's haproxy, a real redis-server
// and the real regiond, and looks at it from where a customer stands: the far
// side of HAProxy. Linux only, since abstract sockets are.
package haproxy_test

import (
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regiond/regiond/test/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBehindHAProxy(t *testing.T) { example().Run(t) }

func example() gateway.Example {
	return gateway.Example{
		Launch:     launch,
		Patient:    []gateway.Edit{{Old: " 100ms\n", New: " 10s\n", Times: 3}},
		Switch:     []gateway.Edit{{Old: "#http-request return status 503", New: "http-request return status 503"}},
		Forgetful:  []gateway.Edit{{Old: "http-request lua.regiond", New: "http-request unset-var(txn.tenant)\n    http-request lua.regiond"}},
		AwayStatus: 503,
		Wait:       100 * time.Millisecond,
	}
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) string {
	t.Helper()
	addr, _ := launchLogging(t, regiond, app, edits...)
	return addr
}

// launchLogging also returns the process, which logs to its standard output here.
func launchLogging(t *testing.T, regiond, app string, edits ...gateway.Edit) (string, *gateway.Process) {
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

// TestNothingOfTheClientReachesRegiond: what regiond is asked consists of what
// HAProxy knows, to the last field.
func TestNothingOfTheClientReachesRegiond(t *testing.T) {
	regiond := gateway.NewStandIn(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	c := example().Before(t, regiond.Addr, gateway.NewApp(t).Addr, example().Patient...)
	c.Ask(t, gateway.Question{
		Method: http.MethodPost, Path: "/login?next=%2Fhome", As: "acme", From: "127.0.0.2",
		Header: http.Header{
			"X-Tenant": {"globex", "hobby"}, "X-Forwarded-For": {"198.51.100.1"}, "X-Forwarded-Uri": {"/healthz"},
			"Idempotency-Key": {"k"}, "Authorization": {"Bearer b"}, "Cookie": {"c=d"}, "X-Anything": {"e"},
		},
		Body: "user=u&password=p",
	}).Is(t, http.StatusOK)

	got := regiond.Requests()[0]
	if got.Method != http.MethodGet || got.Host != "regiond" || got.URI != "/v1/authz" || got.Body != "" {
		t.Errorf("regiond was asked %s %s at host %s with body %q, want GET /v1/authz at regiond without one", got.Method, got.URI, got.Host, got.Body)
	}
	want := http.Header{
		"User-Agent": {"HAProxy"}, "Accept": {"*/*"}, // its client's own
		"X-Tenant": {"acme"}, "X-Forwarded-For": {"127.0.0.2"},
		"X-Forwarded-Method": {"POST"}, "X-Forwarded-Uri": {"/login?next=%2Fhome"},
	}
	if !maps.EqualFunc(got.Header, want, slices.Equal) {
		t.Errorf("regiond was sent the fields\n%v, want\n%v", got.Header, want)
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

// TestLogSaysWhatWasDecided: an operator who looks for requests that went through
// unlimited finds them by decision=away.
func TestLogSaysWhatWasDecided(t *testing.T) {
	decided := gateway.NewStandIn(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	broken := gateway.NewStandIn(t, http.StatusBadGateway, nil, "")
	for _, c := range []struct{ regiond, decision string }{{decided.Addr, "allow"}, {broken.Addr, "away"}} {
		addr, haproxy := launchLogging(t, c.regiond, gateway.NewApp(t).Addr, example().Patient...)
		customer := gateway.Customer{Addr: addr, Prove: gateway.APIKey}
		customer.Exhaust(t, gateway.Question{As: "acme"}, 3)
		customer.Ask(t, gateway.Question{As: "guessed"}).Is(t, http.StatusUnauthorized)
		haproxy.AwaitLines(t, 3, " 200 tenant=acme decision="+c.decision+" ")
		haproxy.AwaitLines(t, 1, " 401 tenant=- decision=- ")
	}
}

// TestFilesAreWhereTheReadmePutsThem: haproxy itself checks the file as it is
// shipped, once its paths are this folder's.
func TestFilesAreWhereTheReadmePutsThem(t *testing.T) {
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
