//go:build linux

package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/httpapi/plain"
)

// TestLateRequestsAreTurnedAway: time counts from when the last byte of a request arrived, also before its connection was
// accepted, and what is still not read once the deadline has passed is answered without being read.
func TestLateRequestsAreTurnedAway(t *testing.T) {
	f := &fake{}
	o := options(f)
	o.Deadline, o.Settings = 500*time.Millisecond, func() *httpapi.Settings { return &httpapi.Settings{ForwardAuth: forwardAuth()} }
	h, err := httpapi.NewData(o)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := conn.New("http", 100, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const forwarded = "X-Tenant: a\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /x\r\nX-Original-Method: GET\r\nX-Original-Uri: /x\r\n"
	const body = `{"tenant":"a"}`
	rows := []struct {
		request string
		late    int
	}{
		{"GET /v1/authz HTTP/1.1\r\nHost: h\r\n" + forwarded + "\r\n", 429},
		{"GET /v1/authz/x HTTP/1.1\r\nHost: h\r\n" + forwarded + "\r\n", 429},
		{"GET /v1/authz-nginx HTTP/1.1\r\nHost: h\r\n" + forwarded + "\r\n", 403},
		{"POST /v1/check HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body, 503},
	}
	clients := make([]net.Conn, len(rows))
	for i, row := range rows {
		clients[i], err = net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
		_ = clients[i].SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := clients[i].Write([]byte(row.request)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(600 * time.Millisecond) // is what the requests wait, not what the test does

	var s interface {
		Serve(l net.Listener) error
		Close() error
	} = httpapi.NewServer(h, slog.New(slog.DiscardHandler), bound)
	if onFasthttp {
		s = plain.New(h, slog.New(slog.DiscardHandler))
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(bound.Listen(l)) }()
	defer func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	for i, row := range rows {
		in := bufio.NewReader(clients[i])
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != row.late || res.Header.Get("Retry-After") != "1" {
			t.Errorf("%.30q late: %s, Retry-After %q; want %d", row.request, res.Status, res.Header.Get("Retry-After"), row.late)
		}
		wantShed(t, reply{status: res.StatusCode, header: res.Header, body: string(body)})
		if n := f.calls(); n != i { // the one in time of each row before
			t.Errorf("%d were decided, want %d", n, i)
		}
		if _, err := clients[i].Write([]byte(row.request)); err != nil {
			t.Fatal(err)
		}
		if res, err = http.ReadResponse(in, nil); err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Errorf("%.30q in time: %s", row.request, res.Status)
		}
	}
	if n := f.turnedAway(); n != len(rows) {
		t.Errorf("%d were counted as shed, want %d", n, len(rows))
	}
}
