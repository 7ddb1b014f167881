package middleware_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/middleware"
)

// unhurried is a timeout that no busy machine reaches.
const unhurried = 20 * time.Second

func TestOptionsAreValidated(t *testing.T) {
	for _, c := range []struct {
		options middleware.Options
		wrong   string // "" means nothing
	}{
		{middleware.Options{URL: "http://127.0.0.1:8080"}, ""},
		{middleware.Options{URL: "https://regiond.internal/"}, ""},
		{middleware.Options{}, "URL"},
		{middleware.Options{URL: "127.0.0.1:8080"}, "URL"},
		{middleware.Options{URL: "localhost"}, "URL"},
		{middleware.Options{URL: "unix:///run/regiond"}, "URL"},
		{middleware.Options{URL: "http://127.0.0.1:8080/v1/check"}, "URL"},
		{middleware.Options{URL: "http://127.0.0.1:8080?explain=1"}, "URL"},
		{middleware.Options{URL: "http://h", Timeout: -1}, "Timeout"},
		{middleware.Options{URL: "http://h", OnAway: 2}, "OnAway"},
	} {
		_, err := middleware.New(c.options)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("New(%+v) = %v, want an error about %q", c.options, err, c.wrong)
		}
	}
}

func TestRequest(t *testing.T) {
	s := newStub(t, answers(http.StatusOK, allowed))
	c := newClient(t, middleware.Options{URL: s.url, Token: "secret", Timeout: unhurried})
	full := middleware.Check{
		Tenant: "acme", Policy: "login", Dimensions: map[string]string{"user": "42"}, Cost: 5,
		IdempotencyKey: "once", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
	}
	for _, check := range []middleware.Check{full, {Tenant: "acme"}} {
		if _, err := c.Check(t.Context(), check); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []received{
		{"POST /v1/check", http.Header{
			"Content-Type": {"application/json"}, "Authorization": {"Bearer secret"}, "Idempotency-Key": {"once"},
			"Traceparent": {full.TraceParent}, "Tracestate": {full.TraceState},
		}, map[string]any{"tenant": "acme", "policy": "login", "dimensions": map[string]any{"user": "42"}, "cost": 5.0}},
		// Unset fields are left to regiond's defaults.
		{"POST /v1/check", http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer secret"}}, map[string]any{"tenant": "acme"}},
	} {
		if got := s.requests()[i]; !reflect.DeepEqual(got, want) {
			t.Errorf("request %d is\n%v, want\n%v", i, got, want)
		}
	}
}

func TestDecisions(t *testing.T) {
	fields := http.Header{"Ratelimit": {`"standard.burst";r=0;t=7`}, "Ratelimit-Policy": {`"standard.burst";q=20;w=10`}}
	retry, soon := fields.Clone(), fields.Clone()
	retry.Set("Retry-After", "7")
	retry.Set("X-Regiond-Limit", "burst")
	soon.Set("Retry-After", "1")
	for _, c := range []struct {
		status int
		body   string
		want   middleware.Decision
	}{
		{200, allowed, middleware.Decision{
			Allowed: true, Status: 200, Policy: "standard", Name: "burst", Limit: 20, Remaining: 19,
			ResetAfter: time.Second, Basis: "exact", Mode: "global", Header: fields,
		}},
		{429, denied, middleware.Decision{
			Status: 429, ID: "4bf92f3577b34da6a3ce929d0e0e4736", Policy: "standard", Name: "burst", Limit: 20, RetryAfter: 6200 * time.Millisecond,
			ResetAfter: 10 * time.Second, Basis: "exact", Mode: "partitioned", Reason: "peer_silent", Header: retry,
		}},
		{503, closed, middleware.Decision{Status: 503, Policy: "standard", Basis: "closed", Mode: "local", Reason: "redis_down", Header: soon}},
		{503, shed, middleware.Decision{
			Status: 503, Policy: "standard", RetryAfter: time.Second, Basis: "shed", Mode: "global", Reason: "overloaded", Header: soon,
		}},
	} {
		// Open: a denial must stay one, whatever OnAway is.
		client := newClient(t, middleware.Options{URL: newStub(t, answers(c.status, c.body)).url, Timeout: unhurried, OnAway: middleware.Open})
		got, err := client.Check(t.Context(), middleware.Check{Tenant: "acme"})
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("regiond answers %d: decision\n%+v, %v, want\n%+v", c.status, got, err, c.want)
		}
	}
}

func TestInvalidChecksAreErrors(t *testing.T) {
	const doc = `{"title":"Bad","status":400,"detail":"The check is wrong.","errors":[{"pointer":"#/policy","detail":"is not known"}]}`
	for _, status := range []int{400, 401, 403, 404, 405, 413, 415, 422, 431} {
		c := newClient(t, middleware.Options{URL: newStub(t, answers(status, doc)).url, Timeout: unhurried, OnAway: middleware.Open})
		d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"})
		var invalid *middleware.InvalidError
		if !errors.As(err, &invalid) || invalid.Status != status || !strings.Contains(invalid.Detail, "#/policy: is not known") || d.Allowed || d.Away {
			t.Errorf("regiond answers %d: decision %+v, %v, want an InvalidError with the detail", status, d, err)
		}
	}
}

// TestUnsendable: a check that regiond would not read, or net/http not send, is refused and never sent, whatever OnAway is.
func TestUnsendable(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []struct {
		name      string
		check     middleware.Check
		propagate func(context.Context, http.Header)
		status    int // 0: it is sent
	}{
		{"a large body", middleware.Check{Tenant: "acme", Dimensions: map[string]string{"user": long(65_000)}}, nil, 0},
		{"a body that is too large", middleware.Check{Tenant: "acme", Dimensions: map[string]string{"user": long(66_000)}}, nil, 413},
		{"one that is once it is escaped", middleware.Check{Tenant: strings.Repeat("\x01", 20_000)}, nil, 413},
		{"a large header", middleware.Check{Tenant: "acme", TraceParent: long(15_000)}, nil, 0},
		{"a trace that is too large", middleware.Check{Tenant: "acme", TraceParent: long(16_000)}, nil, 431},
		{"two that are together", middleware.Check{Tenant: "acme", TraceParent: long(8000), TraceState: long(8000)}, nil, 431},
		{"a key that is", middleware.Check{Tenant: "acme", IdempotencyKey: long(100_000)}, nil, 431},
		{"what is propagated", middleware.Check{Tenant: "acme"}, func(_ context.Context, h http.Header) {
			h["Baggage"] = []string{long(8000), long(8000)}
		}, 431},
		{"many fields that are small", middleware.Check{Tenant: "acme"}, func(_ context.Context, h http.Header) {
			h["X"] = strings.Split(long(600), "")
		}, 431},
		{"a key of two lines", middleware.Check{Tenant: "acme", IdempotencyKey: "a\nb"}, nil, 400},
		{"a trace with NUL", middleware.Check{Tenant: "acme", TraceParent: "a\x00"}, nil, 400},
		{"a state with DEL", middleware.Check{Tenant: "acme", TraceParent: "a", TraceState: "\x7f"}, nil, 400},
		{"a name that is none", middleware.Check{Tenant: "acme"}, func(_ context.Context, h http.Header) { h["A b"] = []string{"c"} }, 400},
		{"an empty name", middleware.Check{Tenant: "acme"}, func(_ context.Context, h http.Header) { h[""] = []string{"c"} }, 400},
		{"a name with all that it may have", middleware.Check{Tenant: "acme"}, func(_ context.Context, h http.Header) {
			h["!#$%&'*+-.^_`|~09AZaz"] = []string{"c"}
		}, 0},
		{"a tab and an accent", middleware.Check{Tenant: "acme", TraceParent: "a", TraceState: "a\té"}, nil, 0},
	} {
		s := newStub(t, answers(http.StatusOK, allowed))
		client := newClient(t, middleware.Options{URL: s.url, Timeout: unhurried, OnAway: middleware.Open, Propagate: c.propagate})
		d, err := client.Check(t.Context(), c.check)
		var invalid *middleware.InvalidError
		if errors.As(err, &invalid) != (c.status != 0) || invalid != nil && invalid.Status != c.status || d.Allowed != (c.status == 0) {
			t.Errorf("%s: decision %+v, %v; want status %d", c.name, d, err, c.status)
		}
		if sent := len(s.requests()) > 0; sent != (c.status == 0) {
			t.Errorf("%s: sent: %v", c.name, sent)
		}
	}
}

// TestAway: whatever is no decision is treated alike, as OnAway says.
func TestAway(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	urls := map[string]string{"connection refused": gone.URL}
	for name, h := range map[string]http.HandlerFunc{
		"a 500":                  answers(500, "oops"),
		"a 502":                  answers(502, denied),
		"a proxy's 503":          answers(503, "<html>"),
		"a 503 with other JSON":  answers(503, `{"title":"Too many requests in flight"}`),
		"another server's 200":   answers(200, "welcome"),
		"another server's JSON":  answers(200, `{"ok": true}`),
		"a 200 that denies":      answers(200, denied),
		"a 429 that allows":      answers(429, allowed),
		"an answer that is null": answers(200, `null`),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"a truncated answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(allowed))
		},
	} {
		urls[name] = newStub(t, h).url
	}
	for name, url := range urls {
		for _, fail := range []middleware.Fail{middleware.Open, middleware.Closed} {
			c := newClient(t, middleware.Options{URL: url, Timeout: unhurried, OnAway: fail})
			d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"})
			if err != nil || !d.Away || d.Allowed != (fail == middleware.Open) || !errors.Is(d.Cause, middleware.ErrAway) {
				t.Errorf("%s, OnAway %d: decision %+v, %v; want away", name, fail, d, err)
			}
		}
	}
}

