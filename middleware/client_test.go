package middleware_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/middleware"
)

// patient is a timeout that no busy machine reaches.
const patient = 20 * time.Second

func TestOptionsAreChecked(t *testing.T) {
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
			t.Errorf("New(%+v) = %v, want a complaint about %q", c.options, err, c.wrong)
		}
	}
}

func TestTheQuestion(t *testing.T) {
	s := newStandIn(t, says(http.StatusOK, yes))
	c := newClient(t, middleware.Options{URL: s.url, Token: "secret", Timeout: patient})
	full := middleware.Check{
		Tenant: "acme", Policy: "login", Dimensions: map[string]string{"user": "42"}, Cost: 5,
		IdempotencyKey: "once", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "a=b",
	}
	for _, check := range []middleware.Check{full, {Tenant: "acme"}} {
		if _, err := c.Check(t.Context(), check); err != nil {
			t.Fatal(err)
		}
	}
	got := s.questions()
	for i, want := range []map[string]any{
		{"tenant": "acme", "policy": "login", "dimensions": map[string]any{"user": "42"}, "cost": 5.0},
		{"tenant": "acme"}, // what is not set is not sent: regiond's own defaults hold
	} {
		if got[i].method != http.MethodPost || got[i].path != "/v1/check" || !reflect.DeepEqual(got[i].body, want) {
			t.Errorf("question %d is %s %s %v, want POST /v1/check %v", i, got[i].method, got[i].path, got[i].body, want)
		}
	}
	for field, want := range map[string]string{
		"Content-Type": "application/json", "Authorization": "Bearer secret", "Idempotency-Key": "once",
		"Traceparent": full.TraceParent, "Tracestate": full.TraceState,
	} {
		if v := got[0].header.Get(field); v != want {
			t.Errorf("%s = %q, want %q", field, v, want)
		}
	}
	for _, field := range []string{"Idempotency-Key", "Traceparent", "Tracestate"} {
		if _, ok := got[1].header[field]; ok {
			t.Errorf("%s is sent although it is not set", field)
		}
	}
}

func TestDecisions(t *testing.T) {
	fields := http.Header{"Ratelimit": {`"standard.burst";r=0;t=7`}, "Ratelimit-Policy": {`"standard.burst";q=20;w=10`}}
	denied := fields.Clone()
	denied.Set("Retry-After", "7")
	for _, c := range []struct {
		status int
		body   string
		want   middleware.Decision
	}{
		{200, yes, middleware.Decision{
			Allowed: true, Status: 200, Policy: "standard", Name: "burst", Limit: 20, Remaining: 19,
			ResetAfter: time.Second, Basis: "exact", Mode: "global", Header: fields,
		}},
		{429, no, middleware.Decision{
			Status: 429, Policy: "standard", Name: "burst", Limit: 20, RetryAfter: 6200 * time.Millisecond,
			ResetAfter: 10 * time.Second, Basis: "exact", Mode: "partitioned", Reason: "peer_silent", Header: denied,
		}},
		{503, shut, middleware.Decision{Status: 503, Policy: "standard", Basis: "closed", Mode: "local", Reason: "redis_down", Header: fields}},
	} {
		// Open: a denial must stay one, whatever the choice for when regiond is away.
		client := newClient(t, middleware.Options{URL: newStandIn(t, says(c.status, c.body)).url, Timeout: patient, OnAway: middleware.Open})
		got, err := client.Check(t.Context(), middleware.Check{Tenant: "acme"})
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("regiond answers %d: decision\n%+v, %v, want\n%+v", c.status, got, err, c.want)
		}
	}
}

