package httpapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
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
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]http.Handler{}
	ask := func(method, port, body string) int {
		t.Helper()
		r := httptest.NewRequest(method, "http://localhost:"+port+"/session", strings.NewReader(body))
		if body == "" && method == "GET" {
			r = httptest.NewRequest(method, "http://localhost:"+port+"/v1/regions", http.NoBody)
		}
		r.Header.Set("X-Requested-With", "test")
		for _, cookie := range jar.Cookies(r.URL) {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		ports[port].ServeHTTP(w, r)
		jar.SetCookies(r.URL, w.Result().Cookies())
		return w.Code
	}
	for _, port := range []string{"9090", "9190"} {
		o := options(&fake{})
		o.Settings = with(&httpapi.Settings{Access: tokens(t)})
		ports[port] = admin(t, o)
		if got := ask("POST", port, `{"token":"adm1n"}`); got != 204 {
			t.Fatalf("login at port %s: %d", port, got)
		}
	}
	for _, port := range []string{"9090", "9190"} {
		if got := ask("GET", port, ""); got != 200 {
			t.Errorf("after a login at both ports, port %s answers %d", port, got)
		}
	}
	if ask("DELETE", "9190", ""); ask("GET", "9090", "") != 200 || ask("GET", "9190", "") != 401 {
		t.Error("a logout at one port is not one there alone")
	}
	// Another program of the host can set a cookie of the same name under a longer path, which comes first.
	session := logIn(t, ports["9090"], "adm1n")
	name, _, _ := strings.Cut(strings.TrimPrefix(session, "Cookie: "), "=")
	if got := serve(ports["9090"], request("GET", "/v1/regions", "", "Cookie: "+name+"=other; "+strings.TrimPrefix(session, "Cookie: "))).status; got != 200 {
		t.Errorf("behind another cookie of its name a session gets %d", got)
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
			tokens, err := access.ParseTokens(strings.NewReader("op "+hashOf("adm1n")+" scopes=metrics"), access.AdminScopes)
			if err != nil {
				t.Fatal(err)
			}
			*settings = &httpapi.Settings{Access: access.Access{AdminTokens: tokens}}
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

func TestLoginRefused(t *testing.T) {
	tokens, err := access.ParseTokens(strings.NewReader("op "+hashOf("adm1n")+"\nscrape "+hashOf("metrics")+" scopes=metrics\nheld "+hashOf("held")+" tenants=acme"), access.AdminScopes)
	if err != nil {
		t.Fatal(err)
	}
	o := options(&fake{})
	o.Settings = with(&httpapi.Settings{Access: access.Access{AdminTokens: tokens}})
	h := admin(t, o)
	for _, row := range []struct {
		body   string
		header []string
		want   int
	}{
		{`{"token":"wrong"}`, nil, 401},
		{`{"token":""}`, nil, 401},
		{`{"token":"` + hashOf("adm1n") + `"}`, nil, 401},
		{`token=adm1n`, nil, 401},
		{`{"token":"` + strings.Repeat("x", 5000) + `"}`, nil, 401},
		{`{"token":"metrics"}`, nil, 403},
		{`{"token":"held"}`, nil, 403},
		{`{"token":"adm1n"}`, []string{"Sec-Fetch-Site: cross-site"}, 403},
		{`{"token":"adm1n"}`, []string{"Origin: https://evil.example"}, 403},
		{`{"token":"adm1n"}`, []string{"Sec-Fetch-Site: same-origin"}, 204},
	} {
		got := serve(h, request("POST", "/session", row.body, row.header...))
		if got.status != row.want || (got.field("Set-Cookie") != "") != (row.want == 204) {
			t.Errorf("%.40s %q: %d, cookie %q, want %d", row.body, row.header, got.status, got.field("Set-Cookie"), row.want)
		}
	}
	foreign := httptest.NewRequest("POST", "/session", strings.NewReader(`{"token":"adm1n"}`))
	foreign.Host = "evil.example"
	if got := serve(h, foreign).status; got != 421 {
		t.Errorf("under a foreign host: %d, want 421", got)
	}
	open := admin(t, options(&fake{}))
	if got := serve(open, request("POST", "/session", `{"token":"adm1n"}`)).status; got != 401 {
		t.Errorf("where no token is known: %d, want 401", got)
	}
}
