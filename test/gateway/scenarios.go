//go:build unix

package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/regiond/regiond/test/spelling"
)

// order is the request of allowed and down.
func order() Request {
	return Request{Method: http.MethodPost, Path: "/status?a=%2Fb", Body: "order=1", As: "hobby", From: "127.0.0.2"}
}

func (e Example) allowed(t *testing.T, binary string) {
	s := e.start(t, binary, e.LongTimeouts...)
	for used := int64(1); used <= 3; used++ {
		got := s.Send(t, order())
		got.Is(t, http.StatusOK)
		if got.Text != appBody {
			t.Errorf("body = %q, want the app's", got.Text)
		}
		got.Lacks(t, "Retry-After", "X-Regiond-Decision")
		if e.NoRateLimit {
			got.Lacks(t, "RateLimit", "RateLimit-Policy")
			continue
		}
		left := got.Param(t, "RateLimit", "free.sustained", "r")
		q, w := got.Param(t, "RateLimit-Policy", "free.sustained", "q"), got.Param(t, "RateLimit-Policy", "free.sustained", "w")
		if left != 10-used || q != 10 || w != 60 {
			t.Errorf("r=%d, q=%d, w=%d after %d requests, want r=%d of 10 per 60 s", left, q, w, used, 10-used)
		}
	}
	s.checkReceived(t, s.app.Requests())
}

// checkReceived checks that the app got order whole, with the tenant that the
// gateway authenticated.
func (s *stack) checkReceived(t *testing.T, requests []Received) {
	t.Helper()
	for _, r := range requests {
		if r.Method != http.MethodPost || r.URI != "/status?a=%2Fb" || r.Body != "order=1" ||
			!slices.Equal(r.Header["X-Tenant"], []string{"hobby"}) || !slices.Equal(r.Header["X-Forwarded-For"], []string{"127.0.0.2"}) {
			t.Errorf("the app got %+v, want the whole request with tenant hobby from 127.0.0.2", r)
		}
	}
}

func (e Example) limited(t *testing.T, binary string) {
	s := e.start(t, binary, e.LongTimeouts...)
	s.Exhaust(t, Request{As: "hobby"}, 10)
	got := s.Send(t, Request{As: "hobby"})
	got.IsProblem(t, http.StatusTooManyRequests)
	if cache := got.Header["Cache-Control"]; !slices.Equal(cache, []string{"no-store"}) {
		t.Errorf("Cache-Control = %q, want no-store once", cache)
	}
	// A minute, and a tenth of it on top so that clients do not return together.
	wait, err := strconv.ParseInt(got.Header.Get("Retry-After"), 10, 64)
	if err != nil || wait < 1 || wait > 61 {
		t.Errorf("Retry-After = %q, want 1…61 s", got.Header["Retry-After"])
	}
	if left, again := got.Param(t, "RateLimit", "free.sustained", "r"), got.Param(t, "RateLimit", "free.sustained", "t"); left != 0 || again != wait {
		t.Errorf("RateLimit has r=%d and t=%d, Retry-After %d", left, again, wait)
	}
	if n := len(s.app.Requests()); n != 10 {
		t.Errorf("%d requests reached the app, want the 10 that were allowed", n)
	}
	s.Send(t, Request{As: "globex"}).Is(t, http.StatusOK) // limits are per tenant
}

func (e Example) routes(t *testing.T, binary string) {
	s := e.start(t, binary, e.LongTimeouts...)
	login := Request{Method: http.MethodPost, Path: "/login", As: "acme", From: "127.0.0.2"}
	s.Exhaust(t, login, 5)
	got := s.Send(t, login)
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
		got := s.Send(t, Request{Method: c.method, Path: c.path, As: "acme", From: c.from})
		if got.Status != c.want {
			t.Errorf("%s %s from %s = %d, want %d: %s", c.method, c.path, c.from, got.Status, c.want, c.why)
		}
	}
}