func TestMistakesAreErrors(t *testing.T) {
	const doc = `{"title":"Bad","status":400,"detail":"The question is wrong.","errors":[{"pointer":"#/policy","detail":"is not known"}]}`
	for _, status := range []int{400, 401, 403, 404, 405, 413, 415, 422, 431} {
		c := newClient(t, middleware.Options{URL: newStandIn(t, says(status, doc)).url, Timeout: patient, OnAway: middleware.Open})
		d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"})
		var invalid *middleware.InvalidError
		if !errors.As(err, &invalid) || invalid.Status != status || !strings.Contains(invalid.Detail, "#/policy: is not known") {
			t.Errorf("regiond answers %d: error %v, want an InvalidError that says what is wrong", status, err)
		}
		if d.Allowed || d.Away {
			t.Errorf("regiond answers %d: decision %+v, want none, which denies", status, d)
		}
	}
}

// TestAway: whatever is no decision is treated alike, and the choice holds.
func TestAway(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	urls := map[string]string{
		"nobody listens":         "http://" + nobody.Addr().String(),
		"a 500":                  newStandIn(t, says(500, "oops")).url,
		"a 502":                  newStandIn(t, says(502, no)).url,
		"a proxy's 503":          newStandIn(t, says(503, "<html>")).url,
		"a 503 with other JSON":  newStandIn(t, says(503, `{"title":"Too many questions at once"}`)).url,
		"another server's 200":   newStandIn(t, says(200, "welcome")).url,
		"another server's JSON":  newStandIn(t, says(200, `{"ok": true}`)).url,
		"a 200 that says no":     newStandIn(t, says(200, no)).url,
		"a 429 that says yes":    newStandIn(t, says(429, yes)).url,
		"an answer that is null": newStandIn(t, says(200, `null`)).url,
		"a redirect": newStandIn(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}).url,
		"an answer cut short": newStandIn(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(yes))
		}).url,
	}
	for name, url := range urls {
		for fail, allowed := range map[middleware.Fail]bool{middleware.Open: true, middleware.Closed: false} {
			c := newClient(t, middleware.Options{URL: url, Timeout: patient, OnAway: fail})
			d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"})
			if err != nil || !d.Away || d.Allowed != allowed || !errors.Is(d.Cause, middleware.ErrAway) {
				t.Errorf("%s, OnAway %d: decision %+v, %v; want away, allowed %v", name, fail, d, err, allowed)
			}
		}
	}
}

// TestTimeout: a regiond that never answers costs the timeout and no more.
func TestTimeout(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	s := newStandIn(t, func(http.ResponseWriter, *http.Request) { <-release })
	c := newClient(t, middleware.Options{URL: s.url})
	begun := time.Now()
	d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"})
	took := time.Since(begun)
	if err != nil || !d.Away || !errors.Is(d.Cause, context.DeadlineExceeded) {
		t.Errorf("decision %+v, %v; want away because of the deadline", d, err)
	}
	if took < middleware.DefaultTimeout || took > middleware.DefaultTimeout+5*time.Second {
		t.Errorf("it took %v, want a little more than %v", took, middleware.DefaultTimeout)
	}
	if n := len(s.questions()); n > 1 {
		t.Errorf("regiond was asked %d times, want once: a second question could charge twice", n)
	}
}

// TestAHandshakeThatHangs: when the question has been given up, so is the connection
// that was being made for it.
func TestAHandshakeThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := newClient(t, middleware.Options{URL: "https://" + silent.Addr().String(), Timeout: 300 * time.Millisecond})
	d, err := c.Check(t.Context(), middleware.Check{Tenant: "acme"})
	if err != nil || !d.Away {
		t.Errorf("decision %+v, %v; want away", d, err)
	}
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patient)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil { // nil: the client has closed it
		t.Errorf("the connection is still there: %v", err)
	}
}

// TestTheCallersContext: nobody fails open for somebody who has left.
func TestTheCallersContext(t *testing.T) {
	s := newStandIn(t, says(http.StatusOK, yes))
	c := newClient(t, middleware.Options{URL: s.url, Timeout: patient, OnAway: middleware.Open})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d, err := c.Check(ctx, middleware.Check{Tenant: "acme"})
	if !errors.Is(err, context.Canceled) || d.Allowed || d.Away {
		t.Errorf("decision %+v, %v; want none and the context's error", d, err)
	}
}
