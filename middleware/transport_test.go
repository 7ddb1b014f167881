package middleware_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regiond/regiond/middleware"
)

// server is a RoundTripper that answers from a script, in fake time.
type server struct {
	script []reply // the last one repeats
	begun  time.Time
	sent   []time.Duration // since begun
	bodies []string
	open   int // answers whose body is not closed
}

type reply struct {
	status     int
	retryAfter string // "date" is nine seconds from now
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, time.Since(s.begun))
	text, _ := io.ReadAll(req.Body)
	s.bodies = append(s.bodies, string(text))
	r := s.script[min(len(s.sent), len(s.script))-1]
	h := http.Header{}
	switch r.retryAfter {
	case "":
	case "date":
		h.Set("Retry-After", time.Now().Add(9*time.Second).UTC().Format(http.TimeFormat))
	default:
		h.Set("Retry-After", r.retryAfter)
	}
	s.open++
	return &http.Response{StatusCode: r.status, Header: h, Body: &body{strings.NewReader("why"), s}, Request: req}, nil
}

type body struct {
	io.Reader
	server *server
}

func (b *body) Close() error { b.server.open--; return nil }

// roundTrip sends one request in a bubble of fake time. cancel, if set, ends its
// context after a while.
func roundTrip(t *testing.T, s *server, tr middleware.Transport, method string, text io.Reader, within, cancel time.Duration) (status int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.begun = time.Now()
		ctx, end := context.WithTimeout(t.Context(), within)
		defer end()
		if cancel > 0 {
			time.AfterFunc(cancel, end)
		}
		req, _ := http.NewRequestWithContext(ctx, method, "http://api/orders", text)
		if req.Body == nil {
			req.Body = http.NoBody
		}
		tr.Base = s
		var resp *http.Response
		if resp, err = tr.RoundTrip(req); err == nil {
			status = resp.StatusCode
			resp.Body.Close()
		}
		if s.open != 0 {
			t.Errorf("%d bodies of answers are left open", s.open)
		}
	})
	return status, err
}

func TestTransport(t *testing.T) {
	const day, second = 24 * time.Hour, time.Second
	type waits = []time.Duration
	none := middleware.Transport{}
	for _, c := range []struct {
		why    string
		script []reply
		tr     middleware.Transport
		method string
		within time.Duration
		status int
		waits  waits // at least, before each retry
	}{
		{"success", []reply{{200, ""}}, none, "GET", day, 200, nil},
		{"Retry-After", []reply{{429, "7"}, {429, "2"}, {200, ""}}, none, "GET", day, 200, waits{7 * second, 2 * second}},
		{"a date", []reply{{429, "date"}, {200, ""}}, none, "GET", day, 200, waits{9 * second}},
		{"a 429 was not carried out", []reply{{429, "1"}, {200, ""}}, none, "POST", day, 200, waits{second}},
		{"default attempts", []reply{{429, "1"}}, none, "GET", day, 429, waits{second, second}},
		{"chosen attempts", []reply{{429, "1"}}, middleware.Transport{Attempts: 2}, "GET", day, 429, waits{second}},
		{"no retry", []reply{{429, "1"}}, middleware.Transport{Attempts: 1}, "GET", day, 429, nil},
		{"default MaxWait", []reply{{429, "30"}, {200, ""}}, none, "GET", day, 200, waits{30 * second}},
		{"above default MaxWait", []reply{{429, "31"}}, none, "GET", day, 429, nil},
		{"chosen MaxWait", []reply{{429, "3600"}, {200, ""}}, middleware.Transport{MaxWait: 2 * time.Hour}, "GET", day, 200, waits{time.Hour}},
		{"beyond the deadline", []reply{{429, "7"}}, none, "GET", 5 * second, 429, nil},
		{"exponential without Retry-After", []reply{{429, ""}, {429, ""}, {200, ""}}, none, "GET", day, 200, waits{second, 2 * second}},
		{"malformed Retry-After", []reply{{429, "soon"}, {200, ""}}, none, "GET", day, 200, waits{second}},
		{"a 503 with Retry-After", []reply{{503, "1"}, {200, ""}}, none, "GET", day, 200, waits{second}},
		{"a 503 without", []reply{{503, ""}}, none, "GET", day, 503, nil},
		{"a 503 that may have been carried out", []reply{{503, "1"}}, none, "POST", day, 503, nil},
		{"other failures", []reply{{500, "1"}}, none, "GET", day, 500, nil},
	} {
		s := &server{script: c.script}
		text := ""
		if c.method == "POST" {
			text = "order=1"
		}
		status, err := roundTrip(t, s, c.tr, c.method, strings.NewReader(text), c.within, 0)
		if err != nil || status != c.status || len(s.sent) != len(c.waits)+1 {
			t.Errorf("%s: status %d, %v after %d attempts, want %d after %d", c.why, status, err, len(s.sent), c.status, len(c.waits)+1)
			continue
		}
		for i, least := range c.waits {
			if wait := s.sent[i+1] - s.sent[i]; wait < least || wait > least+least/10+second/10 {
				t.Errorf("%s: attempt %d after %v, want %v and up to a tenth more", c.why, i+2, wait, least)
			}
		}
		for i, sent := range s.bodies {
			if sent != text {
				t.Errorf("%s: attempt %d had the body %q, want %q", c.why, i+1, sent, text)
			}
		}
	}
}

// TestTransportSpreads: clients that were denied together do not return together.
func TestTransportSpreads(t *testing.T) {
	at := map[time.Duration]bool{}
	for range 50 {
		s := &server{script: []reply{{429, "10"}, {200, ""}}}
		if _, err := roundTrip(t, s, middleware.Transport{}, "GET", nil, time.Hour, 0); err != nil {
			t.Fatal(err)
		}
		at[s.sent[1].Truncate(100*time.Millisecond)] = true
	}
	if len(at) < 4 { // of eleven tenths of a second; fewer than 4 in 50 draws is beyond chance
		t.Errorf("50 clients return in %d different tenths of a second", len(at))
	}
}

func TestTransportStopsWithTheContext(t *testing.T) {
	s := &server{script: []reply{{429, "10"}}}
	if _, err := roundTrip(t, s, middleware.Transport{}, "GET", nil, time.Hour, 3*time.Second); !errors.Is(err, context.Canceled) || len(s.sent) != 1 {
		t.Errorf("%v after %d attempts, want the context's error after one", err, len(s.sent))
	}
}

// TestTransportKeepsWhatItCannotReplay: a body that is gone is not sent as none.
func TestTransportKeepsWhatItCannotReplay(t *testing.T) {
	s := &server{script: []reply{{429, "1"}}}
	status, err := roundTrip(t, s, middleware.Transport{}, "POST", io.NopCloser(strings.NewReader("once")), time.Hour, 0)
	if err != nil || status != http.StatusTooManyRequests || len(s.sent) != 1 {
		t.Errorf("status %d, %v after %d attempts, want 429 after one", status, err, len(s.sent))
	}
}
