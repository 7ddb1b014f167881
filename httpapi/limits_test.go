package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/plain"
)

// engines serve one connection.
func engines(h *httpapi.Handler) map[string]connServer {
	log := slog.New(slog.DiscardHandler)
	return map[string]connServer{"net/http": once{httpapi.NewServer(h, log, nil)}, "fasthttp": plain.New(h, log)}
}

// slowClient is one that takes its time.
type slowClient struct {
	net.Conn
	start time.Time
	wrong string

	mu       sync.Mutex
	received bytes.Buffer
	closed   time.Duration // after the start; 0 while it is open
}

// read reads all that comes.
func (c *slowClient) read() {
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		c.mu.Lock()
		c.received.Write(b[:n])
		if err != nil {
			c.closed = time.Since(c.start)
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *slowClient) state() (received string, closed time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received.String(), c.closed
}

// send sends text at once. It fails once the server has closed the connection.
func (c *slowClient) send(text string) error {
	_, err := io.WriteString(c, text)
	return err
}

// trickle sends text over and over, a byte a tenth of a second, until the connection is closed.
func (c *slowClient) trickle(text string) {
	for i := 0; c.send(text[i%len(text):i%len(text)+1]) == nil; i++ {
		time.Sleep(100 * time.Millisecond)
	}
}

// TestLimitsOfAConnection: whatever is not sent or read in time ends a connection in time, and
// nobody who keeps to the limits is cut.
func TestLimitsOfAConnection(t *testing.T) {
	check := sized("", jsonCheck)
	const soon = 100 * time.Millisecond
	for name, row := range map[string]struct {
		do       func(c *slowClient)
		reads    bool
		from, to time.Duration // when it is closed; 0 for never
		answers  string        // statuses; a ? stands for more
	}{
		"nothing":              {func(*slowClient) {}, true, httpapi.ReadHeaderTimeout, httpapi.ReadHeaderTimeout + soon, "?"},
		"a header, slowly":     {func(c *slowClient) { c.trickle("GET /v1/usage/a HTTP/1.1\r\nHost: h\r\nX: y") }, true, soon, httpapi.ReadHeaderTimeout + soon, "?"},
		"a first line, slowly": {func(c *slowClient) { c.trickle("G") }, true, soon, httpapi.ReadHeaderTimeout + soon, "?"},
		"empty lines":          {func(c *slowClient) { c.trickle("\r\n") }, true, soon, httpapi.ReadHeaderTimeout + soon, "?"},
		"a second header":      {func(c *slowClient) { _ = c.send(check); c.trickle("GET /v1/usage/a HTTP/1.1\r\nHost: h\r\nX: y") }, true, soon, httpapi.ReadHeaderTimeout + 2*time.Second, "200?"},
		"a body, slowly":       {func(c *slowClient) { _ = c.send(post("Content-Length: 200\r\n", "")); c.trickle(" ") }, true, time.Second, httpapi.ReadTimeout + soon, "?"},
		"a large body, slowly": {func(c *slowClient) {
			_ = c.send(post("Content-Length: 60000\r\n", strings.Repeat(" ", 30_000)))
			c.trickle(" ")
		}, true, time.Second, httpapi.ReadTimeout + soon, "?"},
		"chunks, slowly":       {func(c *slowClient) { _ = c.send(post("Transfer-Encoding: chunked\r\n", "")); c.trickle("1\r\n \r\n") }, true, time.Second, httpapi.ReadTimeout + soon, "?"},
		"an extension, slowly": {func(c *slowClient) { _ = c.send(post("Transfer-Encoding: chunked\r\n", "1;")); c.trickle("x") }, true, time.Second, httpapi.ReadTimeout + soon, "?"},
		"trailers, slowly": {func(c *slowClient) {
			_ = c.send(post("Transfer-Encoding: chunked\r\n", "0\r\n"))
			c.trickle("X: y\r\n")
		}, true, time.Second, httpapi.ReadTimeout + soon, "?"},
		"a body nobody reads": {func(c *slowClient) {
			_ = c.send("GET /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: a\r\nContent-Length: 90000\r\n\r\n")
			c.trickle(" ")
		}, true, time.Second, httpapi.ReadTimeout + soon, "?"},
		"no body after continue": {func(c *slowClient) { _ = c.send(post("Content-Length: 26\r\nExpect: 100-continue\r\n", "")) }, true, time.Second, httpapi.ReadTimeout + soon, "100?"},
		"rest":                   {func(c *slowClient) { _ = c.send(check) }, true, httpapi.IdleTimeout - time.Second, httpapi.IdleTimeout + soon, "200"},
		"answers are not read":   {func(c *slowClient) { _ = c.send(strings.Repeat(check, 100)) }, false, time.Second, httpapi.WriteTimeout + soon, ""},
		"an answer, and half a request": {func(c *slowClient) {
			_ = c.send(check + post("Content-Length: 26\r\n", ""))
			synctest.Wait()
			if received, _ := c.state(); statuses(received) != "200" {
				c.wrong = "the first answer waits for the rest of the second request"
			}
		}, true, time.Second, httpapi.ReadTimeout + soon, "200?"},
		"rest, and go on": {func(c *slowClient) {
			for range 5 {
				_ = c.send(check)
				time.Sleep(httpapi.IdleTimeout - time.Second)
			}
			_ = c.send(strings.Replace(check, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
		}, true, 5 * (httpapi.IdleTimeout - time.Second), 5*httpapi.IdleTimeout + soon, "200 200 200 200 200 200"},
		"rest, and expect to go on": {func(c *slowClient) {
			_ = c.send(check)
			time.Sleep(2 * httpapi.WriteTimeout)
			_ = c.send(post("Content-Length: 26\r\nConnection: close\r\nExpect: 100-continue\r\n", ""))
			time.Sleep(time.Second)
			_ = c.send(jsonCheck)
		}, true, 2 * httpapi.WriteTimeout, 2*httpapi.WriteTimeout + 2*time.Second, "200 100 200"},
		"rest, and break rules": {func(c *slowClient) {
			_ = c.send(check)
			time.Sleep(2 * httpapi.WriteTimeout)
			_ = c.send("GET /v1/usage/a HTTP/1.1\r\nHost : h\r\n\r\n")
		}, true, 2 * httpapi.WriteTimeout, 2*httpapi.WriteTimeout + time.Second, "200 400"},
	} {
		for engine := range engines(nil) {
			t.Run(name+"/"+engine, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := options(&fake{})
					o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
					h := handler(t, o)
					ours, theirs := net.Pipe()
					served := make(chan struct{})
					go func() {
						defer close(served)
						_ = engines(h)[engine].ServeConn(theirs)
						_ = theirs.Close()
					}()
					c := &slowClient{Conn: ours, start: time.Now()}
					if row.reads {
						go c.read()
					}
					row.do(c)
					<-served
					took := time.Since(c.start)
					synctest.Wait()
					received, closed := c.state()
					if row.reads {
						took = closed
					}
					if took < row.from || took > row.to {
						t.Errorf("closed after %v, want %v to %v", took, row.from, row.to)
					}
					want, open := strings.CutSuffix(row.answers, "?")
					if got := statuses(received); !strings.HasPrefix(got, want) || !open && got != want {
						t.Errorf("answers %q, want %q: %q", got, row.answers, received)
					}
					if c.wrong != "" {
						t.Error(c.wrong)
					}
					_ = ours.Close()
				})
			})
		}
	}
}

