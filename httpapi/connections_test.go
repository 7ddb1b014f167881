package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// visitor is a client with one connection.
type visitor struct {
	net.Conn
	in *bufio.Reader
}

// status makes a call and returns the status of its answer.
func (v *visitor) status(method, path, body string) (int, error) {
	if _, err := fmt.Fprintf(v, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

func (v *visitor) check(t *testing.T) {
	t.Helper()
	if status, err := v.status("POST", "/v1/check", `{"tenant":"a"}`); status != 200 || err != nil {
		t.Errorf("a check: %d, %v", status, err)
	}
}

// gone fails unless the server has closed the connection.
func (v *visitor) gone(t *testing.T) {
	t.Helper()
	_, err := v.in.ReadByte()
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the connection is open: %v", err)
	}
}

// visitors starts a server that has at most so many connections.
func visitors(t *testing.T, most int, f *fake) (dial func() *visitor) {
	t.Helper()
	bound, err := httpapi.NewConnections("http", most, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.NewServer(data(t, options(f)), slog.New(slog.DiscardHandler), bound)
	done := make(chan error, 1)
	go func() { done <- s.Serve(bound.Listen(l)) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return func() *visitor {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		t.Cleanup(func() { _ = c.Close() })
		return &visitor{c, bufio.NewReader(c)}
	}
}

// TestWhoMakesRoom: strangers go first, then the longest idle, and nobody who is being
// answered.
func TestWhoMakesRoom(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		if r.Tenant == "slow" {
			entered <- struct{}{}
			<-leave
		}
		return allowed(r), nil
	}}
	dial := visitors(t, 3, f)
	first, second := dial(), dial()
	first.check(t)
	second.check(t)
	for what, spend := range map[string]func(v *visitor) (int, error){
		"says nothing": func(*visitor) (int, error) { return 0, nil },
		"sends half a body": func(v *visitor) (int, error) {
			return io.WriteString(v, "POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{")
		},
		"breaks rules":        func(v *visitor) (int, error) { return v.status("POST", "/v1/check", `{}`) },
		"asks what all may":   func(v *visitor) (int, error) { return v.status("GET", "/v1/openapi.yaml", "") },
		"looks for something": func(v *visitor) (int, error) { return v.status("GET", "/wp-login.php", "") },
	} {
		stranger := dial()
		if _, err := spend(stranger); err != nil {
			t.Errorf("who %s: %v", what, err)
		}
		next := dial()
		stranger.gone(t)
		_ = next.Close()
		first.check(t)
		second.check(t)
	}
	third := dial()
	third.check(t)
	fourth := dial() // all are known: the longest idle goes
	first.gone(t)
	fourth.check(t)
	busy := []*visitor{second, third, fourth}
	answers := make(chan error, len(busy))
	for _, v := range busy {
		go func() {
			_, err := v.status("POST", "/v1/check", `{"tenant":"slow"}`)
			answers <- err
		}()
		<-entered
	}
	dial().gone(t)
	close(leave)
	for range busy {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestGarbageIsLoggedSampled: what net/http writes about strangers is bounded.
func TestGarbageIsLoggedSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := httpapi.NewServer(http.NotFoundHandler(), slog.New(slog.NewTextHandler(&log, nil)), nil)
		for range 100 {
			s.ErrorLog.Print("http: TLS handshake error")
		}
		if n := strings.Count(log.String(), "handshake"); n != 10 {
			t.Errorf("%d lines in a second, want 10", n)
		}
		time.Sleep(time.Second)
		s.ErrorLog.Print("http: TLS handshake error")
		if !strings.Contains(log.String(), "suppressed=90") {
			t.Errorf("the next second: %s", log.String())
		}
	})
}