// TestTimeout: a regiond that does not answer delays a request by the timeout, and
// a caller that has left is not let through.
func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := newStub(t, func(http.ResponseWriter, *http.Request) { <-release })
	begun := time.Now()
	d, err := newClient(t, middleware.Options{URL: s.url}).Check(t.Context(), middleware.Check{Tenant: "acme"})
	took := time.Since(begun)
	if err != nil || !d.Away || !errors.Is(d.Cause, context.DeadlineExceeded) {
		t.Errorf("decision %+v, %v; want away because of the deadline", d, err)
	}
	if took < middleware.DefaultTimeout || took > middleware.DefaultTimeout+5*time.Second {
		t.Errorf("it took %v, want a little more than %v", took, middleware.DefaultTimeout)
	}
	if n := len(s.requests()); n > 1 {
		t.Errorf("%d requests, want one: a second could charge twice", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err = newClient(t, middleware.Options{URL: s.url, Timeout: unhurried}).Check(ctx, middleware.Check{Tenant: "acme"})
	if !errors.Is(err, context.Canceled) || d.Allowed || d.Away {
		t.Errorf("decision %+v, %v; want none and the context's error", d, err)
	}
}

// TestHangingHandshake: the connection being made is closed with the check.
func TestHangingHandshake(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := newClient(t, middleware.Options{URL: "https://" + silent.Addr().String(), Timeout: 300 * time.Millisecond})
	if d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"}); err != nil || !d.Away {
		t.Errorf("decision %+v, %v; want away", d, err)
	}
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(unhurried)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil { // nil: the client has closed it
		t.Errorf("the connection is still open: %v", err)
	}
}
