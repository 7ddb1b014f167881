package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi/plain"
	"github.com/regiond/regiond/quota"
)

// peer is the server's end of a connection that comes from an address.
type peer struct {
	net.Conn
	address net.Addr
}

func (p peer) RemoteAddr() net.Addr { return p.address }

// The deadlines of a pipe are timers that outlive it, and all that is read is there.
func (peer) SetDeadline(time.Time) error      { return nil }
func (peer) SetReadDeadline(time.Time) error  { return nil }
func (peer) SetWriteDeadline(time.Time) error { return nil }

type text string

func (text) Network() string  { return "tcp" }
func (t text) String() string { return string(t) }

type connServer interface{ ServeConn(c net.Conn) error }

// exchange sends bytes, ends the sending, and returns all answers, also as they were sent.
func exchange(s connServer, remote string, sent io.Reader, method string) (answers []reply, raw string) {
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.ServeConn(peer{ending{theirs, sent}, text(remote)})
		_ = theirs.Close()
	}()
	var all strings.Builder
	in := bufio.NewReader(io.TeeReader(ours, &all))
	for {
		res, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			break
		}
		body, err := io.ReadAll(res.Body)
		if res.Body.Close(); err != nil || res.Status != fmt.Sprint(res.StatusCode, " ", http.StatusText(res.StatusCode)) {
			break
		}
		answers = append(answers, reply{res.StatusCode, res.Header, string(body)})
	}
	_ = ours.Close()
	<-served
	return answers, all.String()
}

// ending reads what was sent, and then the end.
type ending struct {
	net.Conn
	from io.Reader
}

func (e ending) Read(b []byte) (int, error) { return e.from.Read(b) }

// short is a listener that has no descriptors for a while.
type short struct {
	net.Listener
	refusals int
}

func (s *short) Accept() (net.Conn, error) {
	if s.refusals--; s.refusals >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return s.Listener.Accept()
}

// TestShortOfDescriptors: a server that cannot accept a connection for now goes on.
func TestShortOfDescriptors(t *testing.T) {
	h := handler(t, options(&fake{}))
	l := listen(t)
	s, done := plain.New(h, slog.New(slog.DiscardHandler)), make(chan error, 1)
	go func() { done <- s.Serve(&short{l, 3}) }()
	if status, err := dial(t, l).status("GET", "/v1/openapi.yaml", ""); err != nil || status != http.StatusOK {
		t.Errorf("%d, %v", status, err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// A server that was told to stop before it has begun does not begin.
func TestStoppedBeforeItServes(t *testing.T) {
	h := handler(t, options(&fake{}))
	for name, stop := range map[string]func(*plain.Server) error{
		"shutdown": func(s *plain.Server) error { return s.Shutdown(t.Context()) },
		"close":    (*plain.Server).Close,
	} {
		l, s := listen(t), plain.New(h, slog.New(slog.DiscardHandler))
		if err := stop(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
			t.Errorf("%s: its listener is open", name)
			_ = c.Close() // the test has failed
		}
	}
}

// TestPlainPanic: a panic that no call answers is no success.
func TestPlainPanic(t *testing.T) {
	h := handler(t, options(&fake{decide: func(context.Context, quota.Request) (quota.Decision, error) { panic(http.ErrAbortHandler) }}))
	answers, _ := exchange(plain.New(h, slog.New(slog.DiscardHandler)), "192.0.2.1:1", strings.NewReader(sized("", jsonCheck)), "POST")
	if len(answers) != 1 || answers[0].status != http.StatusInternalServerError {
		t.Errorf("%+v", answers)
	}
}
