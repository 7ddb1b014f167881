//go:build unix

// Package nginx_test runs the example with Debian's nginx, a real redis-server
// and the real regiond, and looks at it from where a customer stands: the far
// side of nginx.
package nginx_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBehindNginx gives each part of the story a stack of its own.
func TestBehindNginx(t *testing.T) {
	if testing.Short() {
		t.Skip("starts nginx, redis-server and regiond")
	}
	binary := filepath.Join(t.TempDir(), "regiond")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/regiond")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build regiond: %v\n%s", err, out)
	}
	for _, part := range []struct {
		name string
		test func(t *testing.T, binary string)
	}{
		{"allowed traffic passes and is told what is left", testAllowed},
		{"limited traffic gets 429", testLimited},
		{"logins are held tighter than the rest", testRoutes},
		{"forging headers gains nothing", testForged},
		{"no key, no answer", testUnidentified},
		{"what regiond cannot attribute is forbidden", testInvalid},
		{"a killed regiond leaves the API up", testKilled},
		{"a frozen regiond leaves the API up", testFrozen},
		{"one line makes it fail closed", testFailClosed},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, binary) })
	}
}

func testAllowed(t *testing.T, binary string) {
	s := start(t, binary, patient)
	for used := int64(1); used <= 3; used++ {
		got := s.ask(t, question{key: hobby, from: "127.0.0.2"})
		got.is(t, http.StatusOK)
		if got.body != greeting {
			t.Errorf("body = %q, want the app's", got.body)
		}
		if left := got.param(t, "RateLimit", "free.sustained", "r"); left != 10-used {
			t.Errorf("after %d requests %d are left, want %d", used, left, 10-used)
		}
		if q, w := got.param(t, "RateLimit-Policy", "free.sustained", "q"), got.param(t, "RateLimit-Policy", "free.sustained", "w"); q != 10 || w != 60 {
			t.Errorf("the policy reads %d per %d s, want 10 per 60 s", q, w)
		}
		got.lacks(t, "Retry-After", "X-Regiond-Decision")
	}
	for _, h := range s.app.requests() {
		if h.Get("X-Tenant") != "hobby" || h.Get("X-Forwarded-For") != "127.0.0.2" {
			t.Errorf("the app was told tenant %q at %q, want hobby at 127.0.0.2", h.Get("X-Tenant"), h.Get("X-Forwarded-For"))
		}
	}
}

func testLimited(t *testing.T, binary string) {
	s := start(t, binary, patient)
	s.exhaust(t, question{key: hobby}, 10)
	got := s.ask(t, question{key: hobby})
	got.is(t, http.StatusTooManyRequests)
	got.problem(t, http.StatusTooManyRequests)
	if cache := got.header.Get("Cache-Control"); cache != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store", cache)
	}
	// A minute, and a tenth of it on top so that clients do not return together.
	wait := got.seconds(t, "Retry-After")
	if wait < 1 || wait > 66 {
		t.Errorf("Retry-After = %d s, want 1…66", wait)
	}
	if left, again := got.param(t, "RateLimit", "free.sustained", "r"), got.param(t, "RateLimit", "free.sustained", "t"); left != 0 || again != wait {
		t.Errorf("RateLimit says %d left and more in %d s, Retry-After %d s", left, again, wait)
	}
	if q := got.param(t, "RateLimit-Policy", "free.sustained", "q"); q != 10 {
		t.Errorf("RateLimit-Policy says %d, want 10", q)
	}
	if n := len(s.app.requests()); n != 10 {
		t.Errorf("%d requests reached the app, want the 10 that were allowed", n)
	}
	s.ask(t, question{key: globex}).is(t, http.StatusOK) // one tenant's limit is no other's
}

func testRoutes(t *testing.T, binary string) {
	s := start(t, binary, patient)
	login := question{method: http.MethodPost, path: "/login", key: acme, from: "127.0.0.2"}
	s.exhaust(t, login, 5)
	got := s.ask(t, login)
	got.is(t, http.StatusTooManyRequests)
	if left := got.param(t, "RateLimit", "standard.login", "r"); left != 0 {
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
		got := s.ask(t, question{method: c.method, path: c.path, key: acme, from: c.from})
		if got.status != c.want {
			t.Errorf("%s %s from %s = %d, want %d: %s", c.method, c.path, c.from, got.status, c.want, c.why)
		}
	}
}

