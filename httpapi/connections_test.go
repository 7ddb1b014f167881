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
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
	"github.com/regiond/regiond/httpapi/plain"
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

// server is what both engines have.
type server interface {
	Serve(l net.Listener) error
	Close() error
}

// start has a server serve a listener until the test ends.
func start(t *testing.T, s server, l net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// bounded is a listener of at most so many connections.
func bounded(t *testing.T, most int) (l net.Listener, bound *conn.Bound) {
	t.Helper()
	bound, err := conn.New("http", most, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	return bound.Listen(listen(t)), bound
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dial connects to a server.
func dial(t *testing.T, l net.Listener) *visitor {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { _ = c.Close() })
	return &visitor{c, bufio.NewReader(c)}
}

// An engine makes a server.
type engine func(h *httpapi.Handler, bound *conn.Bound) server

func onFasthttp(h *httpapi.Handler, _ *conn.Bound) server {
	return plain.New(h, slog.New(slog.DiscardHandler))
}

func onNetHTTP(h *httpapi.Handler, bound *conn.Bound) server {
	s := httpapi.NewServer(h, slog.New(slog.DiscardHandler), bound)
	s.Protocols.SetUnencryptedHTTP2(true) // as over TLS
	return s
}

// onBoth runs a test once on each engine.
func onBoth(t *testing.T, test func(t *testing.T, on engine)) {
	t.Run("net/http", func(t *testing.T) { test(t, onNetHTTP) })
	t.Run("fasthttp", func(t *testing.T) { test(t, onFasthttp) })
}

// handler is that of the data listener.
func handler(t testing.TB, o httpapi.Options) *httpapi.Handler {
	t.Helper()
	h, err := httpapi.NewData(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// visitors starts a server that has at most so many connections.
func visitors(t *testing.T, on engine, most int, f *fake) (next func() *visitor, bound *conn.Bound) {
	t.Helper()
	l, bound := bounded(t, most)
	o := options(f)
	o.Deadline = 10 * time.Second // on a busy machine requests wait, and would be shed
	start(t, on(handler(t, o), bound), l)
	return func() *visitor { return dial(t, l) }, bound
}

// rests waits until so many connections are between two requests: a server notes that
// after the answer.
func rests(t *testing.T, bound *conn.Bound, idle int) {
	t.Helper()
	becomes(t, "connections are idle", func() int { return bound.Counts().Idle }, idle)
}

func becomes(t *testing.T, what string, is func() int, want int) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); is() != want; runtime.Gosched() {
		if time.Now().After(until) {
			t.Fatalf("%d %s, want %d", is(), what, want)
		}
	}
}

// TestWhoMakesRoom: strangers go first, then the longest idle, and nobody who is being
// answered.
func TestWhoMakesRoom(t *testing.T) { onBoth(t, testWhoMakesRoom) }

func testWhoMakesRoom(t *testing.T, on engine) {
	entered, leave := make(chan struct{}), make(chan struct{})
	f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
		if r.Tenant == "slow" {
			entered <- struct{}{}
			<-leave
		}
		return allowed(r), nil
	}}
	dial, bound := visitors(t, on, 3, f)
	first, second := dial(), dial()
	first.check(t)
	rests(t, bound, 1)
	second.check(t)
	rests(t, bound, 2)
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
		rests(t, bound, 2)
		second.check(t)
		rests(t, bound, 2)
	}
	third := dial()
	third.check(t)
	rests(t, bound, 3)
	fourth := dial() // all are known: the longest idle goes
	first.gone(t)
	fourth.check(t)
	rests(t, bound, 3)
	busy := []*visitor{second, third, fourth}
	answers := make(chan error, len(busy))
	for _, v := range busy {
		go func() {
			_, err := v.status("POST", "/v1/check", `{"tenant":"slow"}`)
			answers <- err
		}()
		select {
		case <-entered:
		case err := <-answers:
			t.Fatalf("one that rested was closed: %v", err)
		}
	}
	dial().gone(t)
	close(leave)
	for range busy {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// streams makes checks on one connection of HTTP/2, and returns their statuses, 0 for those that
// are cut. Each body ends when end is closed; nil is at once.
func streams(t *testing.T, v *visitor) func(end <-chan struct{}) <-chan int {
	t.Helper()
	transport := &http.Transport{Protocols: &http.Protocols{}, DialContext: func(context.Context, string, string) (net.Conn, error) { return v.Conn, nil }}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return func(end <-chan struct{}) <-chan int {
		body, pipe := io.Pipe()
		status := make(chan int, 1)
		go func() {
			_, _ = io.WriteString(pipe, `{"tenant":"a"`)
			if end != nil {
				<-end
			}
			_, _ = io.WriteString(pipe, `}`)
			_ = pipe.Close()
		}()
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://h/v1/check", body)
			if err != nil {
				t.Error(err)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				status <- 0
				return
			}
			_ = res.Body.Close()
			status <- res.StatusCode
		}()
		return status
	}
}

