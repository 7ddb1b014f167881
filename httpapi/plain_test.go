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
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/plain"
	"github.com/regiond/regiond/quota"
)

// canBeSent reports whether a request can be written as HTTP/1.1.
func canBeSent(r *http.Request) bool {
	for name, lines := range r.Header {
		for _, line := range lines {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(line) || strings.Trim(line, " \t") != line {
				return false
			}
		}
	}
	_, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && httpguts.ValidHostHeader(r.Host)
}

// servePlain sends a request to the other engine, over a connection of its peer's address.
func servePlain(h *httpapi.Handler, r *http.Request) reply {
	var wire bytes.Buffer
	fmt.Fprintf(&wire, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.RequestURI, r.Host)
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			// What was sent ends where the reader failed.
			fmt.Fprintf(&wire, "Content-Length: %d\r\n", len(body)+1)
		}
	}
	if len(body) > 0 && !bytes.Contains(wire.Bytes(), []byte("Content-Length")) {
		fmt.Fprintf(&wire, "Content-Length: %d\r\n", len(body))
	}
	for name, lines := range r.Header {
		for _, line := range lines {
			fmt.Fprintf(&wire, "%s: %s\r\n", name, line)
		}
	}
	wire.WriteString("\r\n")
	wire.Write(body)
	answers := exchange(plain.New(h, slog.New(slog.DiscardHandler)), r.RemoteAddr, &wire, r.Method == http.MethodHead)
	if len(answers) == 0 {
		return reply{}
	}
	return answers[0]
}

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

// exchange sends bytes, ends the sending, and returns all answers.
func exchange(s connServer, remote string, sent io.Reader, head bool) (answers []reply) {
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.ServeConn(peer{ending{theirs, sent}, text(remote)})
		_ = theirs.Close()
	}()
	in := bufio.NewReader(ours)
	for {
		answer, err := readReply(in, head)
		if err != nil {
			break
		}
		answers = append(answers, answer)
	}
	_ = ours.Close()
	<-served
	return answers
}

// ending reads what was sent, and then the end.
type ending struct {
	net.Conn
	from io.Reader
}

func (e ending) Read(b []byte) (int, error) { return e.from.Read(b) }

// readReply reads an answer, with its header spelled as it was sent and without what all
// answers of a server have.
func readReply(in *bufio.Reader, head bool) (reply, error) {
	first, err := in.ReadString('\n')
	if err != nil {
		return reply{}, err
	}
	status := strings.Fields(first)
	if len(status) < 2 {
		return reply{}, fmt.Errorf("no status in %q", first)
	}
	r := reply{header: http.Header{}}
	if r.status, err = strconv.Atoi(status[1]); err != nil {
		return reply{}, err
	}
	if !strings.Contains(first, " "+status[1]+" "+http.StatusText(r.status)) {
		return reply{}, fmt.Errorf("the first line is %q", first)
	}
	length := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return reply{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ": ")
		if name == "Content-Length" {
			if length, err = strconv.Atoi(value); err != nil {
				return reply{}, err
			}
		}
		switch name {
		case "Content-Length":
		case "Date":
			r.dates = append(r.dates, value)
		default:
			r.header[name] = append(r.header[name], value)
		}
	}
	if head {
		length = 0
	}
	body := make([]byte, length)
	_, err = io.ReadFull(in, body)
	r.body = string(body)
	return r, err
}

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
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, done := plain.New(h, slog.New(slog.DiscardHandler)), make(chan error, 1)
	go func() { done <- s.Serve(&short{l, 3}) }()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if status, err := (&visitor{c, bufio.NewReader(c)}).status("GET", "/v1/openapi.yaml", ""); err != nil || status != http.StatusOK {
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
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := plain.New(h, slog.New(slog.DiscardHandler))
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
	answers := exchange(plain.New(h, slog.New(slog.DiscardHandler)), "192.0.2.1:1", strings.NewReader(sized("", jsonCheck)), false)
	if len(answers) != 1 || answers[0].status != http.StatusInternalServerError {
		t.Errorf("%+v", answers)
	}
}
