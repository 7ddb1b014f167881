package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi"
)

// listen serves a handler on loopback until the test ends.
func listen(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(h, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

// raw sends bytes and reads one answer.
func raw(t *testing.T, address, send string) string {
	t.Helper()
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			rest, _ := r.Peek(r.Buffered())
			return head.String() + string(rest)
		}
	}
}

// What only a real connection shows: spelling, framing, and what net/http
// refuses before a handler sees it.
func TestOnTheWire(t *testing.T) {
	o := options(&fake{decide: deny})
	f := forwardAuth()
	f.Routes = append(f.Routes, httpapi.Route{Name: "open", Path: "/public/*", Skip: true})
	o.Settings = with(&httpapi.Settings{ForwardAuth: f})
	address := listen(t, data(t, o))
	const host = " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
	rows := []struct {
		name, send string
		want, not  []string
	}{
		{
			"spelling", "POST /v1/check" + host + "Content-Length: 14\r\n\r\n{\"tenant\":\"a\"}",
			[]string{"HTTP/1.1 429 ", "\r\nRateLimit: \"", "\r\nRateLimit-Policy: \"", "\r\nRetry-After: 13\r\n", "\r\nContent-Length: ", `{"type":`},
			[]string{"Server:"},
		},
		{
			"HEAD", "HEAD /v1/authz/x" + host + "X-Tenant: a\r\n\r\n",
			[]string{"HTTP/1.1 429 ", "\r\nRateLimit: \"", "\r\nX-Regiond-Decision: deny\r\n", "\r\nContent-Length: "},
			[]string{`{"type":`},
		},
		{"two slashes are no redirect", "POST /v1/authz//x/../login" + host + "X-Tenant: a\r\n\r\n", []string{"HTTP/1.1 429 "}, nil},
		{"odd bytes keep their escapes", "GET /v1/authz/public%2fx|" + host + "X-Tenant: a\r\n\r\n", []string{"HTTP/1.1 429 "}, nil},
		{"absolute form", "GET http://h/v1/authz/status HTTP/1.1\r\nHost: h\r\n\r\n", []string{"HTTP/1.1 200 ", "\r\nX-Regiond-Decision: allow\r\n", "\r\nContent-Length: 0\r\n"}, nil},
		{"too large", "POST /v1/check" + host + "Content-Length: 70000\r\n\r\n", []string{"HTTP/1.1 413 ", "\r\nConnection: close\r\n"}, nil},
		{"too large, chunked", "POST /v1/check" + host + "Transfer-Encoding: chunked\r\n\r\n11000\r\n" + strings.Repeat(" ", 0x11000) + "\r\n0\r\n\r\n", []string{"HTTP/1.1 413 "}, nil},
		{"header too large", "GET /v1/usage/a" + host + "X: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", []string{"HTTP/1.1 431 "}, nil},
		{"HTTP/2 in the clear", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []string{"HTTP/1.1 "}, []string{"200 OK"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := raw(t, address, row.send)
			for _, want := range row.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in %q", want, got)
				}
			}
			for _, not := range row.not {
				if strings.Contains(got, not) {
					t.Errorf("%q in %q", not, got)
				}
			}
		})
	}
}

func TestServerHasEveryLimit(t *testing.T) {
	s := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout != 2*time.Second || s.ReadTimeout != 5*time.Second || s.WriteTimeout != 5*time.Second ||
		s.IdleTimeout != time.Minute || s.MaxHeaderBytes != 16<<10 || s.ErrorLog == nil || s.Protocols.UnencryptedHTTP2() {
		t.Errorf("%+v", s)
	}
}
