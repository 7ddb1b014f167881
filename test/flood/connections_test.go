package flood_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/internal/daemon"
	"github.com/regiond/regiond/test/authority"
)

const (
	// most is the bound of connections of a process under attack.
	most = 256
	// each is what docs/operate.md grants a connection, in KiB.
	each = 320
)

// serveAlone runs a region in memory in this process, prints the addresses of its listeners, and
// ends when its standard input does.
func serveAlone(topology string) error {
	o := &daemon.Options{
		Config: topology, Region: "town", Instance: "a", Processes: 1, MaxConnections: most,
		Budget: time.Second, Deadline: time.Second, // others use this machine too
	}
	top, _, err := o.LoadTopology()
	if err != nil {
		return err
	}
	d, err := daemon.New(o, top, slog.New(slog.DiscardHandler), &slog.LevelVar{})
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n", d.DataAddr(), d.AdminAddr())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return d.Run(ctx, nil)
}

// served is such a process.
type served struct {
	*process
	data, admin string
	tls         *tls.Config // nil without
}

// serveProcess starts one.
func serveProcess(t *testing.T, withTLS bool) *served {
	t.Helper()
	dir := t.TempDir()
	s := &served{}
	topology := "regions: [{name: town, http: 127.0.0.1:0, admin: 127.0.0.1:0, redis: {embedded: true}}]\n" +
		"policies: [{name: standard, limits: [{name: hourly, units: 100000, per: 1h}]}]\n" +
		"tenants: {default: {policy: standard}}\n"
	if withTLS {
		a := authority.New(t, "flood")
		cert, key := a.Issue(t, "town")
		put(t, filepath.Join(dir, "cert.pem"), []byte(cert))
		put(t, filepath.Join(dir, "key.pem"), []byte(key))
		topology += strings.ReplaceAll("access: {cert_file: DIR/cert.pem, key_file: DIR/key.pem}\n", "DIR", dir)
		s.tls = &tls.Config{RootCAs: a.Pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}}
	}
	file := filepath.Join(dir, "topology.yaml")
	put(t, file, []byte(topology))
	s.process = startProcess(t, "serve "+file)
	if _, err := fmt.Sscan(s.first, &s.data, &s.admin); err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// dial connects to the data listener.
func (s *served) dial() (net.Conn, error) {
	c, err := net.DialTimeout("tcp", s.data, time.Second)
	if err != nil {
		return nil, err
	}
	own, _ := c.(*net.TCPConn) // what the kernel keeps is the server's
	return c, errors.Join(own.SetReadBuffer(4096), own.SetWriteBuffer(64<<10), c.SetDeadline(time.Now().Add(20*time.Second)))
}

// gateway makes checks on one connection, until stop is called, which returns how many were
// answered, and what went wrong.
func (s *served) gateway(t *testing.T) (stop func() (int, error)) {
	t.Helper()
	dialled := atomic.Int64{}
	scheme, transport := "http", &http.Transport{MaxConnsPerHost: 1, ForceAttemptHTTP2: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		if dialled.Add(1) > 1 {
			return nil, errors.New("the connection of a gateway was closed")
		}
		return net.Dial("tcp", s.data)
	}}
	if s.tls != nil {
		scheme, transport.TLSClientConfig = "https", s.tls.Clone()
	}
	client := &http.Client{Transport: transport}
	check := func() error {
		res, err := client.Post(scheme+"://"+s.data+"/v1/check", "application/json", strings.NewReader(`{"tenant":"a"}`))
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if _, err = io.Copy(io.Discard, res.Body); err == nil && res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		return err
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	n := 0
	go func() {
		for {
			select {
			case <-end:
				ended <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
			if err := check(); err != nil {
				ended <- err
				return
			}
			n++
		}
	}()
	return func() (int, error) {
		close(end)
		err := <-ended
		transport.CloseIdleConnections()
		return n, err
	}
}

// halfSent opens streams on a connection of HTTP/2 and sends all of their bodies but the last byte.
func halfSent(c net.Conn, config *tls.Config, streams int) error {
	over := tls.Client(c, config)
	if _, err := io.WriteString(over, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(over, over)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	// Windows are as the server says, and it says so in the meantime.
	var mu sync.Mutex
	window, room := 65_535, sync.NewCond(&mu)
	initial := 65_535
	go func() {
		defer room.Broadcast()
		for {
			frame, err := f.ReadFrame()
			mu.Lock()
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
					initial = int(v)
				}
			case *http2.WindowUpdateFrame:
				if frame.StreamID == 0 {
					window += int(frame.Increment)
				}
			}
			if err != nil {
				window = 1 << 30 // whoever waits finds out
			}
			mu.Unlock()
			room.Broadcast()
			if err != nil {
				return
			}
		}
	}()
	var header bytes.Buffer
	fields := hpack.NewEncoder(&header)
	part := bytes.Repeat([]byte(" "), 16<<10)
	for i := range streams {
		header.Reset()
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "127.0.0.1"}, {Name: ":path", Value: "/v1/check"},
		} {
			if err := fields.WriteField(h); err != nil {
				return err
			}
		}
		id := uint32(2*i + 1)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header.Bytes(), EndHeaders: true}); err != nil {
			return err
		}
		for left := httpapi.MaxBody - 1; left > 0; {
			n := min(left, len(part))
			mu.Lock()
			left = min(left, initial)
			for window < n {
				room.Wait()
			}
			window -= n
			mu.Unlock()
			if err := f.WriteData(id, false, part[:n]); err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// halfHeader sends a header of HTTP/2 with as many fields as it may have, a byte each, and not its end.
func halfHeader(c net.Conn, config *tls.Config) error {
	over := tls.Client(c, config)
	if _, err := io.WriteString(over, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(over, over)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var header bytes.Buffer
	fields := hpack.NewEncoder(&header)
	for range 1900 { // 34 bytes each, of 64 KiB
		_ = fields.WriteField(hpack.HeaderField{Name: "a", Value: "b"}) // never fails
	}
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header.Bytes()})
}

