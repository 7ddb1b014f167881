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

// stub answers in regiond's place and records the requests. The answers of the
// real one are tested in examples/go.
type stub struct {
	url string

	mu  sync.Mutex
	got []received // guarded by mu
}

type received struct {
	call   string // method and target
	header http.Header
	body   map[string]any
}

func newStub(t *testing.T, answer http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := received{call: r.Method + " " + r.RequestURI, header: r.Header.Clone()}
		for _, field := range []string{"Accept-Encoding", "Content-Length", "User-Agent"} { // net/http's own
			q.header.Del(field)
		}
		if err := json.NewDecoder(r.Body).Decode(&q.body); err != nil {
			t.Errorf("the check is not JSON: %v", err)
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

func (s *stub) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.got...)
}

// answers has regiond's header fields and one that is not for customers.
func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"standard.burst";r=0;t=7`)
		w.Header().Set("RateLimit-Policy", `"standard.burst";q=20;w=10`)
		w.Header().Set("X-Regiond-Secret", "not for customers")
		if retry := map[int]string{429: "7", 503: "1"}[status]; retry != "" {
			w.Header().Set("Retry-After", retry)
		}
		if status == 429 {
			w.Header().Set("X-Regiond-Limit", "burst")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	allowed = `{"allowed": true, "policy": "standard", "name": "burst", "limit": 20, "remaining": 19, "retry_after_ms": 0, "reset_after_ms": 1000,
		"basis": "exact", "mode": "global", "enforcement": "enforce", "limits": []}`
	denied = `{"allowed": false, "id": "4bf92f3577b34da6a3ce929d0e0e4736", "policy": "standard", "name": "burst", "limit": 20, "remaining": 0, "retry_after_ms": 6200, "reset_after_ms": 10000,
		"basis": "exact", "mode": "partitioned", "reason": "peer_silent", "type": "x", "title": "y", "status": 429}`
	shed = `{"allowed": false, "policy": "standard", "retry_after_ms": 1000, "reset_after_ms": 0, "basis": "shed", "mode": "global",
		"reason": "overloaded", "violated-policies": [], "limits": [], "type": "x", "title": "y", "status": 503}`
	closed = `{"allowed": false, "policy": "standard", "basis": "closed", "mode": "local", "reason": "redis_down"}`
)

func newClient(t *testing.T, o middleware.Options) *middleware.Client {
	t.Helper()
	c, err := middleware.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
