//go:build unix

package gateway

import (
	"net/http"
	"syscall"
	"testing"
	"time"
)

func (e Example) allowed(t *testing.T, binary string) {
	s := e.start(t, binary, e.Patient...)
	for used := int64(1); used <= 3; used++ {
		got := s.Ask(t, Question{Method: http.MethodPost, Path: "/status?a=%2Fb", Body: "order=1", As: "hobby", From: "127.0.0.2"})
		got.Is(t, http.StatusOK)
		if got.Text != Greeting {
			t.Errorf("body = %q, want the app's", got.Text)
		}
		got.Lacks(t, "Retry-After", "X-Regiond-Decision")
		if e.Silent {
			got.Lacks(t, "RateLimit", "RateLimit-Policy")
			continue
		}
		if left := got.Param(t, "RateLimit", "free.sustained", "r"); left != 10-used {
			t.Errorf("after %d requests %d are left, want %d", used, left, 10-used)
		}
		if q, w := got.Param(t, "RateLimit-Policy", "free.sustained", "q"), got.Param(t, "RateLimit-Policy", "free.sustained", "w"); q != 10 || w != 60 {
			t.Errorf("the policy reads %d per %d s, want 10 per 60 s", q, w)
		}
	}
	for _, r := range s.app.Requests() {
		s.isOurs(t, r)
	}
}

// isOurs checks that the app got the request that allowed and away send, whole
// and with the identity that the gateway found out.
func (s *stack) isOurs(t *testing.T, r Seen) {
	t.Helper()
	if r.Method != http.MethodPost || r.URI != "/status?a=%2Fb" || r.Body != "order=1" {
		t.Errorf("the app got %s %s with body %q, want POST /status?a=%%2Fb with order=1", r.Method, r.URI, r.Body)
	}
	if tenant := r.Header.Values("X-Tenant"); len(tenant) != 1 || tenant[0] != "hobby" {
		t.Errorf("the app was told tenant %q, want hobby", tenant)
	}
	if from := r.Header.Values("X-Forwarded-For"); len(from) != 1 || from[0] != "127.0.0.2" {
		t.Errorf("the app was told address %q, want 127.0.0.2", from)
	}
}

func (e Example) limited(t *testing.T, binary string) {
	s := e.start(t, binary, e.Patient...)
	s.Exhaust(t, Question{As: "hobby"}, 10)
	got := s.Ask(t, Question{As: "hobby"})
	got.Is(t, http.StatusTooManyRequests)
	got.Problem(t, http.StatusTooManyRequests)
	if cache := got.Header.Values("Cache-Control"); len(cache) != 1 || cache[0] != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store once", cache)
	}
	// A minute, and a tenth of it on top so that clients do not return together.
	wait := got.Seconds(t, "Retry-After")
	if wait < 1 || wait > 66 {
		t.Errorf("Retry-After = %d s, want 1…66", wait)
	}
	if left, again := got.Param(t, "RateLimit", "free.sustained", "r"), got.Param(t, "RateLimit", "free.sustained", "t"); left != 0 || again != wait {
		t.Errorf("RateLimit says %d left and more in %d s, Retry-After %d s", left, again, wait)
	}
	if q := got.Param(t, "RateLimit-Policy", "free.sustained", "q"); q != 10 {
		t.Errorf("RateLimit-Policy says %d, want 10", q)
	}
	if n := len(s.app.Requests()); n != 10 {
		t.Errorf("%d requests reached the app, want the 10 that were allowed", n)
	}
	s.Ask(t, Question{As: "globex"}).Is(t, http.StatusOK) // one tenant's limit is no other's
}

func (e Example) routes(t *testing.T, binary string) {
	s := e.start(t, binary, e.Patient...)
	login := Question{Method: http.MethodPost, Path: "/login", As: "acme", From: "127.0.0.2"}
	s.Exhaust(t, login, 5)
	got := s.Ask(t, login)
	got.Is(t, http.StatusTooManyRequests)
	if left := got.Param(t, "RateLimit", "standard.login", "r"); left != 0 {
		t.Errorf("%d logins are left after 429", left)
	}
	for _, c := range []struct {
		method, path, from string
		want               int
		why                string
	}{
		{"GET", "/status", "127.0.0.2", 200, "another route"},
		{"GET", "/login", "127.0.0.2", 200, "another method"},
		{"POST", "/login/help", "127.0.0.2", 200, "another path"},
		{"POST", "/login", "127.0.0.3", 200, "another address"},
		{"POST", "/login?next=/status", "127.0.0.2", 429, "a query is no path"},
		{"POST", "/%6Cogin", "127.0.0.2", 429, "an escaped letter is the letter"},
		{"POST", "/status/../login", "127.0.0.2", 429, "the app would see /login"},
		{"POST", "//login", "127.0.0.2", 429, "the app may see /login"},
	} {
		got := s.Ask(t, Question{Method: c.method, Path: c.path, As: "acme", From: c.from})
		if got.Status != c.want {
			t.Errorf("%s %s from %s = %d, want %d: %s", c.method, c.path, c.from, got.Status, c.want, c.why)
		}
	}
}

// forgery is what a customer might send in order to be somebody else, somewhere
// else, or nobody at all.
func forgery() http.Header {
	return http.Header{
		"X-Tenant":           {"globex"},
		"X_Tenant":           {"globex"}, // the same name to a server that reads CGI variables
		"X-Original-Method":  {"GET"},
		"X-Original-Uri":     {"/healthz"},
		"X-Forwarded-Method": {"GET"},
		"X-Forwarded-Uri":    {"/healthz"},
		"X-Regiond-Decision": {"allow"},
		"Idempotency-Key":    {"always-the-same"},
	}
}

