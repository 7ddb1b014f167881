//go:build unix

package nginx_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stack is the example as an operator runs it, each part on a free port:
//
//	client ── nginx ── app
//	            └───── regiond ── redis-server
type stack struct {
	gateway
	app     *app
	regiond *process
	readyz  string // URL of regiond's readiness
	restart func() // a new regiond in the place of one that was killed
}

// gateway is an nginx with the example's configuration.
type gateway struct {
	addr string // where customers come in
	logs string // path of the access log
}

// edit changes a shipped file for the test. Its old text must stand there as
// often as the edit says, so that what is tested remains what is shipped.
type edit struct {
	old, new string
	times    int // 0 means once
}

// patient replaces the example's short timeouts. They are for an operator; on a
// machine that runs other tests, a pause of the scheduler is not an outage.
var patient = edit{old: "100ms;", new: "10s;", times: 3}

// start runs the whole example with the shipped files but for their addresses,
// and the edits of nginx.conf. Everything ends with the test.
func start(t *testing.T, binary string, edits ...edit) *stack {
	t.Helper()
	dir := t.TempDir()
	addrs := freeAddrs(t, 3)
	redis, data, admin := addrs[0], addrs[1], addrs[2]
	topology := render(t, "topology.yaml", dir, []edit{
		{old: "http: 127.0.0.1:8080", new: "http: " + data},
		{old: "admin: 127.0.0.1:9090", new: "admin: " + admin},
		{old: "127.0.0.1:6379", new: redis},
	})
	host, port, err := net.SplitHostPort(redis)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "redis-server", syscall.SIGTERM, "--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "no").
		await(t, func() error { return pong(redis) })
	s := &stack{app: newApp(t), readyz: "http://" + admin + "/readyz"}
	s.restart = func() {
		t.Helper()
		s.regiond = run(t, dir, binary, syscall.SIGINT, "serve", "--config", topology, "--region", "eu-west")
		s.regiond.await(t, func() error { return ready(s.readyz) })
	}
	s.restart()
	s.gateway = startNginx(t, data, s.app.addr, edits...)
	return s
}

// startNginx runs nginx before an app and a regiond that are there already.
func startNginx(t *testing.T, regiond, app string, edits ...edit) gateway {
	t.Helper()
	dir := t.TempDir()
	g := gateway{addr: freeAddrs(t, 1)[0], logs: filepath.Join(dir, "access.log")}
	conf := render(t, "nginx.conf", dir, append([]edit{
		{old: "pid /run/nginx.pid;", new: "pid " + dir + "/nginx.pid;"},
		{old: "error_log /var/log/nginx/error.log warn;", new: "error_log stderr warn;"},
		{old: "access_log /var/log/nginx/access.log", new: "access_log " + g.logs},
		{old: "http {\n", new: "http {\n" + tempPaths(dir)},
		{old: "listen 80;", new: "listen " + g.addr + ";"},
		{old: "server 127.0.0.1:8080;", new: "server " + regiond + ";"},
		{old: "server 127.0.0.1:3000;", new: "server " + app + ";"},
	}, edits...))
	run(t, dir, "nginx", syscall.SIGTERM, "-p", dir, "-c", conf, "-g", "daemon off;").
		await(t, func() error { return dial(g.addr) })
	return g
}

// tempPaths keeps an nginx that is not root out of /var/lib/nginx.
func tempPaths(dir string) string {
	var b strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&b, "    %s_temp_path %s/%s;\n", kind, dir, kind)
	}
	return b.String()
}

// render writes a shipped file into dir with the edits made, and returns its path.
func render(t *testing.T, name, dir string, edits []edit) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, e := range edits {
		if got, want := strings.Count(text, e.old), max(e.times, 1); got != want {
			t.Fatalf("%s says %q %d times, this test expects %d: change both together", name, e.old, got, want)
		}
		text = strings.ReplaceAll(text, e.old, e.new)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// freeAddrs returns addresses that nobody listened on a moment ago. They are
// held together until all are found, so that no two are the same.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	return addrs
}

// process is a program that a test has started, and stops.
type process struct {
	name   string
	cmd    *exec.Cmd
	output string        // path of the file with its stdout and stderr
	exited chan struct{} // closed once it is gone
}

// run starts a program; stop is the signal that ends it at the test's end.
func run(t *testing.T, dir, program string, stop syscall.Signal, args ...string) *process {
	t.Helper()
	path, err := lookPath(program)
	if err != nil {
		t.Fatalf("%v: run scripts/test-deps, which installs it or says how", err)
	}
	out, err := os.CreateTemp(dir, filepath.Base(program)+".*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &process{name: filepath.Base(program), cmd: exec.Command(path, args...), output: out.Name(), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in its output; that it ended is what matters
	}()
	t.Cleanup(func() {
		p.end(stop)
		if t.Failed() {
			text, _ := os.ReadFile(p.output)
			t.Logf("%s said:\n%s", p.name, text)
		}
	})
	return p
}

// lookPath also looks where Debian keeps servers and users do not.
func lookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if err == nil {
			return path, nil
		}
		path, err = exec.LookPath(filepath.Join(dir, program))
	}
	return path, err
}

// end signals the program and waits; one that does not listen is killed.
func (p *process) end(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may be gone already
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// await asks until a program is ready, or gone, or ten seconds are over.
func (p *process) await(t *testing.T, probe func() error) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := probe()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-p.exited:
			t.Fatalf("%s ended instead of becoming ready", p.name)
		case <-deadline:
			t.Fatalf("%s is not ready: %v", p.name, err)
		}
	}
}

func dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

func pong(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "+PONG\r\n" {
		err = fmt.Errorf("PING is answered by %q", line)
	}
	return err
}

func ready(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(url + " answers " + resp.Status)
	}
	return nil
}

// app is the API behind nginx. It remembers the requests that reached it.
type app struct {
	addr string

	mu  sync.Mutex
	got []http.Header // guarded by mu
}

// greeting is what the app answers to everything.
const greeting = "hello from the app\n"

func newApp(t *testing.T) *app {
	t.Helper()
	a := &app{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.got = append(a.got, r.Header.Clone())
		a.mu.Unlock()
		_, _ = io.WriteString(w, greeting)
	}))
	t.Cleanup(server.Close)
	a.addr = server.Listener.Addr().String()
	return a
}

// requests returns the headers of what has reached the app so far.
func (a *app) requests() []http.Header {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]http.Header(nil), a.got...)
}
