package plain

import (
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/conn"
)

// header has the lines of a header, in memory that fasthttp uses again: what leaves it is copied.
type header []line

type line struct{ name, value []byte }

// Values implements httpapi.Header.
func (h header) Values(name string) (values []string) {
	for i := range h {
		if is(h[i].name, name) {
			values = append(values, string(h[i].value))
		}
	}
	return values
}

// Names implements httpapi.Header.
func (h header) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range h {
			if !yield(string(h[i].name)) {
				return
			}
		}
	}
}

// body reads a body. All of it was read without meeting the end of the connection.
type body struct{ ctx *fasthttp.RequestCtx }

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ctx.RequestBodyStream().Read(p)
	if c, ok := b.ctx.Conn().(*watched); ok && c.ended && err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// read returns a request, or what is wrong with it. It takes the header apart itself: fasthttp keeps
// only the last of several lines of some fields.
func read(ctx *fasthttp.RequestCtx) (r *httpapi.Request, status int, detail string) {
	sent := &ctx.Request.Header
	r = &httpapi.Request{
		Method: string(ctx.Method()), Target: string(sent.RequestURI()), Remote: func() string { return ctx.RemoteAddr().String() },
		Context: context.Background(), Conn: conn.Of(ctx.Conn()), Body: http.NoBody,
	}
	if ctx.RequestBodyStream() != nil {
		r.Body, r.Length = body{ctx}, int64(sent.ContentLength())
	}
	version := string(sent.Protocol())
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return nil, http.StatusHTTPVersionNotSupported, "The version must be HTTP/1.1."
	}
	lines := make(header, 0, 16)
	hosts, lengths := 0, 0
	chunked := false
	for raw := sent.RawHeaders(); len(raw) > 0; {
		var text []byte
		text, raw, _ = bytes.Cut(raw, []byte("\n"))
		text, ok := bytes.CutSuffix(text, []byte("\r"))
		if !ok {
			return nil, http.StatusBadRequest, string(bareLF)
		}
		if len(text) == 0 {
			break
		}
		name, value, ok := bytes.Cut(text, []byte(":"))
		value = bytes.Trim(value, " \t")
		if !ok || !isToken(name) {
			return nil, http.StatusBadRequest, "A line of the header is no header field."
		}
		switch {
		case is(name, "Host"):
			hosts++
			r.Host = string(value)
			continue
		case is(name, "Content-Length"):
			lengths++
		case is(name, "Transfer-Encoding"):
			if chunked || !strings.EqualFold(string(value), "chunked") {
				return nil, http.StatusNotImplemented, "Transfer-Encoding must be chunked."
			}
			chunked = true
			continue
		case is(name, "Trailer"):
			continue
		case is(name, "Connection"):
			for option := range bytes.SplitSeq(value, []byte(",")) {
				if is(bytes.Trim(option, " \t"), "close") {
					ctx.SetConnectionClose()
				}
			}
		case is(name, "Expect") && !strings.EqualFold(string(value), "100-continue"):
			return nil, http.StatusExpectationFailed, "Expect must be 100-continue, or left out."
		}
		lines = append(lines, line{name, value})
	}
	r.Header = lines
	if hosts > 1 || hosts == 0 && version == "HTTP/1.1" || !httpguts.ValidHostHeader(r.Host) {
		return nil, http.StatusBadRequest, "A request has one header Host, with a host."
	}
	if chunked && lengths > 0 || lengths > 1 {
		return nil, http.StatusBadRequest, "A body has one length: Content-Length, or Transfer-Encoding: chunked."
	}
	if !strings.HasPrefix(r.Target, "/") || strings.Contains(r.Target, "%") { // no plain path
		u, err := url.ParseRequestURI(r.Target)
		if err != nil {
			return nil, http.StatusBadRequest, "The target of the request is not well-formed."
		}
		if u.Host != "" {
			r.Host = u.Host
		}
	}
	return r, 0, ""
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