// startNginxApp starts an application that ignores case, as many do: it serves /login and
// the files below /assets, and nothing else.
func startNginxApp(t *testing.T) (addr string) {
	t.Helper()
	dir, addr := t.TempDir(), FreeAddrs(t, 1)[0]
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s; ", kind, dir, kind)
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := "pid " + dir + "/nginx.pid; error_log stderr crit; worker_processes 1; events { }\n" +
		"http { access_log off; " + temp + "server { listen " + addr + ";\n" +
		"location ~* ^/login/?$ { return 200 login; } location /assets/ { return 200 file; } location / { return 404; } } }\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := Run(t, dir, "nginx", syscall.SIGTERM, "-p", dir, "-c", conf, "-g", "daemon off;")
	p.Await(t, func() error { return Dial(addr) })
	return addr
}

// spellings attacks the login limit and a route that is free, with nginx as the app.
func (e Example) spellings(t *testing.T, binary string) {
	app := startNginxApp(t)
	regiond := StartRegiond(t, binary, "topology.yaml", Edit{
		Old: "path: /healthz, skip: true}", New: "path: /healthz, skip: true}\n    - {name: assets, path: \"/assets/*\", skip: true}",
	})
	c, _ := e.InFrontOf(t, regiond.Addr, app, e.LongTimeouts...)
	direct := Customer{Addr: app, Authenticate: func(*http.Request, string) {}}
	login := func(c Customer, path, as, from string) bool {
		got := c.Send(t, Request{Method: http.MethodPost, Path: path, As: as, From: from})
		return got.Status == http.StatusOK && got.Text == "login"
	}

	// After five no login is left, so each that is served has slipped past.
	const from = "127.0.0.2"
	for range 5 {
		if !login(c, "/login", "acme", from) {
			t.Fatal("a login of the first five was not served")
		}
	}
	sent := 0
	for _, path := range spelling.Logins(4, 2000) {
		u, err := url.ParseRequestURI("http://app" + path)
		if err != nil || u.RequestURI() != path || !login(direct, path, "", "") {
			continue // net/http would send another path, or the app serves something else
		}
		sent++
		if login(c, path, "acme", from) {
			t.Errorf("%s was served as a sixth login", path)
		}
	}
	if sent < 100 {
		t.Errorf("%d spellings were sent, want 100 at least", sent)
	}

	for range 20 { // twice what the tenant has left without the free route
		got := c.Send(t, Request{Path: "/assets/app.min.js", As: "hobby", From: "127.0.0.3"})
		got.Is(t, http.StatusOK)
		got.Lacks(t, "RateLimit", "RateLimit-Policy")
	}
}

// An application that writes methods in capitals serves "post" as POST.
func (e Example) methods(t *testing.T, binary string) {
	s := e.start(t, binary, e.LongTimeouts...)
	for range 12 {
		s.Send(t, Request{Method: "post", Path: "/login", As: "acme", From: "127.0.0.2"})
	}
	if n := len(s.app.Requests()); n > 5 {
		t.Errorf("%d of 12 logins by the method post reached the app, want 5 at most", n)
	}
}

// forgery is what a customer might send to be counted as another tenant, by
// another route, or not at all.
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
	s := e.start(t, binary, e.LongTimeouts...)
	header := forgery()
	s.Exhaust(t, Request{As: "hobby", Header: header}, 10)
	s.Send(t, Request{As: "hobby", Header: header}).Is(t, http.StatusTooManyRequests)
	for _, r := range s.app.Requests() {
		if tenant := r.Header.Values("X-Tenant"); len(tenant) != 1 || tenant[0] != "hobby" || r.Header["X_tenant"] != nil {
			t.Errorf("the app got tenant %q, and X_Tenant %q; want hobby, and none", tenant, r.Header["X_tenant"])
		}
	}

	// With a forged tenant, globex would have been charged.
	left := s.Send(t, Request{Method: http.MethodPost, Path: "/login", As: "globex", From: "127.0.0.2"})
	left.Is(t, http.StatusOK)
	if !e.NoRateLimit && left.Param(t, "RateLimit", "standard.burst", "r") != 49 {
		t.Errorf("globex has %q after its first request, want 49 of 50 left", left.Header["Ratelimit"])
	}

	login := Request{Method: http.MethodPost, Path: "/login", As: "acme", From: "127.0.0.2"}
	for i := range 6 {
		address := fmt.Sprintf("198.51.100.%d", i)
		login.Header = header.Clone()
		login.Header.Set("X-Forwarded-For", address)
		login.Header.Set("X-Real-IP", address)
		login.Header.Set("Forwarded", "for="+address)
		s.Send(t, login).Is(t, map[bool]int{false: 200, true: 429}[i == 5])
	}
}

