package middleware_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/regiond/regiond/middleware"
)

// asked is one question as regiond received it.
type asked struct {
	method, path string
	header       http.Header
	body         map[string]any
}

// standIn answers in regiond's place and remembers the questions. What the real
// one answers is tested in examples/go.
type standIn struct {
	url string

	mu  sync.Mutex
	got []asked // guarded by mu
}

func newStandIn(t *testing.T, answer http.HandlerFunc) *standIn {
	t.Helper()
	s := &standIn{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		q := asked{method: r.Method, path: r.RequestURI, header: r.Header.Clone()}
		if err := json.Unmarshal(text, &q.body); err != nil {
			t.Errorf("the question is no JSON: %v\n%s", err, text)
		}
		s.mu.Lock()
		s.got = append(s.got, q)
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *standIn) questions() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.got...)
}

// says answers with a status, a body and what regiond's header fields look like.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"standard.burst";r=0;t=7`)
		w.Header().Set("RateLimit-Policy", `"standard.burst";q=20;w=10`)
		w.Header().Set("X-Regiond-Secret", "not for customers")
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "7")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	yes = `{"allowed": true, "policy": "standard", "name": "burst", "limit": 20, "remaining": 19, "retry_after_ms": 0, "reset_after_ms": 1000,
		"basis": "exact", "mode": "global", "enforcement": "enforce", "limits": []}`
	no = `{"allowed": false, "policy": "standard", "name": "burst", "limit": 20, "remaining": 0, "retry_after_ms": 6200, "reset_after_ms": 10000,
		"basis": "exact", "mode": "partitioned", "reason": "peer_silent", "type": "x", "title": "y", "status": 429}`
	shut = `{"allowed": false, "policy": "standard", "basis": "closed", "mode": "local", "reason": "redis_down"}`
)

func newClient(t *testing.T, o middleware.Options) *middleware.Client {
	t.Helper()
	c, err := middleware.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
