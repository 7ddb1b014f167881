package httpapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
)

// logIn returns the cookie of a session, as a header line.
func logIn(t *testing.T, h http.Handler, token string) string {
	t.Helper()
	got := serve(h, request("POST", "/session", fmt.Sprintf(`{"token":%q}`, token)))
	cookies := (&http.Response{Header: got.header}).Cookies()
	if got.status != 204 || len(cookies) != 1 {
		t.Fatalf("login: %d %q, %d cookies", got.status, got.body, len(cookies))
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" || c.MaxAge != 12*60*60 {
		t.Errorf("the cookie is %+v", c)
	}
	return "Cookie: " + c.Name + "=" + c.Value
}

// clockwork is a clock that a test sets.
type clockwork struct{ now time.Time }

func (c *clockwork) read() time.Time { return c.now }

func TestSession(t *testing.T) {
	clock := &clockwork{now: time.Unix(1_700_000_000, 0)}
	settings := &httpapi.Settings{Access: tokens(t)}
	o := options(&fake{})
	o.Now, o.Settings = clock.read, func() *httpapi.Settings { return settings }
	h := admin(t, o)
	bare := func(method, target string, header ...string) int {
		t.Helper()
		return serve(h, bareRequest(method, target, "", header...)).status
	}
	const own = "X-Requested-With: test"
	status := func(method, target string, header ...string) int { return bare(method, target, append(header, own)...) }
	session := logIn(t, h, "adm1n")
	for _, row := range []struct {
		method, target string
		header         []string
		want           int
	}{
		{"GET", "/v1/events", nil, 401},
		{"GET", "/v1/events", []string{session}, 401}, // of an image of another port of the host, over plain HTTP
		{"GET", "/v1/regions", []string{session}, 401},
		{"DELETE", "/v1/usage/acme", []string{session}, 401},
		{"GET", "/v1/events", []string{own}, 401},
		{"GET", "/v1/events", []string{session, own}, 200},
		{"GET", "/v1/regions", []string{session, own}, 200},
		{"GET", "/v1/regions", []string{session + "x", own}, 401},
		{"GET", "/v1/regions", []string{"Cookie: regiond_session=", own}, 401},
		{"GET", "/v1/regions", []string{session, "Sec-Fetch-Site: same-origin"}, 200},
		{"GET", "/v1/regions", []string{session, "Sec-Fetch-Site: none"}, 200},               // the address was typed
		{"GET", "/debug/pprof/cmdline", []string{session, "Sec-Fetch-Site: same-site"}, 401}, // of another port of the host
		{"GET", "/v1/events", []string{session, "Sec-Fetch-Site: same-site"}, 401},
		{"GET", "/v1/events", []string{session, "Origin: http://127.0.0.1:3000"}, 401},
		{"HEAD", "/v1/regions", []string{session, "Sec-Fetch-Site: cross-site"}, 401},
		{"GET", "/metrics", []string{session, own}, 401},
		{"DELETE", "/v1/usage/acme", []string{session, "Sec-Fetch-Site: same-origin"}, 204},
		{"DELETE", "/v1/usage/acme", []string{session, "Sec-Fetch-Site: cross-site"}, 401},
		{"DELETE", "/v1/usage/acme", []string{session, "Origin: https://evil.example"}, 401},
		{"DELETE", "/session", []string{session, "Sec-Fetch-Site: cross-site"}, 403},
		{"GET", "/v1/regions", []string{session, own}, 200},
		{"DELETE", "/session", []string{session, own}, 204},
		{"GET", "/v1/regions", []string{session, own}, 401},
	} {
		if got := bare(row.method, row.target, row.header...); got != row.want {
			t.Errorf("%s %s %q: %d, want %d", row.method, row.target, row.header, got, row.want)
		}
	}

	session = logIn(t, h, "adm1n")
	clock.now = clock.now.Add(access.SessionLife - time.Second)
	if got := status("GET", "/v1/regions", session); got != 200 {
		t.Errorf("a second before its end a session gets %d", got)
	}
	clock.now = clock.now.Add(time.Second)
	if got := status("GET", "/v1/regions", session); got != 401 {
		t.Errorf("at its end a session gets %d", got)
	}

	session = logIn(t, h, "adm1n")
	settings = &httpapi.Settings{Access: access.Access{AdminTokens: tokens(t).Tokens}}
	if got := status("GET", "/v1/regions", session); got != 401 {
		t.Errorf("after a reload without its token a session gets %d", got)
	}
	settings = &httpapi.Settings{Access: tokens(t)}
	if got := status("GET", "/v1/regions", session); got != 401 {
		t.Errorf("once its token is back a session that has ended gets %d", got)
	}
}

