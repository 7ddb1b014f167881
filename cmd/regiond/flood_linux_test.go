package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keepAlive is a connection that its client keeps.
type keepAlive struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *process) *keepAlive {
	t.Helper()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(p.url, "http://"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &keepAlive{c, bufio.NewReader(c)}
}

// check makes a check over the connection.
func (c *keepAlive) check() error {
	const body = `{"tenant":"acme"}`
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
		return errors.New(res.Status)
	}
	return nil
}

// goesOn fails where a known connection, a new one, or a probe gets no answer.
func goesOn(t *testing.T, p *process, known []*keepAlive) {
	t.Helper()
	for _, c := range known {
		if err := c.check(); err != nil {
			t.Fatalf("a known connection: %v", err)
		}
	}
	if err := dial(t, p).check(); err != nil {
		t.Fatalf("a new connection: %v", err)
	}
	probe := p.admin
	probe.fresh = true
	if status, text, err := probe.request(http.MethodGet, "/readyz", ""); err != nil || status != http.StatusOK {
		t.Fatalf("/readyz: %d %s, %v", status, text, err)
	}
}

// pageSize is that of /proc/PID/statm.
var pageSize = int64(os.Getpagesize())

// resident is how much memory a process has, in bytes.
func resident(t *testing.T, p *process) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Fscan(bytes.NewReader(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * pageSize
}

// TestFloodOfHalfBodies: bodies that are never sent to their end take at most 256 KiB of
// memory for each of --max-connections, and displace nobody who has made a valid request.
func TestFloodOfHalfBodies(t *testing.T) {
	const most, flood, perConnection = 300, 1500, 320 << 10
	p := launch(t, built(t), "--max-connections", fmt.Sprint(most))
	known := make([]*keepAlive, 20)
	for i := range known {
		known[i] = dial(t, p)
	}
	goesOn(t, p, known)
	before, peak := resident(t, p), int64(0)
	half := []byte("POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 65000\r\n\r\n" + strings.Repeat(" ", 64_000))
	for i := range flood {
		c := dial(t, p)
		_, _ = c.Write(half) // fails where the connection was displaced
		if i%100 == 99 {
			goesOn(t, p, known)
			peak = max(peak, resident(t, p))
		}
	}
	if grown := peak - before; grown > most*perConnection {
		t.Errorf("%d half-sent bodies take %d KiB, want at most %d for each of %d connections", flood, grown>>10, perConnection>>10, most)
	}
	_, text, err := p.admin.request(http.MethodGet, "/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	var open, displaced int
	for line := range strings.Lines(text) {
		_, _ = fmt.Sscanf(line, `regiond_http_connections{listener="http"} %d`, &open) // other lines
		_, _ = fmt.Sscanf(line, `regiond_http_connections_closed_total{listener="http",reason="unproven"} %d`, &displaced)
	}
	if open < len(known) || open > most || displaced < flood-most {
		t.Errorf("%d connections are open and %d were displaced, want at most %d and at least %d", open, displaced, most, flood-most)
	}
}

// TestFewDescriptors: by default the data listener leaves descriptors for everything else.
func TestFewDescriptors(t *testing.T) {
	limited := filepath.Join(t.TempDir(), "limited")
	if err := os.WriteFile(limited, []byte("#!/bin/sh\nulimit -n 300\nexec "+built(t)+` "$@"`+"\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	p := launch(t, limited)
	known := []*keepAlive{dial(t, p)}
	goesOn(t, p, known)
	for range 2000 {
		dial(t, p)
	}
	goesOn(t, p, known)
	if said := fails(t, limited, 2, "--max-connections", "200"); !strings.Contains(said, "--max-connections 200 leaves less than 150 of 300 file descriptors") {
		t.Errorf("it says %s", said)
	}
}
