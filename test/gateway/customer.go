package gateway

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Question is one request of a customer.
type Question struct {
	Method string // GET by default
	Path   string // /status by default
	As     string // the tenant whose proof is shown; none when empty, a wrong one for a tenant that is not known
	From   string // the customer's address, 127.0.0.1 by default
	Header http.Header
	Body   string
}

// Customer asks one gateway.
type Customer struct {
	// Addr is where the gateway takes requests.
	Addr string
	// Prove adds a tenant's proof of identity to a request.
	Prove func(req *http.Request, tenant string)
}

// APIKey proves identity by the field X-API-Key, with the keys of the examples.
func APIKey(req *http.Request, tenant string) { req.Header.Set("X-API-Key", "demo-key-"+tenant) }

// Ask sends one request, over a connection of its own.
func (c Customer) Ask(t *testing.T, q Question) Answer {
	t.Helper()
	if q.Method == "" {
		q.Method = http.MethodGet
	}
	if q.Path == "" {
		q.Path = "/status"
	}
	req, err := http.NewRequestWithContext(t.Context(), q.Method, "http://"+c.Addr+q.Path, strings.NewReader(q.Body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range q.Header {
		req.Header[name] = values
	}
	if q.As != "" {
		c.Prove(req, q.As)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(q.From)}}
	client := http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("ask %s %s: %v", q.Method, q.Path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer to %s %s: %v", q.Method, q.Path, err)
	}
	return Answer{Question: q, Status: resp.StatusCode, Header: resp.Header, Text: string(body)}
}

// Exhaust asks n times, each of which must be allowed.
func (c Customer) Exhaust(t *testing.T, q Question, n int) {
	t.Helper()
	for range n {
		c.Ask(t, q).Is(t, http.StatusOK)
	}
}
