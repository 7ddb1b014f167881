package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"
)

// PlainServer serves HTTP/1.1 without TLS, on fasthttp: the same answers as net/http for
// about half of its processor time. It is stricter about what it reads: whatever net/http
// refuses, it refuses. A client that goes away does not end its call, so what it asked for
// may be charged.
type PlainServer struct {
	fast    *fasthttp.Server
	Handler *Handler
	date    atomic.Pointer[datedHeader]
	stopped context.Context //nolint:containedctx // ends with the first Shutdown
	stop    context.CancelFunc
	closed  context.Context //nolint:containedctx // ends a Shutdown that waits
	cut     context.CancelFunc
}

// maxSkipped is how much of a body that no call reads is read all the same, so that the
// connection can be used again. As in net/http.
const maxSkipped = 256 << 10

// NewPlainServer returns a server for a handler of this package with every limit of
// NewServer. The listener comes from bound.Listen; bound may be nil. Errors of connections
// are logged as warnings, at most ten a second.
func NewPlainServer(h *Handler, log *slog.Logger, bound *Connections) *PlainServer {
	s := &PlainServer{Handler: h}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.closed, s.cut = context.WithCancel(context.Background())
	s.fast = &fasthttp.Server{
		Handler:      s.serve,
		ErrorHandler: s.refused,
		ExpectHandler: func(ctx *fasthttp.RequestCtx) int {
			giveTime(ctx)
			return http.StatusContinue
		},
		Logger: slog.NewLogLogger(NewLogLimit().Handler(log.Handler()), slog.LevelWarn),
		// Of the header; the rest is for the body.
		ReadTimeout: ReadHeaderTimeout,
		HeaderReceived: func(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
			if !h.IsHTTP11() {
				h.Del("Expect") // RFC 9110, 10.1.1: such a client cannot read 100
			}
			return fasthttp.RequestConfig{ReadTimeout: ReadTimeout - ReadHeaderTimeout}
		},
		WriteTimeout:       WriteTimeout,
		IdleTimeout:        IdleTimeout,
		ReadBufferSize:     MaxHeaderBytes,
		MaxRequestBodySize: MaxBody,
		// A larger body is not refused before somebody wants to read it.
		StreamRequestBody:             true,
		DisablePreParseMultipartForm:  true,
		DisableHeaderNamesNormalizing: true,
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		NoDefaultDate:                 true, // or it keeps a goroutine
		SecureErrorLogMessage:         true,
		CloseOnShutdown:               true,
		ReduceMemoryUsage:             true,        // an answer leaves at once, also where half of the next request is here
		MaxIdleWorkerDuration:         time.Second, // goroutines of closed connections
	}
	s.fast.ConnState = func(c net.Conn, state fasthttp.ConnState) {
		if timed, ok := c.(*timedConn); ok {
			timed.header.enter(state)
		}
		if own := ownConnection(c); own != nil {
			own.enter(http.ConnState(state)) // the same states
		}
	}
	if bound != nil {
		s.fast.Concurrency = max(fasthttp.DefaultConcurrency, bound.most)
	}
	return s
}

// Serve answers the connections of a listener until Shutdown or Close; it then, or if that
// was before, closes the listener and returns http.ErrServerClosed.
func (s *PlainServer) Serve(l net.Listener) error {
	// fasthttp knows nothing of a Shutdown before it has begun to serve.
	defer context.AfterFunc(s.stopped, func() {
		_ = l.Close() // or fasthttp has
	})()
	if err := s.fast.Serve(patientListener{l}); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return http.ErrServerClosed
}

// Shutdown closes the listener and idle connections, and waits for the others until ctx
// ends or Close is called.
func (s *PlainServer) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closed, cancel)()
	s.stop()
	if err := s.fast.ShutdownWithContext(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop to serve HTTP: %w", err)
	}
	return nil
}

