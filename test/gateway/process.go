//go:build unix

package gateway

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
	out, err := os.CreateTemp(dir, filepath.Base(program)+".*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// Not the test's context: that ends before cleanups, which end it by its own signal.
	p := &Process{name: filepath.Base(program), cmd: exec.CommandContext(context.Background(), path, args...), output: out.Name(), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// Some programs keep files of their own at home: here, not at the tester's.
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	p.cmd.Dir = dir
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // how it ended is in its output; that it ended is what matters
	}()
	t.Cleanup(func() {
		p.End(stop)
		if t.Failed() {
			t.Logf("%s said:\n%s", p.name, p.Output())
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

// Output is what the program has said so far, on stdout and stderr.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.output)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// AwaitLines returns the lines of the output that contain what, once there are n:
// a gateway writes its log after the answer has gone out. It fails the test when
// there are fewer after five seconds.
func (p *Process) AwaitLines(t *testing.T, n int, what string) []string {
	t.Helper()
	deadline := time.After(5 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		var found []string
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, what) {
				found = append(found, line)
			}
		}
		if len(found) >= n {
			return found
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s has written %d lines with %q, want %d:\n%s", p.name, len(found), what, n, p.Output())
		}
	}
}

// Signal sends a signal; it fails the test when the program is gone.
func (p *Process) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("send %v to %s: %v", sig, p.name, err)
	}
}

// End signals the program and waits until it is gone; one that does not listen
// for five seconds is killed.
func (p *Process) End(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // it may be gone already
	select {
	case <-p.exited:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// Await asks until the program is ready. It fails the test when the program ends
// instead, or is not ready after twenty seconds.
func (p *Process) Await(t *testing.T, probe func() error) {
	t.Helper()
	deadline := time.After(20 * time.Second)
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

// Dial reports whether somebody listens at addr.
func Dial(addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// FreeAddrs returns addresses on loopback that nobody listened on a moment ago.
// They are held together until all are found, so that no two are the same.
func FreeAddrs(t *testing.T, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs[i] = l.Addr().String()
	}
	return addrs
}
