//go:build unix

package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/ports"
)

// Process is a program that a test has started. It ends with the test.
type Process struct {
	name   string
	cmd    *exec.Cmd
	output string        // path of the file with its stdout and stderr
	exited chan struct{} // closed once it is gone
}

// Run starts a program in the folder dir, which also takes its output; stop is
// the signal that ends it at the test's end. A program that is not installed
// fails the test: scripts/test-deps installs it or says how.
func Run(t *testing.T, dir, program string, stop syscall.Signal, args ...string) *Process {
	t.Helper()
	path, err := lookPath(program)
	if err != nil {
		t.Fatalf("%v: run scripts/test-deps, which installs it or says how", err)
	}
	// O_APPEND, since nginx opens it once more as /dev/stderr.
	out, err := os.OpenFile(filepath.Join(dir, filepath.Base(program)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// Not the test's context: that ends before cleanups, which end it by its own signal.
	p := &Process{name: filepath.Base(program), cmd: exec.CommandContext(context.Background(), path, args...), output: out.Name(), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// Some programs write files to the home directory.
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p.cmd.Dir = dir
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // its output has the error
	}()
	t.Cleanup(func() {
		p.End(stop)
		if t.Failed() {
			t.Logf("output of %s:\n%s", p.name, p.Output())
		}
	})
	return p
}

// lookPath also searches the folders of servers, which are not on a user's PATH.
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

// Output is what the program has written so far, on stdout and stderr.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// AwaitLines returns the lines of the output that contain text, once there are n:
// a gateway writes its log after the response. It fails the test when there are
// fewer after five seconds.
func (p *Process) AwaitLines(t *testing.T, n int, text string) (found []string) {
	t.Helper()
	poll(t, p, nil, 5*time.Second, func() error {
		found = nil
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, text) {
				found = append(found, line)
			}
		}
		if len(found) < n {
			return fmt.Errorf("%d lines with %q, want %d:\n%s", len(found), text, n, p.Output())
		}
		return nil
	})
	return found
}

// Signal sends a signal; it fails the test when the program is gone.
func (p *Process) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("send %v to %s: %v", sig, p.name, err)
	}
}

// End signals the program and waits until it is gone; after five seconds it is
// killed.
func (p *Process) End(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may be gone already
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// Await waits until probe succeeds. It fails the test when the program ends
// instead, or is not ready after twenty seconds.
func (p *Process) Await(t *testing.T, probe func() error) {
	t.Helper()
	poll(t, p, p.exited, 20*time.Second, probe)
}

func poll(t *testing.T, p *Process, exited <-chan struct{}, limit time.Duration, probe func() error) {
	t.Helper()
	deadline := time.After(limit)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := probe()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-exited:
			t.Fatalf("%s ended: %v", p.name, err)
		case <-deadline:
			t.Fatalf("%s after %v: %v", p.name, limit, err)
		}
	}
}

// Get returns what a URL answers with 200, to a program that is no web page, over a connection of its own.
func Get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Requested-With", "test")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return string(body), err
}

// Dial returns nil when addr accepts connections.
func Dial(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// FreeAddrs returns different addresses on loopback that are the test's own until it ends.
func FreeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = ports.Addr(t)
	}
	return addrs
}