// Close closes the listener and idle connections. Others end with their answer, or with
// the process.
func (s *PlainServer) Close() error {
	s.cut()
	if err := s.Shutdown(s.closed); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve answers one request.
func (s *PlainServer) serve(ctx *fasthttp.RequestCtx) {
	c, _ := s.Handler.calls.Get().(*call) // New makes no other
	c.plain = plainExchange{ctx: ctx, server: s, lines: c.plain.lines[:0]}
	late := s.Handler.late(c.plain.connection())
	if !late {
		if status, detail := c.plain.read(); detail != "" {
			s.Handler.calls.Put(c)
			s.refuse(ctx, status, detail)
			return
		}
	}
	defer func() {
		if recover() != nil { // once the call has logged it
			s.refuse(ctx, http.StatusInternalServerError, "Whether anything was charged is unknown.")
		}
		skipBody(ctx)
	}()
	c.serve(&c.plain, late)
}

// skipBody reads what is left of a body, or has the connection be closed.
func skipBody(ctx *fasthttp.RequestCtx) {
	rest := ctx.RequestBodyStream()
	if rest == nil || ctx.Response.ConnectionClose() { // closing drains it, after the answer
		return
	}
	if n, err := io.CopyN(io.Discard, rest, maxSkipped+1); n > maxSkipped || err != nil && !errors.Is(err, io.EOF) {
		ctx.SetConnectionClose()
	}
}

// giveTime is for what fasthttp writes before a call has an answer: it sets no time for that,
// and that of the answer before may be over.
func giveTime(ctx *fasthttp.RequestCtx) {
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(WriteTimeout)) // fails where the write will
}

// refused answers what fasthttp could not read.
func (s *PlainServer) refused(ctx *fasthttp.RequestCtx, err error) {
	giveTime(ctx)
	var large *fasthttp.ErrSmallBuffer
	var late net.Error
	var bad badHeader
	switch {
	case errors.As(err, &bad):
		s.refuse(ctx, http.StatusBadRequest, string(bad))
	case errors.As(err, &large):
		p := largeHeader()
		s.refuse(ctx, p.status, p.detail)
	case errors.As(err, &late) && late.Timeout():
		s.refuse(ctx, http.StatusRequestTimeout, "The request was not sent in time.")
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		s.refuse(ctx, http.StatusNotImplemented, "Transfer-Encoding must be chunked.")
	default:
		s.refuse(ctx, http.StatusBadRequest, "This is not an HTTP/1.1 request, or its framing is ambiguous.")
	}
}

// refuse answers a request that no endpoint sees, and closes its connection.
func (s *PlainServer) refuse(ctx *fasthttp.RequestCtx, status int, detail string) {
	p := problem{kind: kindInvalid, status: status, detail: detail}
	if status == http.StatusInternalServerError {
		p.kind = kindInternal
	}
	x := plainExchange{ctx: ctx, server: s}
	x.send(status, fields{{"Cache-Control", "no-store"}, {"Content-Type", typeProblem}}, append(p.appendMembers([]byte{'{'}), '}', '\n'))
	ctx.SetConnectionClose()
}

// plainExchange is fasthttp's. fasthttp uses memory again, so all that leaves it is copied.
type plainExchange struct {
	ctx    *fasthttp.RequestCtx
	server *PlainServer
	host   string
	lines  []line // of the header
	stream io.Reader
}

// line is a header field, of memory of the request.
type line struct{ name, value []byte }

// read takes the header apart, and returns what is wrong with it. fasthttp keeps only the
// last of several lines of some fields.
func (x *plainExchange) read() (status int, detail string) {
	h := &x.ctx.Request.Header
	version := string(h.Protocol())
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return http.StatusHTTPVersionNotSupported, "The version must be HTTP/1.1."
	}
	hosts, lengths := 0, 0
	chunked := false
	for raw := h.RawHeaders(); len(raw) > 0; {
		var text []byte
		text, raw, _ = bytes.Cut(raw, []byte("\n"))
		text, ok := bytes.CutSuffix(text, []byte("\r"))
		if !ok { // headerCheck has not seen a request that was sent behind another
			return http.StatusBadRequest, string(bareLF)
		}
		if len(text) == 0 {
			break
		}
		name, value, ok := bytes.Cut(text, []byte(":"))
		value = bytes.Trim(value, " \t")
		if !ok || !isToken(name) {
			return http.StatusBadRequest, "A line of the header is no header field."
		}
		switch {
		case is(name, "Host"):
			hosts++
			x.host = string(value)
			continue
		case is(name, "Content-Length"):
			lengths++
		case is(name, "Transfer-Encoding"):
			if chunked || !strings.EqualFold(string(value), "chunked") {
				return http.StatusNotImplemented, "Transfer-Encoding must be chunked."
			}
			chunked = true
			continue
		case is(name, "Trailer"):
			continue
		case is(name, "Connection"):
			for option := range bytes.SplitSeq(value, []byte(",")) {
				if is(bytes.Trim(option, " \t"), "close") {
					x.ctx.SetConnectionClose()
				}
			}
		case is(name, "Expect") && !strings.EqualFold(string(value), "100-continue"):
			return http.StatusExpectationFailed, "Expect must be 100-continue, or left out."
		}
		x.lines = append(x.lines, line{name, value})
	}
	if hosts > 1 || hosts == 0 && version == "HTTP/1.1" || !httpguts.ValidHostHeader(x.host) {
		return http.StatusBadRequest, "A request has one header Host, with a host."
	}
	if chunked && lengths > 0 || lengths > 1 {
		return http.StatusBadRequest, "A body has one length: Content-Length, or Transfer-Encoding: chunked."
	}
	return x.readTarget(string(h.RequestURI()))
}

