package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/plain"
	"github.com/regiond/regiond/quota"
)

// outcome is what came of bytes that a client sent: what the limiter was asked, and the answers.
type outcome struct {
	calls   []string
	answers []reply
	raw     string // the answers as they were sent
}

// both sends the same bytes to both engines.
func both(t *testing.T, sent []byte) (standard, fast outcome) {
	t.Helper()
	run := func(serve func(h *httpapi.Handler) connServer) outcome {
		f := &fake{decide: func(_ context.Context, r quota.Request) (quota.Decision, error) {
			if strings.HasPrefix(r.Tenant, "d") {
				return denied(r), nil
			}
			return allowed(r), nil
		}}
		o := options(f)
		o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
		h := handler(t, o)
		var out outcome
		method, _, _ := strings.Cut(string(sent), " ")
		out.answers, out.raw = exchange(serve(h), "192.0.2.1:1234", bytes.NewReader(sent), method)
		out.calls = f.asked
		return out
	}
	log := slog.New(slog.DiscardHandler)
	standard = run(func(h *httpapi.Handler) connServer { return once{httpapi.NewServer(h, log, nil)} })
	fast = run(func(h *httpapi.Handler) connServer { return plain.New(h, log) })
	return standard, fast
}

// once serves one connection with net/http.
type once struct{ *http.Server }

// ServeConn serves a connection until it is closed.
func (s once) ServeConn(c net.Conn) error {
	l := make(onceListener, 1)
	l <- c
	s.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(l)
		}
	}
	return s.Serve(l)
}

type onceListener chan net.Conn

func (l onceListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, io.EOF
}

func (onceListener) Close() error   { return nil }
func (onceListener) Addr() net.Addr { return text("127.0.0.1:80") }

// judge compares: what net/http refuses the other refuses, and what both answer they
// answer alike. stricter reports that only net/http accepted it.
func judge(t *testing.T, sent []byte, standard, fast outcome) (stricter bool) {
	t.Helper()
	if len(fast.calls) < len(standard.calls) {
		n := len(fast.calls)
		stricter = len(fast.answers) > n && fast.answers[n].status >= 400 || len(fast.answers) == n
		standard.calls, standard.answers = standard.calls[:n], standard.answers[:min(n, len(standard.answers))]
		fast.answers = fast.answers[:n]
		if !stricter {
			t.Errorf("%q: fasthttp did not refuse: %+v", sent, fast)
		}
	}
	if !slices.Equal(standard.calls, fast.calls) {
		t.Fatalf("%q:\nnet/http asked %q\nfasthttp asked %q", sent, standard.calls, fast.calls)
	}
	for _, answer := range fast.answers {
		isDated(t, answer)
	}
	for i := range standard.calls {
		if i >= len(standard.answers) || i >= len(fast.answers) {
			continue // the answer had no reader
		}
		isDated(t, standard.answers[i])
		a, b := standard.answers[i], fast.answers[i]
		for _, name := range []string{"Connection", "Date"} {
			delete(a.header, name)
			delete(b.header, name)
		}
		if a.status != b.status || a.body != b.body || !reflect.DeepEqual(a.header, b.header) {
			t.Fatalf("%q, answer %d:\nnet/http %+v\nfasthttp %+v", sent, i, a, b)
		}
	}
	return stricter
}

// isDated checks that an answer has the time, once. 100 has none.
func isDated(t *testing.T, r reply) {
	t.Helper()
	if r.status == http.StatusContinue {
		return
	}
	at, err := http.ParseTime(r.field("Date"))
	if err != nil || time.Since(at) > time.Minute || time.Since(at) < 0 {
		t.Errorf("an answer has the date %q", r.field("Date"))
	}
}

const jsonCheck = `{"tenant":"acme","cost":2}`

func post(header, body string) string {
	return "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\n" + header + "\r\n" + body
}

func sized(header, body string) string {
	return post(fmt.Sprintf("%sContent-Length: %d\r\n", header, len(body)), body)
}