// TestRefusedAtOnce: what can never become a request is refused when it is here, and with the reason.
func TestRefusedAtOnce(t *testing.T) {
	const lf, tls = "ends with LF alone", "This is TLS"
	check := sized("", jsonCheck)
	for name, row := range map[string]struct {
		sent    []string // one after the other is answered or read
		answers string
		detail  string
	}{
		"LF":                      {[]string{strings.ReplaceAll(check, "\r\n", "\n")}, "400", lf},
		"LF in pieces":            {[]string{"GET / HTTP/1.1\r", "\nHost: h\r\n", "X: y", "\n"}, "400", lf},
		"LF at the end":           {[]string{"GET / HTTP/1.1\r\nHost: h\r\n\n"}, "400", lf},
		"LF after the first line": {[]string{"GET / HTTP/1.1\nHost: h\r\n\r\n"}, "400", lf},
		"LF before the last line": {[]string{"GET / HTTP/1.1\r\nHost: h\n\r\n"}, "400", lf},
		"LF in a field":           {[]string{"GET / HTTP/1.1\r\nHost: h\r\nX: y\nZ: z\r\n\r\n"}, "400", lf},
		"empty lines of LF":       {[]string{"\n", "\n\n" + check}, "200", `"allowed":true`},
		"LF in a body":            {[]string{sized("", "{\n\n\"tenant\":\"a\"\n}"), check}, "200 200", `"allowed":true`},
		"LF, the second":          {[]string{check, strings.ReplaceAll(check, "\r\n", "\n")}, "200 400", lf},
		"LF in a field, behind":   {[]string{check + "GET / HTTP/1.1\r\nHost: h\r\nX: y\nZ: z\r\n\r\n"}, "200 400", lf},
		"HTTP/2":                  {[]string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, "400", "`grpc` of the region"},
		"HTTP/2 in pieces":        {[]string{"PRI * HTTP/2.0", "\r", "\n\r\nSM\r\n\r\n"}, "400", "`grpc` of the region"},
		"TLS":                     {[]string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"}, "400", tls},
		"TLS in pieces":           {[]string{"\x16", "\x03\x01"}, "400", tls},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := handler(t, options(&fake{}))
				ours, theirs := net.Pipe()
				c := &slowClient{Conn: ours, start: time.Now()}
				go c.read()
				go func() {
					_ = plain.New(h, slog.New(slog.DiscardHandler)).ServeConn(theirs)
					_ = theirs.Close()
				}()
				for _, piece := range row.sent {
					go func() { _ = c.send(piece) }() // the server need not read it
					synctest.Wait()
				}
				received, _ := c.state()
				if time.Since(c.start) != 0 || statuses(received) != row.answers || !strings.Contains(received, row.detail) {
					t.Errorf("received after %v, want %s: %q", time.Since(c.start), row.answers, received)
				}
				_ = ours.Close()
			})
		})
	}
}

// TestHandshakeInTime: a client that does not end its handshake is cut.
func TestHandshakeInTime(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	config := certified.TLS
	certified.Close()
	for name, sent := range map[string]string{"nothing": "", "half a record": "\x16\x03\x01\x02\x00\x01", "a byte": "\x16"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				c := &slowClient{Conn: ours, start: time.Now()}
				go c.read()
				go func() { _ = c.send(sent) }()
				s := once{httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler), nil)}
				_ = s.ServeConn(tls.Server(theirs, config))
				synctest.Wait()
				if _, closed := c.state(); closed == 0 || closed > httpapi.ReadHeaderTimeout {
					t.Errorf("closed after %v", closed)
				}
			})
		})
	}
}

// statuses are those of answers, in order.
func statuses(received string) string {
	var all []string
	for _, m := range statusLine.FindAllStringSubmatch(received, -1) {
		all = append(all, m[1])
	}
	return strings.Join(all, " ")
}

var statusLine = regexp.MustCompile(`HTTP/1\.1 (\d{3}) `)