func testForged(t *testing.T, binary string) {
	s := start(t, binary, patient)
	forged := http.Header{
		"X-Tenant":           {"globex"},
		"X_Tenant":           {"globex"},
		"X-Original-Method":  {"GET"},
		"X-Original-Uri":     {"/healthz"},
		"X-Forwarded-Method": {"GET"},
		"X-Forwarded-Uri":    {"/healthz"},
		"X-Regiond-Decision": {"allow"},
		"Idempotency-Key":    {"always-the-same"},
		"Authorization":      {"Bearer nonsense"},
	}
	s.exhaust(t, question{key: hobby, header: forged}, 10)
	s.ask(t, question{key: hobby, header: forged}).is(t, http.StatusTooManyRequests)

	// Had the forged tenant been believed, globex would have paid.
	got := s.ask(t, question{key: globex})
	got.is(t, http.StatusOK)
	if left := got.param(t, "RateLimit", "standard.burst", "r"); left != 49 {
		t.Errorf("globex has %d of 50 left after its first request, want 49", left)
	}
	if h := s.app.requests()[0]; h.Get("X-Tenant") != "hobby" {
		t.Errorf("the app was told tenant %q, want hobby", h.Get("X-Tenant"))
	}

	login := question{method: http.MethodPost, path: "/login", key: acme, from: "127.0.0.2"}
	for i, address := range []string{"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "198.51.100.6"} {
		login.header = forged.Clone()
		login.header.Set("X-Forwarded-For", address)
		login.header.Set("X-Real-IP", address)
		login.header.Set("Forwarded", "for="+address)
		want := http.StatusOK
		if i == 5 {
			want = http.StatusTooManyRequests
		}
		s.ask(t, login).is(t, want)
	}
}

func testUnidentified(t *testing.T, binary string) {
	s := start(t, binary, patient)
	asTenant := http.Header{"X-Tenant": {"acme"}}
	for _, q := range []question{{}, {key: "guessed"}, {header: asTenant}, {key: "guessed", header: asTenant}} {
		got := s.ask(t, q)
		got.is(t, http.StatusUnauthorized)
		if got.header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
	}
	if n := len(s.app.requests()); n != 0 {
		t.Errorf("%d requests without a key reached the app", n)
	}
}

func testInvalid(t *testing.T, binary string) {
	s := start(t, binary, patient, edit{
		old: "proxy_set_header X-Tenant          $tenant;",
		new: `proxy_set_header X-Tenant          "";`,
	})
	got := s.ask(t, question{key: acme})
	got.is(t, http.StatusForbidden)
	got.problem(t, http.StatusForbidden)
	got.lacks(t, "Retry-After", "RateLimit")
	if n := len(s.app.requests()); n != 0 {
		t.Errorf("%d requests reached the app", n)
	}
}

func testKilled(t *testing.T, binary string) {
	s := start(t, binary, patient)
	s.exhaust(t, question{key: hobby}, 10)
	s.ask(t, question{key: hobby}).is(t, http.StatusTooManyRequests)

	s.regiond.end(syscall.SIGKILL)
	for range 5 {
		got := s.ask(t, question{key: hobby})
		got.is(t, http.StatusOK)
		got.lacks(t, "RateLimit", "RateLimit-Policy", "Retry-After")
	}
	s.ask(t, question{key: "guessed"}).is(t, http.StatusUnauthorized) // limits are open, the door is not
	log := s.accessLog(t, 17)
	for decision, want := range map[string]int{"allow": 10, "deny": 1, "none": 6} {
		if n := strings.Count(log, " decision="+decision+" "); n != want {
			t.Errorf("the access log has %d requests with decision=%s, want %d:\n%s", n, decision, want, log)
		}
	}

	// What was used before is in Redis, so the new process knows it.
	s.restart()
	s.ask(t, question{key: hobby}).is(t, http.StatusTooManyRequests)
}

func testFrozen(t *testing.T, binary string) {
	s := start(t, binary) // with the example's own timeouts
	if err := s.regiond.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.regiond.cmd.Process.Signal(syscall.SIGCONT) }()
	for ready(s.readyz) == nil { // the signal is on its way
		continue
	}
	asked := time.Now()
	got := s.ask(t, question{key: acme})
	got.is(t, http.StatusOK)
	got.lacks(t, "RateLimit")
	if took := time.Since(asked); took < 100*time.Millisecond || took > 2*time.Second {
		t.Errorf("the answer took %v, want a little more than the 100 ms that nginx waits", took)
	}
}

func testFailClosed(t *testing.T, binary string) {
	s := start(t, binary, patient, edit{old: "return 200; # to fail closed: return 403;", new: "return 403;"})
	s.ask(t, question{key: acme}).is(t, http.StatusOK)
	s.regiond.end(syscall.SIGKILL)
	got := s.ask(t, question{key: acme})
	got.is(t, http.StatusServiceUnavailable)
	got.problem(t, http.StatusServiceUnavailable)
	got.lacks(t, "RateLimit", "Retry-After")
	if n := len(s.app.requests()); n != 1 {
		t.Errorf("%d requests reached the app, want the one that was decided", n)
	}
}