// honest are requests as gateways and clients send them.
func honest() []string {
	check := sized("Content-Type: application/json\r\n", jsonCheck)
	return []string{
		check, check + check + check,
		sized("content-type: application/json\r\nx-request-id: 7\r\nuser-agent: curl/8\r\naccept: */*\r\n", jsonCheck),
		sized("Content-Type: application/x-www-form-urlencoded\r\nAccept-Encoding: gzip\r\n", jsonCheck),
		sized("Idempotency-Key: k1\r\n", jsonCheck), sized("Idempotency-Key: k1\r\nIdempotency-Key: k2\r\n", jsonCheck),
		sized("Content-Type: application/json\r\nContent-Type: application/json\r\n", jsonCheck),
		sized("Content-Type: text/plain\r\n", jsonCheck), sized("Origin: http://a\r\n", jsonCheck),
		sized("Content-Encoding: gzip\r\n", jsonCheck), sized("Connection: close\r\n", jsonCheck), sized("Connection: keep-alive\r\n", jsonCheck),
		sized("Connection: Close\r\n", jsonCheck) + check, sized("connection: CLOSE\r\n", jsonCheck) + check, sized("Connection: TE, close\r\n", jsonCheck) + check,
		sized("Connection: keep-alive, close\r\n", jsonCheck) + check, sized("Connection: close\r\nConnection: keep-alive\r\n", jsonCheck) + check,
		sized("Connection: \tfoo ,\tclOse\t, bar\r\n", jsonCheck) + check, sized("Connection: closed, not-close\r\n", jsonCheck) + check,
		sized("Expect: 100-continue\r\n", jsonCheck), strings.Replace(sized("Expect: 100-continue\r\n", jsonCheck), "HTTP/1.1", "HTTP/1.0", 1),
		sized("", `{"tenant":"denied"}`), sized("", `{"tenant":""}`), sized("", `{`), sized("", ""), post("", ""),
		post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"),
		post("Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n", "A\r\n"+jsonCheck[:10]+"\r\n10\r\n"+jsonCheck[10:]+"\r\n0\r\nX-Sum: 1\r\n\r\n"),
		sized("", strings.Repeat(" ", httpapi.MaxBody-len(jsonCheck))+jsonCheck),
		strings.Replace(check, "/v1/check", "/v1/check?explain=1", 1), strings.Replace(check, "/v1/check", "http://127.0.0.1/v1/check", 1),
		strings.Replace(check, "/v1/check", "/v1/report", 1), strings.Replace(check, "HTTP/1.1", "HTTP/1.0", 1),
		strings.Replace(check, "127.0.0.1", "localhost:8080", 1), strings.Replace(check, "127.0.0.1", "[::1]:8080", 1),
		"POST /v1/check:batch HTTP/1.1\r\nHost: h\r\nContent-Length: 35\r\n\r\n" + `{"checks":[{"tenant":"a","cost":1}]}`[:35],
		"POST /v1/check%3Abatch HTTP/1.1\r\nHost: h\r\nContent-Length: 36\r\n\r\n" + `{"checks":[{"tenant":"a","cost":1}]}`,
		"GET /v1/usage/acme?policy=p&cost=3&dim.user=4%202 HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD /v1/usage/acme HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /v1/usage/a%2Fb HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/%C3%A9 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /v1/authz/x?y HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\nX-User: u\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n\r\n",
		"GET /v1/authz//login HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\nX-Tenant: b\r\n\r\n", "GET /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\nX_Tenant: b\r\n\r\n",
		"GET /v1/authz/public%2fx| HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\n\r\n", // of odd bytes, escapes are lost by net/url
		"PURGE /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\n\r\n", "OPTIONS /v1/authz/x HTTP/1.1\r\nHost: h\r\nx-tenant: acme\r\ncookie: a=b\r\ncookie: c=d\r\n\r\n",
		"POST /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("b", 100_000) + check,
		"POST /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + check,
		"GET /v1/authz HTTP/1.1\r\nHost: h\r\nX-Tenant: denied\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /a\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\n\r\n" + check, "DELETE /v1/check HTTP/1.1\r\nHost: h\r\n\r\n" + check, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
	}
}