// TestPagesOfOtherOrigins: a web page cannot have its visitor's browser hold streams, record profiles or look tenants up, of
// which there are few at a time; also where no token is asked for, and where the browser does not say whose page it is.
func TestPagesOfOtherOrigins(t *testing.T) {
	o := options(&fake{})
	o.Address = "127.0.0.1:9090"
	open := admin(t, o)
	o.Settings = with(&httpapi.Settings{Access: access.Access{AdminClientNames: []string{"op"}}})
	byCertificate := admin(t, o)
	for _, target := range []string{"/v1/events", "/debug/pprof/cmdline", "/debug/pprof/", "/v1/top", "/v1/explain/acme"} {
		for header, want := range map[string]int{
			"Sec-Fetch-Site: cross-site": 403, "Sec-Fetch-Site: same-site": 403, "Origin: https://evil.example": 403,
			"Accept: image/*": 403, "Authorization: Basic b3A6cHc=": 403, "Cookie: a=b": 403,
			"Sec-Fetch-Site: same-origin": 200, "Sec-Fetch-Site: none": 200, "X-Requested-With: curl": 200,
			"Authorization: Bearer any": 200, "X-Regiond-Token: any": 200,
		} {
			for _, method := range []string{"GET", "HEAD"} {
				r := bareRequest(method, target, "", header)
				if got := serve(open, r); got.status != want || want == 403 && method == "GET" && !strings.Contains(got.body, "add the header X-Requested-With") {
					t.Errorf("%s %s with %s: %d %q, want %d", method, target, header, got.status, got.body, want)
				}
			}
			// A browser shows a client certificate by itself, too.
			r := bareRequest("GET", target, "", header)
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "op"}}}}}
			if got := serve(byCertificate, r).status; got != want {
				t.Errorf("%s by a certificate, with %s: %d, want %d", target, header, got, want)
			}
		}
	}
	if got := serve(open, bareRequest("OPTIONS", "/v1/top", "", "Origin: https://evil.example", "Access-Control-Request-Headers: x-requested-with")); got.status != 405 ||
		got.field("Access-Control-Allow-Headers") != "" {
		t.Errorf("a preflight of another origin gets %d %v", got.status, got.header)
	}
}

// TestSessionsOfTwoPorts: a browser has one list of cookies for all ports of a host. A page of one region's
// process, as of kubectl port-forward, neither ends nor hides a session of another's.
func TestSessionsOfTwoPorts(t *testing.T) {
	o := options(&fake{})
	o.Settings = with(&httpapi.Settings{Access: tokens(t)})
	one, other := admin(t, o), admin(t, o)
	ask := func(h http.Handler, method, target, port string, cookies ...string) reply {
		r := request(method, target, `{"token":"adm1n"}`, "Cookie: "+strings.Join(cookies, "; "))
		r.Host = "localhost:" + port
		return serve(h, r)
	}
	cookie := func(r reply) string {
		text, _, _ := strings.Cut(r.field("Set-Cookie"), ";")
		return text
	}
	first := cookie(ask(one, "POST", "/session", "9090"))
	second := cookie(ask(other, "POST", "/session", "9190", first))
	if a, b := ask(one, "GET", "/v1/regions", "9090", first, second), ask(other, "GET", "/v1/regions", "9190", first, second); a.status != 200 || b.status != 200 {
		t.Errorf("after a login at both ports they answer %d and %d", a.status, b.status)
	}
	ended := cookie(ask(other, "DELETE", "/session", "9190", first, second))
	if a, b := ask(one, "GET", "/v1/regions", "9090", first, ended), ask(other, "GET", "/v1/regions", "9190", first, second); a.status != 200 || b.status != 401 ||
		!strings.HasPrefix(second, strings.TrimSuffix(ended, "=")+"=") {
		t.Errorf("after a logout at one port they answer %d and %d, and the cookie %s ends %s", a.status, b.status, ended, second)
	}
	// Another program of the host can set a cookie of the same name under a longer path, which comes first.
	name, _, _ := strings.Cut(first, "=")
	if strings.HasPrefix(second, name+"=") {
		t.Errorf("the cookies of both ports are called %s: the browser keeps one", name)
	}
	if got := ask(one, "GET", "/v1/regions", "9090", name+"=other", first); got.status != 200 {
		t.Errorf("behind another cookie of its name a session gets %d", got.status)
	}
}

// TestStreamEndsWithItsCaller: events are written only for as long as who opened the stream might open it again.
func TestStreamEndsWithItsCaller(t *testing.T) {
	clock := &clockwork{now: time.Unix(1_700_000_000, 0)}
	allowed := &httpapi.Settings{Access: tokens(t)}
	for name, end := range map[string]func(h http.Handler, settings **httpapi.Settings, session string){
		"nothing": func(http.Handler, **httpapi.Settings, string) {},
		"the token is gone": func(_ http.Handler, settings **httpapi.Settings, _ string) {
			*settings = &httpapi.Settings{Access: access.Access{AdminTokens: tokens(t).Tokens}}
		},
		"the token has other scopes": func(_ http.Handler, settings **httpapi.Settings, _ string) {
			*settings = &httpapi.Settings{Access: access.Access{AdminTokens: known(t, access.AdminScopes, "adm1n scopes=metrics")}}
		},
		"the session is over": func(http.Handler, **httpapi.Settings, string) { clock.now = clock.now.Add(access.SessionLife) },
		"logged out": func(h http.Handler, _ **httpapi.Settings, session string) {
			serve(h, request("DELETE", "/session", "", session))
		},
	} {
		for _, header := range []string{"session", "X-Regiond-Token: adm1n"} {
			settings := allowed
			o := options(&fake{})
			o.Now, o.Settings = clock.read, func() *httpapi.Settings { return settings }
			var h http.Handler
			own := header
			o.Events = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "one ")
				end(h, &settings, own)
				_, _ = io.WriteString(w, "two")
			})
			h = admin(t, o)
			if header == "session" {
				own = logIn(t, h, "adm1n")
			}
			want := "one "
			if name == "nothing" || header != "session" && (name == "the session is over" || name == "logged out") {
				want = "one two"
			}
			if got := serve(h, request("GET", "/v1/events", "", own)); got.body != want {
				t.Errorf("%s, by %s: the stream has %q, want %q", name, header, got.body, want)
			}
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	o := options(&fake{})
	o.Settings = with(&httpapi.Settings{Access: tokens(t)})
	h := admin(t, o)
	var all []string
	for range access.MaxSessions + 1 {
		all = append(all, logIn(t, h, "adm1n"))
	}
	for i, want := range map[int]int{0: 401, 1: 200, access.MaxSessions: 200} {
		if got := serve(h, request("GET", "/v1/regions", "", all[i])).status; got != want {
			t.Errorf("session %d gets %d, want %d", i, got, want)
		}
	}
}
