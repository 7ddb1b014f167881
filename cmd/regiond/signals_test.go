//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/internal/cli"
	"github.com/regiond/regiond/test/capture"
	"github.com/regiond/regiond/test/gateway"
	"github.com/regiond/regiond/test/leaks"
)

// TestSignals runs the built program, because signals and exit codes belong to a
// process.
func TestSignals(t *testing.T) {
	binary := gateway.Build(t, "../..")
	for _, part := range []struct {
		name string
		test func(t *testing.T, binary string)
	}{
		{"SIGTERM drains under load", testDrain},
		{"SIGINT does not drain, a second signal cuts the drain", testAtOnce},
		{"a second signal cuts off who is slow", testSecondSignalCutsOff},
		{"SIGHUP reloads, and every line of the log is JSON", testLog},
		{"the reader of the denial log ends", testDenialReader},
		{"a port in use", testPortInUse},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			part.test(t, binary)
		})
	}
}

// TestSignalAtTheBanner: who reads that regiond is serving may stop it at once,
// and it stops as it should. Were the signal not expected yet, it would end this
// test's process.
func TestSignalAtTheBanner(t *testing.T) {
	log := &capture.Log{Hook: func(line string) {
		if strings.Contains(line, `"msg":"regiond is serving"`) {
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}}
	leaks.None(t)
	code := cli.Run(t.Context(), program(), []string{"serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--drain", "0s"}, log, log)
	if code != 0 || len(log.Lines("stopping")) != 1 {
		t.Errorf("it exits with %d:\n%s", code, log)
	}
}

// process is a regiond of its own.
type process struct {
	client
	admin  client
	cmd    *exec.Cmd
	log    *capture.Log
	exited chan struct{}
}

// launch starts the binary and waits for its banner, which names its addresses.
func launch(t *testing.T, binary string, flags ...string) *process {
	t.Helper()
	return launchTo(t, nil, binary, flags...)
}

// launchTo is launch with a standard output.
func launchTo(t *testing.T, stdout *os.File, binary string, flags ...string) *process {
	t.Helper()
	args := append([]string{"serve", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, append([]string{"--redis-budget", "4s", "--deadline", "5s"}, flags...)...)
	p := &process{cmd: exec.CommandContext(context.Background(), binary, args...), log: &capture.Log{}, exited: make(chan struct{})}
	p.cmd.Stderr = p.log
	if stdout != nil { // else it is a file that is nil, and no nil
		p.cmd.Stdout = stdout
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // tests look at the exit code
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be gone already
		<-p.exited
		if t.Failed() {
			t.Logf("regiond said:\n%s", p.log)
		}
	})
	banner := p.log.Await(t, "regiond is serving", 1)
	p.client = client{url: banner["http"].(string)}
	p.admin = client{url: banner["admin"].(string)}
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) time.Time {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// exits waits for the process's end and returns when it came.
func (p *process) exits(t *testing.T, code int) time.Time {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		t.Fatalf("still running:\n%s", p.log)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("it exits with %d, want %d:\n%s", got, code, p.log)
	}
	return time.Now()
}

func (p *process) unready(t *testing.T) {
	t.Helper()
	capture.Eventually(t, func() error {
		status, text, err := p.admin.request(http.MethodGet, "/readyz", "")
		if err == nil && (status != http.StatusServiceUnavailable || !strings.Contains(text, "draining")) {
			err = fmt.Errorf("/readyz: %d %s", status, text)
		}
		return err
	})
}

// testDrain: for as long as the drain lasts, requests on old and new connections
// are answered as ever.
func testDrain(t *testing.T, binary string) {
	const drain = 1500 * time.Millisecond
	p := launch(t, binary, "--drain", drain.String())
	var signalled atomic.Int64 // ns of UnixNano; 0 before
	var served atomic.Int64    // during the drain
	var load sync.WaitGroup
	for i := range 8 {
		c := p.client
		c.fresh = i%2 == 0
		load.Go(func() {
			for {
				status, text, err := c.request(http.MethodPost, "/v1/check", `{"tenant":"acme"}`)
				since := time.Since(time.Unix(0, signalled.Load()))
				switch draining := signalled.Load() != 0; {
				case draining && since >= drain:
					return // what comes now may be refused
				case err != nil:
					t.Errorf("refused %v after the signal: %v", since, err)
					return
				case status != http.StatusOK && status != http.StatusTooManyRequests:
					t.Errorf("%d %s", status, text)
				case draining:
					served.Add(1)
				}
			}
		})
	}
	signalled.Store(time.Now().UnixNano()) // before, so that no answer is taken for early
	at := p.signal(t, syscall.SIGTERM)
	p.unready(t)
	p.check(t)
	load.Wait()
	if served.Load() == 0 {
		t.Error("nothing was served during the drain")
	}
	if took := p.exits(t, 0).Sub(at); took < drain-50*time.Millisecond {
		t.Errorf("it exits %v after the signal, before the drain of %v is over", took, drain)
	}
}

func testAtOnce(t *testing.T, binary string) {
	for _, last := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p := launch(t, binary, "--drain", "1m")
		if last == syscall.SIGTERM {
			p.signal(t, last)
			p.unready(t)
		}
		p.check(t)
		at := p.signal(t, last)
		if took := p.exits(t, 0).Sub(at); took > 5*time.Second {
			t.Errorf("%v: it takes %v to stop", last, took)
		}
	}
}

