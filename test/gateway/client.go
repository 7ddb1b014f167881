package gateway

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// Request is one request of a customer.
type Request struct {
	Method string // GET by default
	Path   string // /status by default
	As     string // the tenant to authenticate as; "" sends no credentials, an unknown tenant wrong ones
	From   string // the customer's address, 127.0.0.1 by default
	Header http.Header
	Body   string
}

// Customer is a client of one gateway.
type Customer struct {
	// Addr is where the gateway listens.
	Addr string
	// Authenticate adds a tenant's credentials to a request.
	Authenticate func(req *http.Request, tenant string)
}

// APIKey authenticates by X-API-Key, with the keys of the examples.
func APIKey(req *http.Request, tenant string) { req.Header.Set("X-API-Key", "demo-key-"+tenant) }

// Send sends one request, over a connection of its own.
func (c Customer) Send(t *testing.T, q Request) Response {
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
		c.Authenticate(req, q.As)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(q.From)}}
	client := http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", q.Method, q.Path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read the response: %v", q.Method, q.Path, err)
	}
	return Response{Request: q, Status: resp.StatusCode, Header: resp.Header, Text: string(body)}
}

// Exhaust sends n requests, each of which must be allowed.
func (c Customer) Exhaust(t *testing.T, q Request, n int) {
	t.Helper()
	for range n {
		c.Send(t, q).Is(t, http.StatusOK)
	}
}

// Response is what the customer received.
type Response struct {
	Request
	Status int
	Header http.Header
	Text   string
}

// Is fails the test unless the response has the status.
func (r Response) Is(t *testing.T, status int) {
	t.Helper()
	if r.Status != status {
		t.Fatalf("%s %s as %q = %d, want %d\n%v\n%s", r.Method, r.Path, r.As, r.Status, status, r.Header, r.Text)
	}
}

// Lacks checks that the response has none of the header fields.
func (r Response) Lacks(t *testing.T, fields ...string) {
	t.Helper()
	for _, f := range fields {
		if v, ok := r.Header[http.CanonicalHeaderKey(f)]; ok {
			t.Errorf("%s %s has %s: %q, want none", r.Method, r.Path, f, v)
		}
	}
}

// IsProblem fails the test unless the response has the status and a problem
// document of RFC 9457.
func (r Response) IsProblem(t *testing.T, status int) {
	t.Helper()
	r.Is(t, status)
	if ct := r.Header.Values("Content-Type"); len(ct) != 1 || ct[0] != "application/problem+json" {
		t.Errorf("Content-Type = %q, want application/problem+json once", ct)
	}
	var doc struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(r.Text), &doc); err != nil || doc.Status != status || doc.Type == "" || doc.Title == "" || doc.Detail == "" {
		t.Errorf("the problem document of %d is %+v, %v\n%s", status, doc, err, r.Text)
	}
}

// Param returns an integer parameter of the item `"name";…` in a field that is a
// list of RFC 9651.
func (r Response) Param(t *testing.T, field, name, param string) int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(r.Header.Values(field))
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok && item.Value == name {
			v, _ := item.Params.Get(param)
			if n, ok := v.(int64); ok {
				return n
			}
		}
	}
	t.Fatalf("%s: %q has no item %q with an integer %s (%v)", field, r.Header.Values(field), name, param, err)
	return 0
}
