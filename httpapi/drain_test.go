package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/plain"
)

// TestRefusalArrives: a client that reads nothing before it has sent all of a request gets the refusal, and then the end.
// A connection that is closed with unread bytes is reset, which gateways take for an outage of the limiter.
func TestRefusalArrives(t *testing.T) {
	o := options(&fake{})
	o.Deadline = 20 * time.Second // a request that has waited for longer is refused with 503
	h := handler(t, o)
	certified := httptest.NewTLSServer(nil)
	config := certified.TLS
	certified.Close()
	log := slog.New(slog.DiscardHandler)
	for engine, s := range map[string]server{
		"fasthttp": plain.New(h, log), "net/http": httpapi.NewServer(h, log, nil), "TLS": httpapi.NewServer(h, log, nil),
	} {
		t.Run(engine, func(t *testing.T) {
			l, _ := bounded(t, 100)
			at := l.Addr().String()
			dial := func() (net.Conn, error) { return (&net.Dialer{}).DialContext(t.Context(), "tcp", at) }
			if engine == "TLS" {
				l = tls.NewListener(l, config)
				dial = func() (net.Conn, error) {
					d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}} //nolint:gosec // of a test
					return d.DialContext(t.Context(), "tcp", at)
				}
			}
			start(t, s, l)
			t.Run("requests", func(t *testing.T) { // ends before the server
				for name, row := range refused() {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						c, err := dial()
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close()
						_ = c.SetDeadline(time.Now().Add(20 * time.Second))
						if _, err := c.Write([]byte(row.sent)); err != nil {
							t.Errorf("%d bytes were not taken: %v", len(row.sent), err)
						}
						answer, err := io.ReadAll(c)
						if !bytes.HasPrefix(answer, []byte("HTTP/1.1 "+row.status+" ")) || err != nil {
							t.Errorf("%d bytes are answered %.80q, %v; want %s and the end", len(row.sent), answer, err, row.status)
						}
					})
				}
			})
		})
	}
}

