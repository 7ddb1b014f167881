// Package plain serves HTTP/1.1 without TLS, on fasthttp: the same answers as net/http for about half of its
// processor time.
//
//	plain.go    the server, and what it makes of a request
//	request.go  a request's header, read as strictly as net/http does
//	conn.go     a connection
//
// It is stricter about what it reads: whatever net/http refuses, it refuses. A client that goes away does not end
// its call, so what it asked for may be charged.
package plain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
)

// Server has every limit of httpapi.NewServer.
type Server struct {
	Handler *httpapi.Handler

	fast    *fasthttp.Server
	date    atomic.Pointer[datedHeader]
	stopped context.Context //nolint:containedctx // ends with the first Shutdown
	stop    context.CancelFunc
	closed  context.Context //nolint:containedctx // ends a Shutdown that waits
	cut     context.CancelFunc
}

// maxConnections is more than a bound has, so that fasthttp has none of its own.
const maxConnections = 1 << 20

// New returns a server. The listener comes from that of a bound. Errors of connections
// are logged as warnings, at most ten a second.
func New(h *httpapi.Handler, log *slog.Logger) *Server {
	s := &Server{Handler: h}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.closed, s.cut = context.WithCancel(context.Background())
	s.fast = &fasthttp.Server{
		Handler:      s.serve,
		ErrorHandler: s.refused,
		ExpectHandler: func(ctx *fasthttp.RequestCtx) int {
			giveTime(ctx)
			return http.StatusContinue
		},
		ConnState: func(c net.Conn, state fasthttp.ConnState) {
			if w, ok := c.(*watched); ok {
				w.header.enter(state)
			}
			conn.Of(c).Enter(http.ConnState(state)) // the same states
		},
		Logger: slog.NewLogLogger(httpapi.NewLogLimit().Handler(log.Handler()), slog.LevelWarn),
		// Of the header; the rest is for the body.
		ReadTimeout: httpapi.ReadHeaderTimeout,
		HeaderReceived: func(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
			if !h.IsHTTP11() {
				h.Del("Expect") // RFC 9110, 10.1.1: such a client cannot read 100
			}
			return fasthttp.RequestConfig{ReadTimeout: httpapi.ReadTimeout - httpapi.ReadHeaderTimeout}
		},
		WriteTimeout:       httpapi.WriteTimeout,
		IdleTimeout:        httpapi.IdleTimeout,
		ReadBufferSize:     httpapi.MaxHeaderBytes,
		MaxRequestBodySize: httpapi.MaxBody,
		Concurrency:        maxConnections,
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
	return s
}

// Serve answers the connections of a listener until Shutdown or Close; it then, or if that
// was before, closes the listener and returns http.ErrServerClosed.
func (s *Server) Serve(l net.Listener) error {
	// fasthttp knows nothing of a Shutdown before it has begun to serve.
	defer context.AfterFunc(s.stopped, func() {
		_ = l.Close() // or fasthttp has
	})()
	if err := s.fast.Serve(patientListener{l}); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return http.ErrServerClosed
}

// ServeConn answers the requests of one connection, as Serve does.
func (s *Server) ServeConn(c net.Conn) error { return s.fast.ServeConn(watch(c)) }

// Shutdown closes the listener and idle connections, and waits for the others until ctx
// ends or Close is called.
func (s *Server) Shutdown(ctx context.Context) error {
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
func (s *Server) Close() error {
	s.cut()
	if err := s.Shutdown(s.closed); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve answers one request.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	r, status, detail := read(ctx)
	if detail != "" {
		s.refuse(ctx, status, detail)
		return
	}
	s.send(ctx, s.Handler.Answer(&r), ctx.Time()) // and fasthttp skips what was not read of the body
}

// giveTime is for what fasthttp writes before a call has an answer: it sets no time for that,
// and that of the answer before may be over.
func giveTime(ctx *fasthttp.RequestCtx) {
	_ = ctx.Conn().SetWriteDeadline(time.Now().Add(httpapi.WriteTimeout)) // fails where the write will
}

// refused answers what fasthttp could not read.
func (s *Server) refused(ctx *fasthttp.RequestCtx, err error) {
	giveTime(ctx)
	var large *fasthttp.ErrSmallBuffer
	var late net.Error
	var bad badHeader
	switch {
	case errors.As(err, &bad):
		s.refuse(ctx, http.StatusBadRequest, string(bad))
	case errors.As(err, &large):
		s.refuse(ctx, http.StatusRequestHeaderFieldsTooLarge, httpapi.LargeHeader())
	case errors.As(err, &late) && late.Timeout():
		s.refuse(ctx, http.StatusRequestTimeout, "The request was not sent in time.")
	case errors.Is(err, fasthttp.ErrUnsupportedTransferEncoding):
		s.refuse(ctx, http.StatusNotImplemented, "Transfer-Encoding must be chunked.")
	default:
		s.refuse(ctx, http.StatusBadRequest, "This is not an HTTP/1.1 request, or its framing is ambiguous.")
	}
}

// refuse answers a request that no endpoint sees, and closes its connection.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, status int, detail string) {
	s.send(ctx, httpapi.Refuse(status, detail), time.Now())
	ctx.SetConnectionClose()
}

func (s *Server) send(ctx *fasthttp.RequestCtx, a httpapi.Response, now time.Time) {
	r := &ctx.Response
	closes := r.ConnectionClose()
	s.addDate(&r.Header, now)
	r.SetStatusCode(a.Status)
	for _, f := range a.Fields {
		r.Header.Add(f.Name, f.Value) // each is there once
	}
	if closes {
		r.SetConnectionClose()
	}
	r.SetBodyRaw(a.Body)
}

// datedHeader has the Date field of a second, and nothing else.
type datedHeader struct {
	unix   int64
	header fasthttp.ResponseHeader
}

// addDate puts a Date field into an empty header. fasthttp drops one that is set, and keeps one that it has read.
func (s *Server) addDate(h *fasthttp.ResponseHeader, now time.Time) {
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
