package gateway

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// Received is one request as a Server received it.
type Received struct {
	Method, Host, URI, Body string
	Header                  http.Header
}

// Server records its requests. It is the app behind a gateway, or replaces
// regiond. It is safe for concurrent use.
type Server struct {
	// Addr is host:port on loopback.
	Addr string

	mu  sync.Mutex
	got []Received // guarded by mu
}

const appBody = "hello from the app\n"

// NewApp starts the app behind a gateway.
func NewApp(t *testing.T) *Server {
	t.Helper()
	return NewServer(t, http.StatusOK, nil, appBody)
}

// NewServer starts a server that always returns the same response.
func NewServer(t *testing.T, status int, header http.Header, body string) *Server {
	t.Helper()
	s := &Server{}
	s.Addr = Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, Received{Method: r.Method, Host: r.Host, URI: r.RequestURI, Body: string(text), Header: r.Header.Clone()})
		s.mu.Unlock()
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	return s
}

// Requests returns the requests so far, oldest first.
func (s *Server) Requests() []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// Serve serves a handler on loopback and returns its address. The handler may be
// the model of a gateway that is not installed: it does with each request what the
// gateway's documentation says, as the example's file configures it.
func Serve(t *testing.T, h http.Handler) (addr string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Proxy returns the last step of a modelled gateway: it forwards requests to the
// app unchanged.
func Proxy(app string) http.Handler {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: app})
			if from, ok := r.In.Header["X-Forwarded-For"]; ok { // Rewrite gets it removed
				r.Out.Header["X-Forwarded-For"] = from
			}
		},
	}
}

// AppendForwardedFor adds the peer's address to X-Forwarded-For, as proxies do.
func AppendForwardedFor(r *http.Request) {
	peer := Peer(r)
	if prior := r.Header.Get("X-Forwarded-For"); prior != "" {
		peer = prior + ", " + peer
	}
	r.Header.Set("X-Forwarded-For", peer)
}

// Peer is the address that a request came from, without the port.
func Peer(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// Reply is regiond's response to a modelled gateway.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Call sends regiond a request without a body and with these header fields. The
// target is sent byte for byte, as the customer wrote it. Redirects are not followed.
func Call(r *http.Request, regiond, method, target string, header http.Header, timeout time.Duration) (Reply, error) {
	req := (&http.Request{
		Method: method, URL: &url.URL{Scheme: "http", Host: regiond, Opaque: target}, Host: r.Host, Header: header,
	}).WithContext(r.Context())
	client := http.Client{
		Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Reply{Status: resp.StatusCode, Header: resp.Header, Body: body}, err
}

// Relay writes regiond's response to the customer, with the fields that keep
// selects, or all of them when it is nil.
func (r Reply) Relay(w http.ResponseWriter, keep func(field string) bool) {
	for field, values := range r.Header {
		if field != "Content-Length" && (keep == nil || keep(field)) {
			w.Header()[field] = values
		}
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body)
}