// TestFloodOfConnections: whatever strangers do to the data listener, it costs no more memory
// than docs/operate.md says, gateways keep their connections, and the process stays ready.
func TestFloodOfConnections(t *testing.T) {
	hello := clientHello(t)
	for _, row := range []struct {
		name string
		tls  bool
		n    int
		send func(c net.Conn, config *tls.Config) error
	}{
		{"half-sent bodies", false, 1000, func(c net.Conn, _ *tls.Config) error {
			_, err := fmt.Fprintf(c, "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s", httpapi.MaxBody, strings.Repeat(" ", httpapi.MaxBody-1))
			return err
		}},
		{"answers that are not read", false, 400, func(c net.Conn, _ *tls.Config) error {
			return endless(c, strings.Repeat("GET /v1/openapi.yaml HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 1000))
		}},
		{"no client hello", true, 1000, func(net.Conn, *tls.Config) error { return nil }},
		{"half of a client hello", true, 1000, func(c net.Conn, _ *tls.Config) error {
			_, err := c.Write(hello[:len(hello)/2])
			return err
		}},
		{"a client hello", true, 1000, func(c net.Conn, _ *tls.Config) error {
			_, err := c.Write(hello)
			return err
		}},
		{"half-sent headers of HTTP/2", true, 1000, halfHeader},
		{"half-sent bodies of HTTP/2", true, 50, func(c net.Conn, config *tls.Config) error { return halfSent(c, config, httpapi.MaxStreams) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := serveProcess(t, row.tls)
			stop := s.gateway(t)
			before := s.memory("VmRSS")
			attack, flooded := make(chan struct{}), sync.WaitGroup{}
			sent := make(chan bool, row.n)
			for range row.n {
				flooded.Go(func() {
					c, err := s.dial()
					if err == nil {
						defer c.Close()
						err = row.send(c, s.tls)
					}
					sent <- err == nil
					if err == nil {
						<-attack
					}
				})
			}
			through := 0
			for range row.n {
				if <-sent {
					through++
				}
			}
			start := time.Now()
			res, err := http.Get("http://" + s.admin + "/readyz")
			if err != nil {
				t.Error(err)
			} else if res.Body.Close(); res.StatusCode != http.StatusOK {
				t.Error(res.Status)
			}
			took := time.Since(start)
			close(attack)
			flooded.Wait()
			n, err := stop()
			if err != nil || n < 1 {
				t.Errorf("a gateway: %d checks, %v", n, err)
			}
			peak := s.memory("VmHWM")
			t.Logf("%d of %d sent all: %d MiB before, at most %d MiB; %d checks of a gateway; ready in %v", through, row.n, before, peak, n, took)
			if through == 0 { // others may be displaced
				t.Error("nobody sent all that it wanted to")
			}
			if allowed := most * each >> 10; peak-before > allowed {
				t.Errorf("%d connections took %d MiB, want at most %d", row.n, peak-before, allowed)
			}
		})
	}
}

// endless sends text until the other side takes no more for a second.
func endless(c net.Conn, text string) error {
	for {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, err := io.WriteString(c, text)
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// clientHello is what a TLS client sends first.
func clientHello(t *testing.T) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		_ = tls.Client(ours, &tls.Config{ServerName: "h", MinVersion: tls.VersionTLS13}).HandshakeContext(t.Context())
	}()
	first := make([]byte, 16<<10)
	n, err := bufio.NewReader(theirs).Read(first)
	if err != nil {
		t.Fatal(err)
	}
	return first[:n]
}