// TestStreamsTakeRoom: each request of HTTP/2 beyond the first of its connection takes the room
// of a connection while it is under way, displaces as one, and is refused where there is none.
func TestStreamsTakeRoom(t *testing.T) {
	dial, bound := visitors(t, onNetHTTP, 4, &fake{})
	check := streams(t, dial())
	if status := <-check(nil); status != http.StatusOK {
		t.Fatal(status)
	}
	rests(t, bound, 1)
	strangers := []*visitor{dial(), dial(), dial()}
	becomes(t, "are open", func() int { return bound.Counts().Open }, 4)
	end := make(chan struct{})
	var statuses []<-chan int
	for i := range 4 {
		statuses = append(statuses, check(end))
		if i > 0 {
			strangers[i-1].gone(t)
		}
	}
	becomes(t, "are open", func() int { return bound.Counts().Open }, 4)
	if status := <-check(nil); status != http.StatusServiceUnavailable {
		t.Errorf("a fifth request: %d", status)
	}
	dial().gone(t)
	close(end)
	for _, status := range statuses {
		if got := <-status; got != http.StatusOK {
			t.Errorf("a request that was under way: %d", got)
		}
	}
	rests(t, bound, 1)
	becomes(t, "are open", func() int { return bound.Counts().Open }, 1)

	// All of a stranger makes room at once.
	end = make(chan struct{})
	defer close(end)
	check = streams(t, dial())
	first := check(end)
	becomes(t, "requests are under way", func() int { return bound.Counts().Streams }, 1)
	second := check(end)
	becomes(t, "are open", func() int { return bound.Counts().Open }, 3)
	others := []*visitor{dial(), dial()}
	if a, b := <-first, <-second; a != 0 || b != 0 {
		t.Errorf("a stranger's requests: %d, %d", a, b)
	}
	becomes(t, "are open", func() int { return bound.Counts().Open }, 3)
	for _, v := range others {
		v.check(t)
	}
}

// fill writes until nobody takes more for a while, and returns how much that was.
func fill(c net.Conn) (n int) {
	b := make([]byte, 16<<10)
	for {
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		more, err := c.Write(b)
		n += more
		if err != nil {
			return n
		}
	}
}

// TestKernelKeepsLittle: what is sent and not read, by either side, takes little of the kernel's memory.
func TestKernelKeepsLittle(t *testing.T) {
	const most = 512 << 10 // of both sides
	l, _ := bounded(t, 1)
	defer l.Close()
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if c, ok := client.(*net.TCPConn); !ok || c.SetReadBuffer(4096) != nil || c.SetWriteBuffer(4096) != nil {
		t.Fatal("the client's own buffers are not small")
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if n := fill(server); n > most {
		t.Errorf("%d bytes of answers are kept for a client that does not read", n)
	}
	// The kernel gives more room to a connection that is read from fast.
	go func() { _, _ = io.Copy(client, io.LimitReader(endless{}, 64<<20)) }()
	if _, err := io.CopyN(io.Discard, server, 64<<20); err != nil {
		t.Fatal(err)
	}
	if n := fill(client); n > most {
		t.Errorf("%d bytes of requests are kept that nobody reads", n)
	}
}

// endless is zeros.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

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

// TestConnectionsOfEachListener: the listeners of a process share one meter, and each shows its connections.
func TestConnectionsOfEachListener(t *testing.T) {
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	for _, listener := range []string{"http", "admin"} {
		if _, err := conn.New(listener, 1, meter); err != nil {
			t.Fatal(err)
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if shown := fmt.Sprint(m.Data); !strings.Contains(shown, "http") || !strings.Contains(shown, "admin") {
			t.Errorf("%s: %s", m.Name, shown)
		}
	}
}
