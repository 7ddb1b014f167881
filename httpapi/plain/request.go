package plain

import (
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

// header has the lines of a header.
type header []line

type line struct{ name, value string }

// Values implements httpapi.Header.
func (h header) Values(name string) (values []string) {
	for i := range h {
		if same(h[i].name, name) {
			values = append(values, h[i].value)
		}
	}
	return values
}

// same reports whether two names of fields, in ASCII, are equal but for case.
func same(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// Names implements httpapi.Header.
func (h header) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range h {
			if !yield(h[i].name) {
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
func read(ctx *fasthttp.RequestCtx) (r httpapi.Request, status int, detail string) {
	sent := &ctx.Request.Header
	r = httpapi.Request{
		Method: string(ctx.Method()), Target: string(sent.RequestURI()), Remote: ctx.RemoteAddr(),
		Context: context.Background(), Conn: conn.Of(ctx.Conn()), Body: http.NoBody,
	}
	if ctx.RequestBodyStream() != nil {
		r.Body, r.Length = body{ctx}, int64(sent.ContentLength())
	}
	version := string(sent.Protocol())
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return r, http.StatusHTTPVersionNotSupported, "The version must be HTTP/1.1."
	}
	lines := make(header, 0, 8)
	hosts, lengths := 0, 0
	chunked := false
	for raw := string(sent.RawHeaders()); raw != ""; { // copied: fasthttp uses its memory again
		var text string
		text, raw, _ = strings.Cut(raw, "\n")
		text, ok := strings.CutSuffix(text, "\r")
		if !ok {
			return r, http.StatusBadRequest, string(bareLF)
		}
		if text == "" {
			break
		}
		name, value, ok := strings.Cut(text, ":")
		value = strings.Trim(value, " \t")
		if !ok || !isToken(name) {
			return r, http.StatusBadRequest, "A line of the header is no header field."
		}
		switch {
		case same(name, "Host"):
			hosts++
			r.Host = value
			continue
		case same(name, "Content-Length"):
			lengths++
		case same(name, "Transfer-Encoding"):
			if chunked || !strings.EqualFold(value, "chunked") {
				return r, http.StatusNotImplemented, "Transfer-Encoding must be chunked."
			}
			chunked = true
			continue
		case same(name, "Trailer"):
			continue
		case same(name, "Connection"):
			for option := range strings.SplitSeq(value, ",") {
				if strings.EqualFold(strings.Trim(option, " \t"), "close") {
					ctx.SetConnectionClose()
				}
			}
		case same(name, "Expect") && !strings.EqualFold(value, "100-continue"):
			return r, http.StatusExpectationFailed, "Expect must be 100-continue, or left out."
		}
		lines = append(lines, line{name, value})
	}
	r.Header = lines
	if hosts > 1 || hosts == 0 && version == "HTTP/1.1" || !httpguts.ValidHostHeader(r.Host) {
		return r, http.StatusBadRequest, "A request has one header Host, with a host."
	}
	if chunked && lengths > 0 || lengths > 1 {
		return r, http.StatusBadRequest, "A body has one length: Content-Length, or Transfer-Encoding: chunked."
	}
	if !strings.HasPrefix(r.Target, "/") || strings.Contains(r.Target, "%") { // no plain path
		u, err := url.ParseRequestURI(r.Target)
		if err != nil {
			return r, http.StatusBadRequest, "The target of the request is not well-formed."
		}
		if u.Host != "" {
			r.Host = u.Host
		}
	}
	return r, 0, ""
}

func isToken(name string) bool {
	for _, c := range name {
		if !httpguts.IsTokenRune(c) {
			return false
		}
	}
	return len(name) > 0
}