// readTarget checks a target that is not a plain path, and takes the host of one that has it.
func (x *plainExchange) readTarget(uri string) (status int, detail string) {
	if strings.HasPrefix(uri, "/") && !strings.Contains(uri, "%") {
		return 0, ""
	}
	u, err := url.ParseRequestURI(uri)
	switch {
	case err != nil:
		return http.StatusBadRequest, "The target of the request is not well-formed."
	case u.Host != "":
		x.host = u.Host
	}
	return 0, ""
}

func isToken(name []byte) bool {
	for _, c := range name {
		if !httpguts.IsTokenRune(rune(c)) {
			return false
		}
	}
	return len(name) > 0
}

// is compares names without regard to case.
func is(name []byte, other string) bool {
	return len(name) == len(other) && strings.EqualFold(string(name), other)
}

func (x *plainExchange) method() string                    { return string(x.ctx.Method()) }
func (x *plainExchange) target() string                    { return string(x.ctx.Request.Header.RequestURI()) }
func (x *plainExchange) hostField() string                 { return x.host }
func (x *plainExchange) remote() string                    { return x.ctx.RemoteAddr().String() }
func (*plainExchange) certificates() [][]*x509.Certificate { return nil }
func (*plainExchange) context() context.Context            { return context.Background() }

func (x *plainExchange) values(name string) (values []string) {
	for i := range x.lines {
		if is(x.lines[i].name, name) {
			values = append(values, string(x.lines[i].value))
		}
	}
	return values
}

func (x *plainExchange) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range x.lines {
			if !yield(string(x.lines[i].name)) {
				return
			}
		}
	}
}

func (x *plainExchange) connection() *connection { return ownConnection(x.ctx.Conn()) }

func (x *plainExchange) body() (io.Reader, int64) {
	x.stream = x.ctx.RequestBodyStream()
	if x.stream == nil {
		return http.NoBody, 0
	}
	return x, int64(x.ctx.Request.Header.ContentLength())
}

// Read reads the body. All of it was read without meeting the end of the connection.
func (x *plainExchange) Read(b []byte) (int, error) {
	n, err := x.stream.Read(b)
	if c, ok := x.ctx.Conn().(*timedConn); ok && c.ended && err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (x *plainExchange) send(status int, header fields, body []byte) {
	r := &x.ctx.Response
	closes := r.ConnectionClose()
	x.server.addDate(&r.Header)
	r.SetStatusCode(status)
	for _, f := range header {
		r.Header.Add(f.name, f.value) // each is there once
	}
	if closes {
		r.SetConnectionClose()
	}
	r.SetBody(body)
}

// takeBack implements exchange: the answer is sent when the call has ended.
func (*plainExchange) takeBack() bool { return true }

// datedHeader has the Date field of a second, and nothing else.
type datedHeader struct {
	unix   int64
	header fasthttp.ResponseHeader
}

// addDate puts a Date field into an empty header. fasthttp drops one that is set, and keeps one that it has read.
func (s *PlainServer) addDate(h *fasthttp.ResponseHeader) {
	now := time.Now()
	d := s.date.Load()
	if d == nil || d.unix != now.Unix() {
		d = &datedHeader{unix: now.Unix()}
		h.CopyTo(&d.header) // its settings
		text := "HTTP/1.1 200 \r\nContent-Length: 0\r\nDate: " + now.UTC().Format(http.TimeFormat) + "\r\n\r\n"
		_ = d.header.Read(bufio.NewReader(strings.NewReader(text))) // never fails
		s.date.Store(d)
	}
	d.header.CopyTo(h)
}
