package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fixed is a server with one answer, and the requests that it received.
func fixed(t *testing.T, status int, body string) (target string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is missing shows below
		*asked = append(*asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+string(text))
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// patient is a timeout that no busy machine reaches.
const patient = 20 * time.Second

func newAsker(t *testing.T) *HTTP {
	t.Helper()
	h := NewHTTP(4, patient, "secret", nil)
	t.Cleanup(h.Close)
	return h
}

// TestAsk lists what a server answers, and what that counts as.
func TestAsk(t *testing.T) {
	const exact = `"basis":"exact","mode":"global"`
	h := newAsker(t)
	for _, row := range []struct {
		status int
		body   string
		want   Answer
	}{
		{200, `{"allowed":true,` + exact + `}`, Answer{Allowed: true, Basis: "exact", Mode: "global"}},
		{200, `{"allowed":true,"would_deny":true,` + exact + `}`, Answer{Allowed: true, WouldDeny: true, Basis: "exact", Mode: "global"}},
		{429, `{"allowed":false,"title":"Too many",` + exact + `}`, Answer{Basis: "exact", Mode: "global"}},
		{503, `{"allowed":false,"basis":"closed","mode":"local","reason":"redis_down"}`, Answer{Basis: "closed", Mode: "local", Reason: "redis_down"}},
		{503, `{"allowed":false,"basis":"shed","mode":"global","reason":"overloaded"}`, Answer{Basis: "shed", Mode: "global", Reason: "overloaded"}},
		{503, `{"title":"Capacity is reduced for now","detail":"Retry later."}`, Answer{Fault: "status 503", Detail: "Capacity is reduced for now: Retry later."}},
		{503, `{}`, Answer{Fault: FaultForeign, Detail: `status 503, "{}"`}},
		{400, `{"title":"Bad","detail":"Look.","errors":[{"pointer":"#/cost","detail":"is 0"}]}`, Answer{Fault: "status 400", Detail: "Bad: Look.; #/cost is 0"}},
		{401, `{"title":"Unauthorized"}`, Answer{Fault: "status 401", Detail: "Unauthorized"}},
		{302, ``, Answer{Fault: "status 302"}},
		{500, `oh`, Answer{Fault: "status 500"}},
		{200, `<html>`, Answer{Fault: FaultForeign, Detail: `status 200, "<html>"`}},
		{200, `{"allowed":true}`, Answer{Fault: FaultForeign, Detail: `status 200, "{\"allowed\":true}"`}},
	} {
		target, asked := fixed(t, row.status, row.body)
		r := &Request{Tenant: "bench-1", Policy: "gold", Cost: 3}
		if got := h.Ask(t.Context(), target, r); got != row.want {
			t.Errorf("%d %s: %+v", row.status, row.body, got)
		}
		if want := `POST /v1/check Bearer secret {"tenant":"bench-1","policy":"gold","cost":3}`; len(*asked) != 1 || (*asked)[0] != want {
			t.Errorf("it asks %q, want once %q", *asked, want)
		}
	}
}

// TestFaults: what becomes of a request whose connection does not last.
func TestFaults(t *testing.T) {
	h := newAsker(t)
	r := &Request{Tenant: "t", Cost: 1}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // a request, and no answer
			_ = conn.Close()
		}
	}()
	if a := h.Ask(t.Context(), address, r); a.Fault != FaultBroken {
		t.Errorf("a connection that ends: %+v", a)
	}
	_ = l.Close()
	if a := h.Ask(t.Context(), address, r); a.Fault != FaultRefused {
		t.Errorf("nothing listens: %+v", a)
	}
	if a := h.Ask(t.Context(), "http://host.invalid", r); a.Fault != FaultNetwork {
		t.Errorf("no such host: %+v", a)
	}
	released := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-released }))
	defer s.Close()
	defer close(released)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if a := h.Ask(ctx, s.URL, r); a.Fault != FaultTimeout {
		t.Errorf("no answer: %+v", a)
	}
}

func TestProbe(t *testing.T) {
	h := newAsker(t)
	r := &Request{Tenant: "a/b", Policy: "gold", Cost: 5}
	target, asked := fixed(t, 200, `{"allowed":false,"basis":"exact","mode":"global"}`)
	if err := h.Probe(t.Context(), target, r); err != nil {
		t.Error(err)
	}
	if want := "GET /v1/usage/a%2Fb?cost=5&policy=gold Bearer secret "; len(*asked) != 1 || (*asked)[0] != want {
		t.Errorf("it asks %q, want once %q", *asked, want)
	}
	for _, row := range []struct {
		status  int
		body    string
		pointer string // of a refusal; "-" for none
		want    string
	}{
		{400, `{"title":"Bad","detail":"Look.","errors":[{"pointer":"#/policy","detail":"is unknown"}]}`, "#/policy", "#/policy is unknown"},
		{401, `{"title":"Unauthorized","detail":"No token."}`, "", "Unauthorized: No token."},
		{404, `404 page not found`, "-", `status 404, "404 page not found": that is not a regiond`},
		{200, `{}`, "-", "that is not a regiond"},
	} {
		target, _ := fixed(t, row.status, row.body)
		err := h.Probe(t.Context(), target, r)
		var refused *RefusedError
		if err == nil || !strings.Contains(err.Error(), row.want) || errors.As(err, &refused) != (row.pointer != "-") {
			t.Errorf("%d %s: %v", row.status, row.body, err)
		} else if refused != nil && (refused.Pointer != row.pointer || refused.Status != row.status) {
			t.Errorf("%d %s: %+v", row.status, row.body, refused)
		}
	}
}
