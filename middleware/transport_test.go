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
	sent   []time.Duration // when, since begun
	bodies []string
	open   int // answers whose body is not closed
}

type reply struct {
	status     int
	retryAfter string
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, time.Since(s.begun))
	if req.Body != nil {
		text, _ := io.ReadAll(req.Body)
		req.Body.Close()
		s.bodies = append(s.bodies, string(text))
	}
	r := s.script[min(len(s.sent), len(s.script))-1]
	h := http.Header{}
	if r.retryAfter != "" {
		h.Set("Retry-After", r.retryAfter)
	}
	s.open++
	return &http.Response{StatusCode: r.status, Header: h, Body: &body{Reader: strings.NewReader("why"), server: s}, Request: req}, nil
}

type body struct {
	io.Reader
	server *server
}

func (b *body) Close() error { b.server.open--; return nil }

// visit sends one request through a Transport in a bubble of fake time.
func visit(t *testing.T, s *server, tr middleware.Transport, method, text string, within time.Duration) (status int, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.begun = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var reader io.Reader
		if text != "" {
			reader = strings.NewReader(text)
		}
		req, reqErr := http.NewRequestWithContext(ctx, method, "http://api/orders", reader)
		if reqErr != nil {
			t.Fatal(reqErr)
		}
		tr.Base = s
		resp, tripErr := tr.RoundTrip(req)
		if err = tripErr; err == nil {
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
	const ever = 24 * time.Hour
	for _, c := range []struct {
		why    string
		script []reply
		tr     middleware.Transport
		method string
		within time.Duration
		status int
		waits  []time.Duration // the least before each further attempt
	}{
		{"nothing to wait for", []reply{{200, ""}}, middleware.Transport{}, "GET", ever, 200, nil},
		{"as long as it says", []reply{{429, "7"}, {200, ""}}, middleware.Transport{}, "GET", ever, 200, []time.Duration{7 * time.Second}},
		{"each time what it says", []reply{{429, "7"}, {429, "2"}, {200, ""}}, middleware.Transport{}, "GET", ever, 200, []time.Duration{7 * time.Second, 2 * time.Second}},
		{"a 429 was not carried out", []reply{{429, "1"}, {200, ""}}, middleware.Transport{}, "POST", ever, 200, []time.Duration{time.Second}},
		{"three attempts", []reply{{429, "1"}}, middleware.Transport{}, "GET", ever, 429, []time.Duration{time.Second, time.Second}},
		{"as many as were chosen", []reply{{429, "1"}}, middleware.Transport{Attempts: 2}, "GET", ever, 429, []time.Duration{time.Second}},
		{"one is none again", []reply{{429, "1"}}, middleware.Transport{Attempts: 1}, "GET", ever, 429, nil},
		{"as long as anybody waits", []reply{{429, "30"}, {200, ""}}, middleware.Transport{}, "GET", ever, 200, []time.Duration{30 * time.Second}},
		{"a second longer", []reply{{429, "31"}}, middleware.Transport{}, "GET", ever, 429, nil},
		{"longer than anybody waits", []reply{{429, "3600"}}, middleware.Transport{}, "GET", ever, 429, nil},
		{"unless that was chosen", []reply{{429, "3600"}, {200, ""}}, middleware.Transport{MaxWait: 2 * time.Hour}, "GET", ever, 200, []time.Duration{time.Hour}},
		{"longer than the deadline", []reply{{429, "7"}}, middleware.Transport{}, "GET", 5 * time.Second, 429, nil},
		{"without a word, doubling", []reply{{429, ""}, {429, ""}, {200, ""}}, middleware.Transport{}, "GET", ever, 200, []time.Duration{time.Second, 2 * time.Second}},
		{"nonsense is no word", []reply{{429, "soon"}, {200, ""}}, middleware.Transport{}, "GET", ever, 200, []time.Duration{time.Second}},
		{"a 503 that says when", []reply{{503, "1"}, {200, ""}}, middleware.Transport{}, "GET", ever, 200, []time.Duration{time.Second}},
		{"a 503 that does not", []reply{{503, ""}}, middleware.Transport{}, "GET", ever, 503, nil},
		{"a 503 of something that may have happened", []reply{{503, "1"}}, middleware.Transport{}, "POST", ever, 503, nil},
		{"other failures are not ours", []reply{{500, "1"}}, middleware.Transport{}, "GET", ever, 500, nil},
	} {
		s := &server{script: c.script}
		text := ""
		if c.method == "POST" {
			text = "order=1"
		}
		status, err := visit(t, s, c.tr, c.method, text, c.within)
		if err != nil || status != c.status || len(s.sent) != len(c.waits)+1 {
			t.Errorf("%s: status %d, %v after %d attempts, want %d after %d", c.why, status, err, len(s.sent), c.status, len(c.waits)+1)
			continue
		}
		for i, least := range c.waits {
			if wait := s.sent[i+1] - s.sent[i]; wait < least || wait > least+least/10+100*time.Millisecond {
				t.Errorf("%s: attempt %d came after %v, want %v and up to a tenth more", c.why, i+2, wait, least)
			}
		}
		for i, sent := range s.bodies {
			if sent != text {
				t.Errorf("%s: attempt %d had the body %q, want %q", c.why, i+1, sent, text)
			}
		}
	}
}

func TestTransportReadsADate(t *testing.T) {
	var s *server
	synctest.Test(t, func(t *testing.T) {
		s = &server{begun: time.Now(), script: []reply{{429, time.Now().Add(9 * time.Second).UTC().Format(http.TimeFormat)}, {200, ""}}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&middleware.Transport{Base: s}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	})
	if len(s.sent) != 2 || s.sent[1] < 8*time.Second || s.sent[1] > 10*time.Second {
		t.Errorf("sent at %v, want again after about 9 s", s.sent)
	}
}

// TestTransportSpreads: clients that were refused at once do not come back at once.
func TestTransportSpreads(t *testing.T) {
	at := map[time.Duration]bool{}
	for range 50 {
		s := &server{script: []reply{{429, "10"}, {200, ""}}}
		if _, err := visit(t, s, middleware.Transport{}, "GET", "", time.Hour); err != nil {
			t.Fatal(err)
		}
		at[s.sent[1].Truncate(100*time.Millisecond)] = true
	}
	if len(at) < 4 { // eleven tenths of a second; that 50 draws hit fewer than 4 is beyond chance
		t.Errorf("50 clients come back in %d different tenths of a second", len(at))
	}
}

func TestTransportStopsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		s := &server{begun: time.Now(), script: []reply{{429, "10"}}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&middleware.Transport{Base: s}).RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) || time.Since(s.begun) != 3*time.Second || s.open != 0 {
			t.Errorf("%v after %v with %d bodies open, want the context's error after 3s", err, time.Since(s.begun), s.open)
		}
	})
}

// TestTransportKeepsWhatItCannotReplay: a body that is gone is not sent as none.
func TestTransportKeepsWhatItCannotReplay(t *testing.T) {
	s := &server{script: []reply{{429, "1"}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api/", io.NopCloser(strings.NewReader("once")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&middleware.Transport{Base: s}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || len(s.sent) != 1 {
		t.Errorf("status %d after %d attempts, want 429 after one", resp.StatusCode, len(s.sent))
	}
}
