package gateway

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"
)

// Serve runs a handler that stands in for a gateway which is not at hand: it does
// with each request what the gateway's contract says, as the example's file
// configures it. It returns where customers come in.
func Serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// PassOn returns the last step of a stand-in: the request goes to the app as it is.
func PassOn(app string) http.Handler {
	return &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: app})
			if from, ok := r.In.Header["X-Forwarded-For"]; ok { // which Rewrite finds removed
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
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// Reply is what regiond answered to a stand-in.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Put asks regiond a question without a body, with the header fields given and no
// others of consequence. The target is sent byte for byte: what a customer made of
// a path is what regiond has to judge. Redirects are not followed.
func Put(r *http.Request, regiond, method, target string, header http.Header, timeout time.Duration) (Reply, error) {
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

// Relay writes regiond's answer to the customer, with the fields that keep says,
// or all of them when it is nil.
func (r Reply) Relay(w http.ResponseWriter, keep func(field string) bool) {
	for field, values := range r.Header {
		if field != "Content-Length" && (keep == nil || keep(field)) {
			w.Header()[field] = values
		}
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body)
}
