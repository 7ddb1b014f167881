package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/regiond/regiond/middleware"
)

var errStranger = errors.New("no such key")

func byKey(r *http.Request) (middleware.Check, error) {
	if r.Header.Get("X-API-Key") != "demo-key-acme" {
		return middleware.Check{}, errStranger
	}
	return middleware.Check{Tenant: "acme"}, nil
}

// served is what came of a request.
type served struct {
	status  int
	header  http.Header
	body    string
	reached bool // the handler behind
}

// serve sends one request through a handler that greets.
func serve(t *testing.T, c *middleware.Client, header http.Header) served {
	t.Helper()
	reached := false
	h := c.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached = true
		_, _ = io.WriteString(w, "hello")
	}))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
	req.Header = header
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return served{status: w.Code, header: w.Header(), body: w.Body.String(), reached: reached}
}

func TestHandler(t *testing.T) {
	acme, stranger := http.Header{"X-Api-Key": {"demo-key-acme"}}, http.Header{}
	for _, c := range []struct {
		why     string
		as      http.Header
		onAway  middleware.Fail
		regiond http.HandlerFunc
		status  int
		limits  bool // whether the answer has RateLimit fields
	}{
		{"allowed", acme, middleware.Closed, says(200, yes), 200, true},
		{"denied", acme, middleware.Open, says(429, no), 429, true},
		{"a fail mode is closed", acme, middleware.Open, says(503, shut), 503, true},
		{"away, open", acme, middleware.Open, says(500, ""), 200, false},
		{"away, closed", acme, middleware.Closed, says(500, ""), 503, false},
		{"a stranger", stranger, middleware.Open, says(200, yes), 403, false},
		{"the cost never fits", acme, middleware.Open, says(422, "{}"), 422, false},
		{"an unknown policy", acme, middleware.Open, says(400, "{}"), 500, false},
		{"a missing token", acme, middleware.Open, says(401, "{}"), 500, false},
	} {
		s := newStandIn(t, c.regiond)
		client := newClient(t, middleware.Options{URL: s.url, Timeout: patient, OnAway: c.onAway, Identify: byKey})
		got := serve(t, client, c.as)
		if got.status != c.status || got.reached != (c.status == 200) {
			t.Errorf("%s: status %d and the handler was reached %v, want %d", c.why, got.status, got.reached, c.status)
		}
		if limits := got.header.Get("RateLimit") != "" && got.header.Get("RateLimit-Policy") != ""; limits != c.limits {
			t.Errorf("%s: RateLimit fields %v, want %v: %v", c.why, limits, c.limits, got.header)
		}
		if after := got.header.Get("Retry-After"); after != map[int]string{429: "7"}[c.status] {
			t.Errorf("%s: Retry-After %q", c.why, after)
		}
		if got.header.Get("X-Regiond-Secret") != "" {
			t.Errorf("%s: a field that is not for customers reached one", c.why)
		}
		if c.status != 200 {
			isProblem(t, c.why, got)
		}
	}
}

func isProblem(t *testing.T, why string, got served) {
	t.Helper()
	var doc struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil {
		t.Errorf("%s: the body is no problem document: %v\n%s", why, err, got.body)
	}
	if doc.Type == "" || doc.Title == "" || doc.Detail == "" || doc.Status != got.status {
		t.Errorf("%s: the problem document reads %+v", why, doc)
	}
	if got.header.Get("Content-Type") != "application/problem+json" || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: the problem document is sent as %v", why, got.header)
	}
}

// TestTraceIsPassedOn from the request that is decided, unless Identify chose one.
func TestTraceIsPassedOn(t *testing.T) {
	const theirs, ours = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
	s := newStandIn(t, says(200, yes))
	for _, chosen := range []string{"", ours} {
		client := newClient(t, middleware.Options{URL: s.url, Timeout: patient, Identify: func(*http.Request) (middleware.Check, error) {
			return middleware.Check{Tenant: "acme", TraceParent: chosen}, nil
		}})
		serve(t, client, http.Header{"Traceparent": {theirs}, "Tracestate": {"a=b"}, "Idempotency-Key": {"the customer's"}})
	}
	got := s.questions()
	if got[0].header.Get("Traceparent") != theirs || got[0].header.Get("Tracestate") != "a=b" {
		t.Errorf("the trace of the request did not reach regiond: %v", got[0].header)
	}
	if got[1].header.Get("Traceparent") != ours || got[1].header.Get("Tracestate") != "" {
		t.Errorf("the trace that Identify chose did not reach regiond alone: %v", got[1].header)
	}
	// A customer who could choose it would replay one admission for ever.
	if got[0].header.Get("Idempotency-Key") != "" {
		t.Error("the customer's Idempotency-Key reached regiond")
	}
}

func TestObserveHearsEverything(t *testing.T) {
	var heard []string
	observe := func(_ context.Context, check middleware.Check, d middleware.Decision, err error) {
		switch {
		case errors.Is(err, errStranger):
			heard = append(heard, "stranger")
		case err != nil:
			heard = append(heard, check.Tenant+" error")
		case d.Away:
			heard = append(heard, check.Tenant+" away")
		default:
			heard = append(heard, check.Tenant+" "+http.StatusText(d.Status))
		}
	}
	for _, answer := range []http.HandlerFunc{says(200, yes), says(429, no), says(500, ""), says(400, "{}")} {
		client := newClient(t, middleware.Options{URL: newStandIn(t, answer).url, Timeout: patient, Identify: byKey, Observe: observe})
		serve(t, client, http.Header{"X-Api-Key": {"demo-key-acme"}})
		serve(t, client, http.Header{})
	}
	want := []string{"acme OK", "stranger", "acme Too Many Requests", "stranger", "acme away", "stranger", "acme error", "stranger"}
	if len(heard) != len(want) {
		t.Fatalf("Observe heard %q, want %q", heard, want)
	}
	for i := range want {
		if heard[i] != want[i] {
			t.Errorf("Observe heard %q, want %q", heard, want)
		}
	}
}

func TestHandlerNeedsToKnowWho(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Handler without Identify does not panic")
		}
	}()
	newClient(t, middleware.Options{URL: "http://127.0.0.1:8080"}).Handler(http.NotFoundHandler())
}