// hostile are requests that servers read in different ways.
func hostile() []string {
	both := "Content-Length: 26\r\nTransfer-Encoding: chunked\r\n"
	return []string{
		"", "\r\n", "\n", "GET", "GET /", "GET / HTTP/1.1", "GET /v1/usage/a\r\n\r\n", "GET  /v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/a  HTTP/1.1\r\nHost: h\r\n\r\n",
		" GET /v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n", "GET\t/v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /v1/usage/a HTTP/1.2\r\nHost: h\r\n\r\n", "GET /v1/usage/a HTTP/2.0\r\nHost: h\r\n\r\n", "GET /v1/usage/a HTTP/0.9\r\n\r\n", "GET /v1/usage/a http/1.1\r\nHost: h\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\nHost:\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET /v1/usage/a HTTP/1.1\r\nHost: a b\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\nHost: a/b\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\nHost : h\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\n Host: h\r\n\r\n",
		"GET /v1/usage/%zz HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/a%0 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/a?%zz HTTP/1.1\r\nHost: h\r\n\r\n", "GET v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET //v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n", "GET http:///v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n", "GET http://a b/v1/usage/a HTTP/1.1\r\nHost: h\r\n\r\n", "GET http://evil/v1/usage/a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", "CONNECT /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: a\r\n\r\n", "G@T /v1/authz/x HTTP/1.1\r\nHost: h\r\n\r\n", "G(T /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: a\r\n\r\n",
		post(both, "1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"), post("Transfer-Encoding: chunked\r\nContent-Length: 26\r\n", jsonCheck), post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
		post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), post("Transfer-Encoding: identity\r\nContent-Length: 26\r\n", jsonCheck), post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
		post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"), post("Transfer-Encoding:\x0bchunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"),
		post("Transfer-Encoding : chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"), post("Transfer-Encoding:\r\n chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"),
		post("Content-Length: 26\r\nContent-Length: 26\r\n", jsonCheck), post("Content-Length: 26\r\nContent-Length: 5\r\n", jsonCheck), post("Content-Length: 26, 26\r\n", jsonCheck),
		post("Content-Length: +26\r\n", jsonCheck), post("Content-Length: -1\r\n", jsonCheck), post("Content-Length: 0x1a\r\n", jsonCheck), post("Content-Length: \r\n", jsonCheck), post("Content-Length: 99999999999999999999\r\n", jsonCheck),
		post("Content-Length: 100\r\n", jsonCheck), post("Content-Length: 10\r\n", jsonCheck), post("Content-Length : 26\r\n", jsonCheck), post("Content-Length: 70000\r\n", jsonCheck),
		post("Transfer-Encoding: chunked\r\n", "1a;x=y\r\n"+jsonCheck+"\r\n0\r\n\r\n"), post("Transfer-Encoding: chunked\r\n", "1a\n"+jsonCheck+"\n0\n\n"), post("Transfer-Encoding: chunked\r\n", "01a\r\n"+jsonCheck+"\r\n0\r\n\r\n"),
		post("Transfer-Encoding: chunked\r\n", "0x1a\r\n"+jsonCheck+"\r\n0\r\n\r\n"), post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"0\r\n\r\n"), post("Transfer-Encoding: chunked\r\n", "-1\r\n"+jsonCheck+"\r\n0\r\n\r\n"),
		// Cut short: what is there is whole JSON.
		post("Content-Length: 20000\r\n", jsonCheck+strings.Repeat(" ", 10_000)), post("Content-Length: 8193\r\n", jsonCheck+strings.Repeat(" ", 8192-len(jsonCheck))),
		post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n"), post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0"), post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\n"),
		post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\nX: y\r\n"), post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n5\r\nab"),
		post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff1\r\n"+jsonCheck), post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck+"\r\n0\r\nContent-Length: 5\r\n\r\n"), post("Transfer-Encoding: chunked\r\n", "1a\r\n"+jsonCheck),
		sized("X: a\r\n b\r\n", jsonCheck), sized("X: a\x00b\r\n", jsonCheck), sized("X: a\rb\r\n", jsonCheck), sized("X: a\nY: b\n", jsonCheck), sized("X\r\n", jsonCheck), sized(": x\r\n", jsonCheck), sized("X Y: z\r\n", jsonCheck),
		sized("X\x80: z\r\n", jsonCheck), sized("X: \xff\r\n", jsonCheck), sized("X: \x7f\r\n", jsonCheck), sized("X(: z\r\n", jsonCheck), sized("Expect: 200-ok\r\n", jsonCheck), sized("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n", jsonCheck),
		sized("X: "+strings.Repeat("a", 30_000)+"\r\n", jsonCheck), "GET /v1/usage/" + strings.Repeat("a", 30_000) + " HTTP/1.1\r\nHost: h\r\n\r\n", sized(strings.Repeat("A: b\r\n", 6000), jsonCheck),
		"GET /v1/usage/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/usage/b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nGET /v1/usage/b HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET /v1/usage/a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/usage/b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/usage/a HTTP/1.0\r\n\r\nGET /v1/usage/b HTTP/1.0\r\n\r\n",
		"GET /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: a\r\nX-Tenant : b\r\n\r\n", "GET /v1/authz/x HTTP/1.1\r\nHost: h\r\nX-Tenant: a\r\n b\r\n\r\n", "GET /v1/authz/x#y HTTP/1.1\r\nHost: h\r\nX-Tenant: a\r\n\r\n",
	}
}

// TestEnginesAgree: bytes that clients and attackers send are asked and answered alike by
// both engines, but that fasthttp may refuse more. Of honest requests it refuses none.
func TestEnginesAgree(t *testing.T) {
	for _, sent := range honest() {
		standard, fast := both(t, []byte(sent))
		if judge(t, []byte(sent), standard, fast) {
			t.Errorf("%q is refused: %+v, %+v", sent, standard, fast)
		}
		if len(standard.answers) != len(fast.answers) {
			t.Errorf("%q: %d and %d answers: %+v, %+v", sent, len(standard.answers), len(fast.answers), standard, fast)
		}
		for _, raw := range []string{standard.raw, fast.raw} {
			if strings.Contains(raw, "\r\nRatelimit") || strings.Contains(raw, "\r\nServer:") { // names are as they were set
				t.Errorf("%q is answered %q", sent, raw)
			}
		}
	}
	for _, sent := range hostile() {
		standard, fast := both(t, []byte(sent))
		if judge(t, []byte(sent), standard, fast) {
			t.Logf("only net/http accepts %.100q", sent)
		}
	}
}

// emptyLines before a request are skipped by fasthttp, as RFC 9112, 2.2 asks, and refused
// by net/http.
var emptyLines = regexp.MustCompile(`(^|\n\r?\n)\r?\n`)

// FuzzEngines: whatever a client sends, both engines ask the limiter the same.
func FuzzEngines(f *testing.F) {
	for _, sent := range append(honest(), hostile()...) {
		if len(sent) < 2000 {
			f.Add([]byte(sent))
		}
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		if emptyLines.Match(sent) {
			t.Skip("RFC 9112, 2.2")
		}
		standard, fast := both(t, sent)
		judge(t, sent, standard, fast)
	})
}
