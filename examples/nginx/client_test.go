//go:build unix

package nginx_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// The keys of nginx.conf.
const (
	acme   = "demo-key-acme"
	globex = "demo-key-globex"
	hobby  = "demo-key-hobby"
)

// question is one request of a customer.
type question struct {
	method string // GET by default
	path   string // /status by default
	key    string // X-API-Key; none when empty
	from   string // the customer's address, 127.0.0.1 by default
	header http.Header
	body   string
}

// answer is what came back to the customer.
type answer struct {
	question
	status int
	header http.Header
	body   string
}

// ask sends one request through nginx, over a connection of its own.
func (g gateway) ask(t *testing.T, q question) answer {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodGet
	}
	if q.path == "" {
		q.path = "/status"
	}
	req, err := http.NewRequestWithContext(t.Context(), q.method, "http://"+g.addr+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range q.header {
		req.Header[name] = values
	}
	if q.key != "" {
		req.Header.Set("X-API-Key", q.key)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(q.from)}}
	client := http.Client{
		Timeout:   15 * time.Second,
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("ask %s %s: %v", q.method, q.path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer to %s %s: %v", q.method, q.path, err)
	}
	return answer{question: q, status: resp.StatusCode, header: resp.Header, body: string(body)}
}

// exhaust asks n times, each of which must be allowed.
func (g gateway) exhaust(t *testing.T, q question, n int) {
	t.Helper()
	for range n {
		g.ask(t, q).is(t, http.StatusOK)
	}
}

// accessLog returns what nginx has logged once there are n lines: it writes a
// line after the answer has gone out.
func (g gateway) accessLog(t *testing.T, n int) string {
	t.Helper()
	deadline := time.After(5 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		log, err := os.ReadFile(g.logs)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(log), "\n") >= n {
			return string(log)
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the access log has less than %d lines:\n%s", n, log)
		}
	}
}

func (a answer) is(t *testing.T, status int) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s %s with key %q = %d, want %d\n%v\n%s", a.method, a.path, a.key, a.status, status, a.header, a.body)
	}
}

func (a answer) lacks(t *testing.T, fields ...string) {
	t.Helper()
	for _, f := range fields {
		if v, ok := a.header[http.CanonicalHeaderKey(f)]; ok {
			t.Errorf("%s %s is answered with %s: %q, want none", a.method, a.path, f, v)
		}
	}
}

// problem checks that the body is a problem document of RFC 9457.
func (a answer) problem(t *testing.T, status int) {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type = %q, want application/problem+json", ct)
	}
	var doc struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatalf("the body is no problem document: %v\n%s", err, a.body)
	}
	if doc.Status != status || doc.Type == "" || doc.Title == "" || doc.Detail == "" {
		t.Errorf("the problem document of %d reads %+v", status, doc)
	}
}

func (a answer) seconds(t *testing.T, field string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(a.header.Get(field), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", field, err)
	}
	return n
}

// param reads an integer parameter of the item `"name";…` in a field that is a
// list of RFC 9651.
func (a answer) param(t *testing.T, field, name, param string) int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(a.header.Values(field))
	if err != nil {
		t.Fatalf("%s: %q: %v", field, a.header.Values(field), err)
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok || item.Value != name {
			continue
		}
		if v, ok := item.Params.Get(param); ok {
			if n, ok := v.(int64); ok {
				return n
			}
		}
	}
	t.Fatalf("%s: %q has no item %q with an integer %s", field, a.header.Values(field), name, param)
	return 0
}
