//go:build unix

package nginx_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// asked is what nginx sent to regiond.
type asked struct {
	method, host, uri, body string
	header                  http.Header
}

// standIn answers in regiond's place with one status and remembers the questions.
func standIn(t *testing.T, status int) (addr string, questions <-chan asked) {
	t.Helper()
	got := make(chan asked, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- asked{method: r.Method, host: r.Host, uri: r.RequestURI, body: string(body), header: r.Header.Clone()}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), got
}

// TestNothingOfTheClientReachesRegiond: what regiond is asked consists of what
// nginx knows, to the last field.
func TestNothingOfTheClientReachesRegiond(t *testing.T) {
	addr, questions := standIn(t, http.StatusOK)
	g := startNginx(t, addr, newApp(t).addr, patient)
	g.ask(t, question{
		method: http.MethodPost, path: "/login?next=%2Fhome", key: acme, from: "127.0.0.2",
		header: http.Header{
			"X-Tenant": {"globex", "hobby"}, "X-Forwarded-For": {"198.51.100.1"}, "X-Original-Uri": {"/healthz"},
			"Idempotency-Key": {"k"}, "Authorization": {"Bearer b"}, "Cookie": {"c=d"}, "X-Anything": {"e"},
		},
		body: "user=u&password=p",
	}).is(t, http.StatusOK)

	got := <-questions
	want := asked{method: http.MethodGet, host: "regiond", uri: "/v1/authz-nginx", header: http.Header{
		"X-Tenant": {"acme"}, "X-Forwarded-For": {"127.0.0.2"},
		"X-Original-Method": {"POST"}, "X-Original-Uri": {"/login?next=%2Fhome"},
	}}
	if got.method != want.method || got.host != want.host || got.uri != want.uri || got.body != "" {
		t.Errorf("regiond was asked %s %s at host %s with body %q, want %s %s at %s without one",
			got.method, got.uri, got.host, got.body, want.method, want.uri, want.host)
	}
	if !maps.EqualFunc(got.header, want.header, slices.Equal) {
		t.Errorf("regiond was sent the fields\n%v, want\n%v", got.header, want.header)
	}
}

// TestWhatCountsAsAway: only a regiond that fails opens the gate. One that
// refuses to understand is a mistake of configuration, or somebody's attempt.
func TestWhatCountsAsAway(t *testing.T) {
	for _, c := range []struct{ regiond, client int }{
		{200, 200},
		{500, 200},
		{502, 200},
		{503, 200},
		{504, 200},
		{400, 500},
		{404, 500},
		{429, 500},
		{431, 500},
		{302, 500},
	} {
		addr, _ := standIn(t, c.regiond)
		app := newApp(t)
		got := startNginx(t, addr, app.addr, patient).ask(t, question{key: acme})
		if got.status != c.client {
			t.Errorf("regiond answers %d: the customer gets %d, want %d", c.regiond, got.status, c.client)
		}
		if reached := len(app.requests()) == 1; reached != (c.client == 200) {
			t.Errorf("regiond answers %d: the request reached the app: %v", c.regiond, reached)
		}
		if c.client == 500 && strings.Contains(got.body, greeting) {
			t.Errorf("regiond answers %d: the app's answer reached the customer", c.regiond)
		}
	}
}
