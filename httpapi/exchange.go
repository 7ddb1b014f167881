package httpapi

import (
	"context"
	"crypto/x509"
	"io"
	"iter"
	"maps"
	"net/http"
)

// exchange is one request and the means to answer it, on either engine: net/http's in this
// file, fasthttp's in plain.go. What it returns may be kept; it may not be called once the
// call has ended.
type exchange interface {
	method() string
	target() string // as it was sent
	hostField() string
	remote() string                      // the peer's address
	values(name string) []string         // lines of a header field, in order; Host is none
	names() iter.Seq[string]             // of all header fields
	certificates() [][]*x509.Certificate // the client's, as it was verified
	context() context.Context
	connection() *connection              // nil for one that is not bounded
	body() (from io.Reader, length int64) // less than 0: not known
	send(status int, header fields, body []byte)
	takeBack() bool // reports whether what was sent is withdrawn
}

// fields are the header fields of an answer, by names as they are sent.
type fields []field

type field struct{ name, value string }

func (fs *fields) set(name, value string) {
	for i := range *fs {
		if (*fs)[i].name == name {
			(*fs)[i].value = value
			return
		}
	}
	*fs = append(*fs, field{name, value})
}

// standardExchange is net/http's.
type standardExchange struct {
	w       http.ResponseWriter
	r       *http.Request
	crowded bool // there is no room for this request
}

// large reports whether the header is above MaxHeaderBytes, which net/http lets pass over HTTP/2 alone.
func (x *standardExchange) large() bool {
	if x.r == nil || x.r.ProtoMajor < 2 {
		return false
	}
	size := len(x.r.RequestURI)
	for name, values := range x.r.Header {
		for _, value := range values {
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	return size > MaxHeaderBytes
}

func (x *standardExchange) method() string              { return x.r.Method }
func (x *standardExchange) target() string              { return x.r.RequestURI }
func (x *standardExchange) hostField() string           { return x.r.Host }
func (x *standardExchange) remote() string              { return x.r.RemoteAddr }
func (x *standardExchange) values(name string) []string { return x.r.Header.Values(name) }
func (x *standardExchange) names() iter.Seq[string]     { return maps.Keys(x.r.Header) }
func (x *standardExchange) context() context.Context    { return x.r.Context() }
func (x *standardExchange) takeBack() bool              { return false }

func (x *standardExchange) certificates() [][]*x509.Certificate {
	if x.r.TLS == nil {
		return nil
	}
	return x.r.TLS.VerifiedChains
}

func (x *standardExchange) connection() *connection {
	own, _ := x.r.Context().Value(connectionKey{}).(*connection)
	return own
}

func (x *standardExchange) body() (io.Reader, int64) { return x.r.Body, x.r.ContentLength }

func (x *standardExchange) send(status int, header fields, body []byte) {
	h := x.w.Header()
	values := make([]string, len(header))
	for i, f := range header {
		values[i] = f.value
		h[f.name] = values[i : i+1 : i+1]
	}
	x.w.WriteHeader(status)
	if len(body) > 0 {
		_, _ = x.w.Write(body) // fails when the client has disconnected
	}
}
