package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/regiond/regiond/httpapi/answer"
	"github.com/regiond/regiond/httpapi/conn"
)

// Request is what an engine has read: net/http in this file, fasthttp in package plain, or a gateway
// over gRPC in forwarded.go. What Header returns may be kept.
type Request struct {
	Method, Target string // as they were sent
	Host           string
	Remote         fmt.Stringer // the peer's address
	Header         Header
	Chains         [][]*x509.Certificate // the client's, as it was verified
	Context        context.Context       //nolint:containedctx // it is one request
	Conn           *conn.Conn            // nil for one that is not bounded
	Body           io.Reader
	Length         int64 // of the body; less than 0: not known
}

// Header has the header fields of a request; Host is none.
type Header interface {
	Values(name string) []string // its lines, in order
	Names() iter.Seq[string]
}

// Response is a whole answer.
type Response struct {
	Status int
	Fields answer.Fields
	Body   []byte
}

// address is one that is known as text.
type address string

// String implements fmt.Stringer.
func (a address) String() string { return string(a) }

// standardHeader is net/http's.
type standardHeader struct{ http.Header }

// Names implements Header.
func (h standardHeader) Names() iter.Seq[string] { return maps.Keys(h.Header) }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.newCall(&Request{
		Method: r.Method, Target: r.RequestURI, Host: r.Host, Remote: address(r.RemoteAddr), Header: standardHeader{r.Header},
		Context: r.Context(), Conn: conn.From(r.Context()), Body: r.Body, Length: r.ContentLength,
	})
	c.w, c.r = w, r
	if r.TLS != nil {
		c.Chains = r.TLS.VerifiedChains
	}
	if r.ProtoMajor == 2 {
		if c.crowded = !c.Conn.BeginStream(); !c.crowded {
			defer c.Conn.EndStream()
		}
	}
	c.serve()
	if c.mounted {
		return
	}
	fields := w.Header()
	for _, f := range c.Fields {
		fields[f.Name] = []string{f.Value}
	}
	w.WriteHeader(c.Status)
	_, _ = w.Write(c.Response.Body) // fails when the client has disconnected
}

// large reports whether the header is above MaxHeaderBytes, which net/http lets pass over HTTP/2 alone.
func (c *call) large() bool {
	if c.r == nil || c.r.ProtoMajor < 2 {
		return false
	}
	size := len(c.Target)
	for name, values := range c.r.Header {
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return size > MaxHeaderBytes
}

// Limits of a connection. A gateway on the same network needs far less of each;
// what exceeds them is an attack or an accident.
const (
	// ReadHeaderTimeout bounds a client that sends its header slowly.
	ReadHeaderTimeout = 2 * time.Second
	// ReadTimeout bounds header and body together.
	ReadTimeout = 5 * time.Second
	// WriteTimeout bounds a client that does not read its answer.
	WriteTimeout = 5 * time.Second
	// ResetTimeout bounds DELETE /v1/usage/{tenant}, which scans every key of a
	// store and cannot keep the deadline of an answer. The second left of
	// WriteTimeout is for the answer that reports the timeout.
	ResetTimeout = WriteTimeout - time.Second
	// IdleTimeout is longer than the keep-alive of common gateways.
	IdleTimeout = 60 * time.Second
	// MaxHeaderBytes bounds all header lines together.
	MaxHeaderBytes = 16 << 10
	// MaxStreams bounds the requests that are under way on a connection of HTTP/2. Each beyond
	// the first takes a place of the bound of connections.
	MaxStreams = 64

	// maxReadHTTP2 is how much of a header is read over HTTP/2, where each field counts 32 bytes more. What is above
	// MaxHeaderBytes is refused once it is read: net/http ends the connection with all of its requests where a client
	// sends more than it takes, and a client that heeds that sends nothing, which gateways take for an outage. Envoy
	// sends 60 KiB in 100 fields.
	maxReadHTTP2 = 64 << 10
)

// NewServer returns a server for a handler of this package with every limit
// set. It speaks HTTP/1.1, and HTTP/2 only over TLS; the caller provides the
// listener, which comes from bound.Listen, and the TLSConfig. Errors of net/http are
// logged as warnings, at most ten a second. bound may be nil.
func NewServer(h http.Handler, log *slog.Logger, bound *conn.Bound) *http.Server {
	s, over2 := server(h, bound, MaxHeaderBytes), server(h, bound, maxReadHTTP2)
	s.ErrorLog = slog.NewLogLogger(NewLogLimit().Handler(log.Handler()), slog.LevelWarn)
	over2.ErrorLog = s.ErrorLog
	var once sync.Once
	s.BaseContext = func(net.Listener) context.Context { // once Serve has set up HTTP/2, and before it accepts
		once.Do(func() {
			for name, serve := range s.TLSNextProto {
				s.TLSNextProto[name] = func(_ *http.Server, c *tls.Conn, h http.Handler) { serve(over2, c, h) }
			}
		})
		return context.Background()
	}
	return s
}

func server(h http.Handler, bound *conn.Bound, maxHeader int) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	s := &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: ReadHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: MaxStreams,
			// net/http's are 1 MiB each, for a connection that has sent a few bytes.
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerConnection: MaxBody,
			MaxReceiveBufferPerStream:     MaxBody,
			WriteByteTimeout:              WriteTimeout,
		},
	}
	bound.Watch(s)
	return s
}
