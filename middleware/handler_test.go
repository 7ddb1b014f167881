package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/regiond/regiond/middleware"
)

var errUnknownKey = errors.New("no such key")

func byKey(r *http.Request) (middleware.Check, error) {
	if r.Header.Get("X-API-Key") != "demo-key-acme" {
		return middleware.Check{}, errUnknownKey
	}
	return middleware.Check{Tenant: "acme"}, nil
}

// serve sends one request through Handler; reached reports whether it got to the
// handler behind it.
func serve(t *testing.T, c *middleware.Client, header http.Header) (w *httptest.ResponseRecorder, reached bool) {
	t.Helper()
	h := c.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
	req.Header = header
	w = httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w, reached
}

func TestHandler(t *testing.T) {
	acme, unknown := http.Header{"X-Api-Key": {"demo-key-acme"}}, http.Header{}
	for _, c := range []struct {
		why     string
		as      http.Header
		onAway  middleware.Fail
		regiond http.HandlerFunc
		status  int
		limits  bool   // whether the answer has RateLimit fields
		seen    string // by Observe
	}{
		{"allowed", acme, middleware.Closed, answers(200, allowed), 200, true, "OK"},
		{"denied", acme, middleware.Open, answers(429, denied), 429, true, "Too Many Requests"},
		{"a fail mode is closed", acme, middleware.Open, answers(503, closed), 503, true, "Service Unavailable"},
		{"shed", acme, middleware.Open, answers(503, shed), 503, true, "Service Unavailable"},
		{"away, open", acme, middleware.Open, answers(500, ""), 200, false, "away"},
		{"away, closed", acme, middleware.Closed, answers(500, ""), 503, false, "away"},
		{"unknown key", unknown, middleware.Open, answers(200, allowed), 403, false, "unknown key"},
		{"the cost never fits", acme, middleware.Open, answers(422, "{}"), 422, false, "error"},
		{"an unknown policy", acme, middleware.Open, answers(400, "{}"), 500, false, "error"},
		{"a missing token", acme, middleware.Open, answers(401, "{}"), 500, false, "error"},
	} {
		seen := ""
		observe := func(_ context.Context, _ middleware.Check, d middleware.Decision, err error) {
			switch {
			case errors.Is(err, errUnknownKey):
				seen += "unknown key"
			case err != nil:
				seen += "error"
			case d.Away:
				seen += "away"
			default:
				seen += http.StatusText(d.Status)
			}
		}
		client := newClient(t, middleware.Options{URL: newStub(t, c.regiond).url, Timeout: unhurried, OnAway: c.onAway, Identify: byKey, Observe: observe})
		got, reached := serve(t, client, c.as)
		h := got.Header()
		if got.Code != c.status || reached != (c.status == 200) || seen != c.seen {
			t.Errorf("%s: status %d, handler reached: %v, Observe saw %q, want %d", c.why, got.Code, reached, seen, c.status)
		}
		if limits := h.Get("RateLimit") != "" && h.Get("RateLimit-Policy") != ""; limits != c.limits {
			t.Errorf("%s: RateLimit fields: %v, want %v: %v", c.why, limits, c.limits, h)
		}
		retry := map[int]string{429: "7", 503: "1"}[c.status]
		if !c.limits { // nothing of regiond's
			retry = ""
		}
		limit := map[int]string{429: "burst"}[c.status]
		if h.Get("Retry-After") != retry || h.Get("X-Regiond-Limit") != limit || h.Get("X-Regiond-Secret") != "" {
			t.Errorf("%s: header %v", c.why, h)
		}
		if c.status == 200 {
			continue
		}
		var doc struct {
			Type, Title, Detail string
			Status              int
		}
		if err := json.Unmarshal(got.Body.Bytes(), &doc); err != nil || doc.Type == "" || doc.Title == "" || doc.Detail == "" || doc.Status != c.status {
			t.Errorf("%s: problem document %+v, %v\n%s", c.why, doc, err, got.Body)
		}
		if shed := c.why == "shed"; shed != strings.HasPrefix(doc.Detail, "Too many requests arrived at once.") {
			t.Errorf("%s: detail %q", c.why, doc.Detail)
		}
		if h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: header of the problem document %v", c.why, h)
		}
	}
}

// TestTrace: regiond gets the trace that Identify chose, else that of the context, else the
// customer's where it is trusted.
func TestTrace(t *testing.T) {
	const (
		theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		ours   = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
		span   = "00-2af7651916cd43dd8448eb211c80319c-d7ad6b7169203331-01"
	)
	type key struct{}
	propagate := func(ctx context.Context, h http.Header) { h.Set("Traceparent", ctx.Value(key{}).(string)) }
	for _, row := range []struct {
		name, chosen string
		trust        bool
		propagate    func(context.Context, http.Header)
		want         http.Header
	}{
		{"the customer's is not trusted", "", false, nil, http.Header{}},
		{"the customer's is trusted", "", true, nil, http.Header{"Traceparent": {theirs}, "Tracestate": {"a=b"}}},
		{"the context's", "", false, propagate, http.Header{"Traceparent": {span}}},
		{"the context's before the customer's", "", true, propagate, http.Header{"Traceparent": {span}}},
		{"a chosen one", ours, true, propagate, http.Header{"Traceparent": {ours}}},
	} {
		s := newStub(t, answers(200, allowed))
		client := newClient(t, middleware.Options{
			URL: s.url, Timeout: unhurried, TrustTraceparent: row.trust, Propagate: row.propagate,
			Identify: func(*http.Request) (middleware.Check, error) {
				return middleware.Check{Tenant: "acme", TraceParent: row.chosen}, nil
			},
		})
		r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(context.WithValue(t.Context(), key{}, span))
		r.Header = http.Header{"Traceparent": {theirs}, "Tracestate": {"a=b"}, "Idempotency-Key": {"the customer's"}}
		client.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		row.want.Set("Content-Type", "application/json")
		// The customer's Idempotency-Key would replay one admission for ever.
		if got := s.requests()[0].header; !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: regiond got %v, want %v", row.name, got, row.want)
		}
	}
}

func TestHandlerNeedsIdentify(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Handler without Identify does not panic")
		}
	}()
	newClient(t, middleware.Options{URL: "http://127.0.0.1:8080"}).Handler(http.NotFoundHandler())
}