// refused are requests that are refused before all of them is read.
func refused() map[string]struct{ sent, status string } {
	check := post("Content-Length: 26\r\nConnection: close\r\n", jsonCheck)
	large := strings.Repeat(" ", 700_000)
	rows := map[string]struct{ sent, status string }{
		"a body that is too large":    {sized("", large), "413"},
		"chunks that are too large":   {post("Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(large), large)), "413"},
		"two hosts, and more":         {"POST /v1/check HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + large, "400"},
		"a space in a name, and more": {"POST /v1/check HTTP/1.1\r\nHost : a\r\n\r\n" + large, "400"},
		"a coding, and more":          {post("Transfer-Encoding: gzip\r\n", large), "501"},
		"an expectation, and more":    {sized("Expect: 200-ok\r\n", large), "417"},
		"no call, and more":           {"POST /v1/nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 700000\r\n\r\n" + large, "404"},
		"the last request, and more":  {check + large, "200"},
		// Envoy takes 60 KiB of header fields, net/http, and so Caddy, 1 MiB.
		"a target that Envoy takes": {"GET /v1/authz/" + strings.Repeat("a", 59<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", "431"},
		"fields that Envoy takes":   {"GET /v1/authz HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: "+strings.Repeat("y", 600)+"\r\n", 100) + "\r\n", "431"},
	}
	for range 10 {
		n := 24<<10 + rand.IntN(1000<<10) //nolint:gosec // sizes of a test
		rows[fmt.Sprintf("a field of %d bytes", n)] = struct{ sent, status string }{sized("X: "+strings.Repeat("a", n)+"\r\n", jsonCheck), "431"}
	}
	return rows
}

// tooMuch has a header that is refused.
var tooMuch = "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 100<<10) + "\r\n\r\n"

// refuse has a request refused, and returns once all of the answer is here.
func (v *visitor) refuse(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(v, tooMuch); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(v.in); err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 431 ")) {
		t.Fatalf("%.80q, %v", answer, err)
	}
}

// TestDrainIsBounded: a client that does not close a refused connection, or goes on to send, keeps it for a second and a
// megabyte; until then it counts.
func TestDrainIsBounded(t *testing.T) { onBoth(t, testDrainIsBounded) }

func testDrainIsBounded(t *testing.T, on engine) {
	dial, bound := visitors(t, on, 2, &fake{})
	silent := dial()
	silent.refuse(t)
	if n := func() int { return bound.Counts().Open }(); n != 1 {
		t.Errorf("%d connections are open after the refusal, want 1 until the client closes it", n)
	}
	becomes(t, "are open", func() int { return bound.Counts().Open }, 0)
	endless, sent := dial(), 0
	if c, ok := endless.Conn.(*net.TCPConn); !ok || c.SetWriteBuffer(4096) != nil { // or the kernel takes many MiB
		t.Fatal("the client's own buffer is not small")
	}
	for chunk := []byte(strings.Repeat("a", 64<<10)); sent <= 16<<20; {
		n, err := endless.Write(chunk)
		if sent += n; err != nil {
			break
		}
	}
	if sent > 4<<20 {
		t.Errorf("%d bytes of one request were taken", sent)
	}
	becomes(t, "are open", func() int { return bound.Counts().Open }, 0)
}

// TestDrainMakesRoom: a refused connection whose client does not close it is displaced, also one that is proven.
func TestDrainMakesRoom(t *testing.T) { onBoth(t, testDrainMakesRoom) }

func testDrainMakesRoom(t *testing.T, on engine) {
	dial, _ := visitors(t, on, 1, &fake{})
	stranger, known, next := dial(), (*visitor)(nil), (*visitor)(nil)
	stranger.refuse(t)
	known = dial()
	known.check(t)
	known.refuse(t)
	next = dial()
	next.check(t)
}

// TestIdleIsClosedAtOnce: a server that stops does not wait for the clients of idle connections.
func TestIdleIsClosedAtOnce(t *testing.T) { onBoth(t, testIdleIsClosedAtOnce) }

func testIdleIsClosedAtOnce(t *testing.T, on engine) {
	const idle = 20
	var stops time.Time
	t.Run("server", func(server *testing.T) {
		l, bound := bounded(server, idle)
		o := options(&fake{})
		o.Deadline = 20 * time.Second
		start(server, on(handler(t, o), bound), l)
		for i := range idle {
			dial(t, l).check(t) // and is closed after the server
			rests(t, bound, i+1)
		}
		stops = time.Now()
	})
	if took := time.Since(stops); took > 10*time.Second {
		t.Errorf("it took %v to stop with %d idle connections", took, idle)
	}
}

// TestRefusalArrivesOverHTTP2: a header that is too large for us, and that gateways take, is a refusal of its own request. Go's
// client, and so Caddy, does not send one that is above what the server says that it takes; others do, and then all requests
// of the connection would end with it.
func TestRefusalArrivesOverHTTP2(t *testing.T) {
	dial, _ := visitors(t, onNetHTTP, 10, &fake{})
	c := dial()
	f := http2.NewFramer(c, c.in)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil || f.WriteSettings() != nil {
		t.Fatalf("the preface was not sent: %v", err)
	}
	rows := []struct {
		path, name, value string
		times             int
		status            string
	}{
		{"/v1/authz", "x-small", "y", 1, "403"}, // forward-auth is not set up: this one was read
		{"/v1/authz/" + strings.Repeat("a", 59<<10), "x-small", "y", 1, "431"},
		{"/v1/authz", "x-envoy", strings.Repeat("y", 600), 100, "431"},
		{"/v1/authz", "x", strings.Repeat("y", 17<<10), 1, "431"},
		{"/v1/authz", "x", "y", 1900, "403"},                            // 15 KiB over HTTP/1.1
		{"/v1/authz", "x-large", strings.Repeat("y", 15<<10), 1, "403"}, // as over HTTP/1.1
	}
	for i, row := range rows {
		var header bytes.Buffer
		fields := hpack.NewEncoder(&header)
		write := func(name, value string) {
			_ = fields.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
		} // none is kept
		for _, pseudo := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "h"}, {":path", row.path}, {"x-tenant", "a"}} {
			write(pseudo[0], pseudo[1])
		}
		for range row.times {
			write(row.name, row.value)
		}
		stream := uint32(2*i + 1) //nolint:gosec // small
		part := header.Next(16 << 10)
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndStream: true, EndHeaders: header.Len() == 0})
		for err == nil && header.Len() > 0 {
			part = header.Next(16 << 10)
			err = f.WriteContinuation(stream, header.Len() == 0, part)
		}
		if err != nil {
			t.Fatal(err)
		}
		for status := ""; status == ""; {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatalf("%.20s with %d fields %.10s: %v", row.path, row.times, row.name, err)
			}
			switch frame := frame.(type) {
			case *http2.GoAwayFrame:
				t.Fatalf("%.20s with %d fields %.10s: the connection ends with %v", row.path, row.times, row.name, frame.ErrCode)
			case *http2.MetaHeadersFrame:
				if status = frame.PseudoValue("status"); status != row.status || frame.StreamID != stream {
					t.Errorf("%.20s with %d fields %.10s: %s, want %s", row.path, row.times, row.name, status, row.status)
				}
			}
		}
	}
}