// testSecondSignalCutsOff: the first Ctrl-C waits for a request that is under
// way, the second does not.
func testSecondSignalCutsOff(t *testing.T, binary string) {
	p := launch(t, binary)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n') // it is reading the body now
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	p.signal(t, os.Interrupt)
	p.log.Await(t, "stopping", 1)
	capture.Eventually(t, func() error { // the door is closed to new ones
		c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			return errors.Join(errors.New("a new connection is accepted"), c.Close())
		}
		return nil
	})
	at := p.signal(t, os.Interrupt)
	if took := p.exits(t, 0).Sub(at); took > 2*time.Second { // the body would be waited for for 5 s
		t.Errorf("it takes %v to stop", took)
	}
	if n := len(p.log.Lines("second signal: stopping at once")); n != 1 {
		t.Errorf("the second signal is logged %d times", n)
	}
}

// testLog: also while Redis is away and its client has much to say.
func testLog(t *testing.T, binary string) {
	file := topologyFile(t, "log_level: debug\n"+topology(`{addrs: ["127.0.0.1:1"]}`))
	p := launch(t, binary, "--config", file, "--region", "town")
	p.signal(t, syscall.SIGHUP)
	if line := p.log.Await(t, "reloaded", 1); line["why"] != "SIGHUP" {
		t.Errorf("the log says %v", line)
	}
	p.check(t)
	capture.Eventually(t, func() error {
		if !strings.Contains(p.log.String(), "connection refused") {
			return errors.New("nothing is said of Redis")
		}
		return nil
	})
	p.signal(t, os.Interrupt)
	p.exits(t, 0)
	for line := range strings.Lines(p.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is %q", line)
		}
	}
}

// testDenialReader: a pipe that is closed costs denials their lines, and neither answers nor the process.
func testDenialReader(t *testing.T, binary string) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := launchTo(t, w, binary, "--config", topologyFile(t, topology("{embedded: true}")), "--region", "town", "--denial-log", "-")
	_ = w.Close()
	for range 6 { // of five an hour
		p.check(t)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.Contains(line, `"limit":"hourly"`) {
		t.Errorf("%q, %v", line, err)
	}
	_ = r.Close()
	for range 3 {
		p.check(t)
	}
	p.log.Await(t, "the denial log cannot be written, which is logged once; see regiond_denial_log_dropped_total", 1)
	p.check(t)
	p.signal(t, os.Interrupt)
	p.exits(t, 0)
}

// fails runs the binary to its end, which must be soon, with that exit code, and
// returns what it said.
func fails(t *testing.T, binary string, code int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, append([]string{"serve"}, args...)...).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || exit.ExitCode() != code {
		t.Errorf("%v: %v, want exit code %d\n%s", args, err, code, out)
	}
	return string(out)
}

func testPortInUse(t *testing.T, binary string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"http", "admin"} {
		other := map[string]string{"http": "admin", "admin": "http"}[flag]
		said := fails(t, binary, cli.ExitFailed, "--"+flag, l.Addr().String(), "--"+other, "127.0.0.1:0")
		want := fmt.Sprintf("regiond serve: %s listener: listen tcp %s: bind: address already in use; choose another with --%s\n", flag, l.Addr(), flag)
		if said != want {
			t.Errorf("it says\n%swant\n%s", said, want)
		}
	}
}

// topology is a region with a store.
func topology(store string) string {
	return `regions:
  - {name: town, http: "127.0.0.1:0", admin: "127.0.0.1:0", redis: ` + store + `}
policies:
  - name: standard
    limits: [{name: hourly, units: 5, per: 1h}]
tenants:
  default: {policy: standard}
`
}

func topologyFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "topology.yaml")
	write(t, file, content)
	return file
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client calls one listener.
type client struct {
	url   string
	fresh bool // each time over a new connection
}

func (c client) request(method, path, body string) (status int, text string, err error) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Close = c.fresh
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// check insists on a decision.
func (c client) check(t *testing.T) {
	t.Helper()
	status, text, err := c.request(http.MethodPost, "/v1/check", `{"tenant":"acme"}`)
	if err != nil || !strings.Contains(text, `"basis"`) {
		t.Fatalf("%d %s, %v", status, text, err)
	}
}