func (e Example) unauthenticated(t *testing.T, binary string) {
	s := e.start(t, binary, e.LongTimeouts...)
	asTenant := http.Header{"X-Tenant": {"acme"}}
	for _, q := range []Request{{}, {As: "guessed"}, {Header: asTenant}, {As: "guessed", Header: asTenant}} {
		got := s.Send(t, q)
		got.Is(t, http.StatusUnauthorized)
		if got.Header.Get("WWW-Authenticate") == "" && !e.NoChallenge {
			t.Error("401 without WWW-Authenticate")
		}
	}
	if n := len(s.app.Requests()); n != 0 {
		t.Errorf("%d requests without credentials reached the app", n)
	}
}

func (e Example) noTenant(t *testing.T, binary string) {
	s := e.start(t, binary, append(e.NoTenant, e.LongTimeouts...)...)
	got := s.Send(t, Request{As: "acme"})
	got.IsProblem(t, http.StatusForbidden)
	got.Lacks(t, "Retry-After", "RateLimit")
	if n := len(s.app.Requests()); n != 0 {
		t.Errorf("%d requests reached the app", n)
	}
}

func (e Example) killed(t *testing.T, binary string) {
	s := e.start(t, binary, e.LongTimeouts...)
	s.Exhaust(t, Request{As: "hobby"}, 10)
	s.Send(t, Request{As: "hobby"}).Is(t, http.StatusTooManyRequests)

	s.regiond.End(syscall.SIGKILL)
	e.down(t, s, e.Closed)
	s.Send(t, Request{As: "guessed"}).Is(t, http.StatusUnauthorized) // failing open does not skip authentication

	// Usage is in Redis, so the new process has it.
	s.regiond.Restart(t)
	s.Send(t, Request{As: "hobby"}).Is(t, http.StatusTooManyRequests)
}

// down checks what customers get without a regiond.
func (e Example) down(t *testing.T, s *stack, closed bool) {
	t.Helper()
	before := len(s.app.Requests())
	for range 3 {
		got := s.Send(t, order())
		got.Lacks(t, "RateLimit", "RateLimit-Policy", "Retry-After")
		switch {
		case !closed:
			got.Is(t, http.StatusOK)
		case e.OwnPage:
			got.Is(t, e.DownStatus)
		default:
			got.IsProblem(t, e.DownStatus)
		}
	}
	reached := s.app.Requests()[before:]
	if want := map[bool]int{true: 0, false: 3}[closed]; len(reached) != want {
		t.Fatalf("%d of 3 requests reached the app without regiond, want %d", len(reached), want)
	}
	s.checkReceived(t, reached)
}

func (e Example) frozen(t *testing.T, binary string) {
	if e.Timeout == 0 {
		return // no line of the example sets it
	}
	s := e.start(t, binary) // with the example's own timeouts
	s.regiond.Freeze(t)
	begun := time.Now()
	got := s.Send(t, Request{As: "acme"})
	took := time.Since(begun)
	want := http.StatusOK
	if e.Closed {
		want = e.DownStatus
	}
	got.Is(t, want)
	got.Lacks(t, "RateLimit")
	if took < e.Timeout || took > e.Timeout+2*time.Second {
		t.Errorf("the answer took %v, want a little more than %v", took, e.Timeout)
	}
}

func (e Example) opposite(t *testing.T, binary string) {
	if len(e.Opposite) == 0 {
		return // the gateway has one fail mode only
	}
	s := e.start(t, binary, append(e.Opposite, e.LongTimeouts...)...)
	s.Send(t, Request{As: "acme"}).Is(t, http.StatusOK)
	s.regiond.End(syscall.SIGKILL)
	e.down(t, s, !e.Closed)
}
