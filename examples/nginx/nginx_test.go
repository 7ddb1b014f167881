//go:build unix

// Package nginx_test runs the example with Debian's nginx, a real redis-server
// and the real regiond, and looks at it from where a customer stands: the far
// side of nginx.
package nginx_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regiond/regiond/test/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBehindNginx(t *testing.T) { example().Run(t) }

func example() gateway.Example {
	return gateway.Example{
		Launch:     launch,
		Patient:    []gateway.Edit{{Old: "100ms;", New: "10s;", Times: 3}},
		Switch:     []gateway.Edit{{Old: "return 200; # to fail closed: return 403;", New: "return 403;"}},
		Forgetful:  []gateway.Edit{{Old: "proxy_set_header X-Tenant          $tenant;", New: `proxy_set_header X-Tenant          "";`}},
		AwayStatus: 503,
		Wait:       100 * time.Millisecond,
	}
}

func launch(t *testing.T, regiond, app string, edits ...gateway.Edit) string {
	t.Helper()
	addr, _ := launchLogging(t, regiond, app, edits...)
	return addr
}

// launchLogging also returns the path of the access log.
func launchLogging(t *testing.T, regiond, app string, edits ...gateway.Edit) (addr, log string) {
	t.Helper()
	dir := t.TempDir()
	addr, log = gateway.FreeAddrs(t, 1)[0], filepath.Join(dir, "access.log")
	conf := gateway.Render(t, "nginx.conf", dir, append([]gateway.Edit{
		{Old: "pid /run/nginx.pid;", New: "pid " + dir + "/nginx.pid;"},
		{Old: "error_log /var/log/nginx/error.log warn;", New: "error_log stderr warn;"},
		{Old: "access_log /var/log/nginx/access.log", New: "access_log " + log},
		{Old: "http {\n", New: "http {\n" + tempPaths(dir)},
		{Old: "listen 80;", New: "listen " + addr + ";"},
		{Old: "server 127.0.0.1:8080;", New: "server " + regiond + ";"},
		{Old: "server 127.0.0.1:3000;", New: "server " + app + ";"},
	}, edits...)...)
	gateway.Run(t, dir, "nginx", syscall.SIGTERM, "-p", dir, "-c", conf, "-g", "daemon off;").
		Await(t, func() error { return gateway.Dial(addr) })
	return addr, log
}

// tempPaths keeps an nginx that is not root out of /var/lib/nginx.
func tempPaths(dir string) string {
	var b strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, "    %s_temp_path %s/%s;\n", kind, dir, kind)
	}
	return b.String()
}

// accessLog returns what nginx has logged once there are n lines: it writes a
// line after the answer has gone out.
func accessLog(t *testing.T, path string, n int) string {
	t.Helper()
	deadline := time.After(5 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(log), "\n") >= n {
			return string(log)
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the access log has less than %d lines:\n%s", n, log)
		}
	}
}