func (e Example) forged(t *testing.T, binary string) {
	s := e.start(t, binary, e.Patient...)
	header := forgery()
	s.Exhaust(t, Question{As: "hobby", Header: header}, 10)
	s.Ask(t, Question{As: "hobby", Header: header}).Is(t, http.StatusTooManyRequests)
	for _, r := range s.app.Requests() {
		if tenant := r.Header.Values("X-Tenant"); len(tenant) != 1 || tenant[0] != "hobby" || r.Header["X_tenant"] != nil {
			t.Errorf("the app was told tenant %q, and X_Tenant %q; want hobby, and none", tenant, r.Header["X_tenant"])
		}
	}

	// Had the forged tenant been believed, globex would have paid.
	left := s.Ask(t, Question{Method: http.MethodPost, Path: "/login", As: "globex", From: "127.0.0.2"})
	left.Is(t, http.StatusOK)
	if !e.Silent {
		if n := left.Param(t, "RateLimit", "standard.burst", "r"); n != 49 {
			t.Errorf("globex has %d of 50 left after its first request, want 49", n)
		}
	}

	login := Question{Method: http.MethodPost, Path: "/login", As: "acme", From: "127.0.0.2"}
	for i, address := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "198.51.100.6"} {
		login.Header = header.Clone()
		login.Header.Set("X-Forwarded-For", address)
		login.Header.Set("X-Real-IP", address)
		login.Header.Set("Forwarded", "for="+address)
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		s.Ask(t, login).Is(t, want)
	}
}

func (e Example) unidentified(t *testing.T, binary string) {
	s := e.start(t, binary, e.Patient...)
	asTenant := http.Header{"X-Tenant": {"acme"}}
	for _, q := range []Question{{}, {As: "guessed"}, {Header: asTenant}, {As: "guessed", Header: asTenant}} {
		got := s.Ask(t, q)
		got.Is(t, http.StatusUnauthorized)
		if got.Header.Get("WWW-Authenticate") == "" && !e.Unchallenged {
			t.Error("401 without WWW-Authenticate")
		}
	}
	if n := len(s.app.Requests()); n != 0 {
		t.Errorf("%d requests without a proof reached the app", n)
	}
}

func (e Example) invalid(t *testing.T, binary string) {
	s := e.start(t, binary, append(e.Forgetful, e.Patient...)...)
	got := s.Ask(t, Question{As: "acme"})
	got.Is(t, http.StatusForbidden)
	got.Problem(t, http.StatusForbidden)
	got.Lacks(t, "Retry-After", "RateLimit")
	if n := len(s.app.Requests()); n != 0 {
		t.Errorf("%d requests reached the app", n)
	}
}

func (e Example) killed(t *testing.T, binary string) {
	s := e.start(t, binary, e.Patient...)
	s.Exhaust(t, Question{As: "hobby"}, 10)
	s.Ask(t, Question{As: "hobby"}).Is(t, http.StatusTooManyRequests)

	s.regiond.End(syscall.SIGKILL)
	e.away(t, s, e.Closed)
	s.Ask(t, Question{As: "guessed"}).Is(t, http.StatusUnauthorized) // limits may be open, the door is not

	// What was used before is in Redis, so the new process knows it.
	s.regiond.Restart(t)
	s.Ask(t, Question{As: "hobby"}).Is(t, http.StatusTooManyRequests)
}

// away checks what customers get while there is no regiond.
func (e Example) away(t *testing.T, s *stack, closed bool) {
	t.Helper()
	before := len(s.app.Requests())
	for range 3 {
		got := s.Ask(t, Question{Method: http.MethodPost, Path: "/status?a=%2Fb", Body: "order=1", As: "hobby", From: "127.0.0.2"})
		got.Lacks(t, "RateLimit", "RateLimit-Policy", "Retry-After")
		if !closed {
			got.Is(t, http.StatusOK)
			continue
		}
		got.Is(t, e.AwayStatus)
		if !e.PlainAway {
			got.Problem(t, e.AwayStatus)
		}
	}
	reached := s.app.Requests()[before:]
	if want := map[bool]int{true: 0, false: 3}[closed]; len(reached) != want {
		t.Fatalf("%d of 3 requests reached the app without a regiond, want %d", len(reached), want)
	}
	for _, r := range reached {
		s.isOurs(t, r)
	}
}

func (e Example) frozen(t *testing.T, binary string) {
	if e.Wait == 0 {
		return // the wait is the gateway's, and no line of the example can change it
	}
	s := e.start(t, binary) // with the example's own timeouts
	s.regiond.Freeze(t)
	asked := time.Now()
	got := s.Ask(t, Question{As: "acme"})
	took := time.Since(asked)
	want := http.StatusOK
	if e.Closed {
		want = e.AwayStatus
	}
	got.Is(t, want)
	got.Lacks(t, "RateLimit")
	if took < e.Wait || took > e.Wait+2*time.Second {
		t.Errorf("the answer took %v, want a little more than the %v that the gateway waits", took, e.Wait)
	}
}

func (e Example) switched(t *testing.T, binary string) {
	if len(e.Switch) == 0 {
		return // the gateway knows one way only
	}
	s := e.start(t, binary, append(e.Switch, e.Patient...)...)
	s.Ask(t, Question{As: "acme"}).Is(t, http.StatusOK)
	s.regiond.End(syscall.SIGKILL)
	e.away(t, s, !e.Closed)
}
