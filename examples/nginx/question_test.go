//go:build unix

package nginx_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/regiond/regiond/test/gateway"
)

// TestNothingOfTheClientReachesRegiond: what regiond is asked consists of what
// nginx knows, to the last field.
func TestNothingOfTheClientReachesRegiond(t *testing.T) {
	regiond := gateway.NewStandIn(t, http.StatusOK, nil, "")
	c := example().Before(t, regiond.Addr, gateway.NewApp(t).Addr, example().Patient...)
	c.Ask(t, gateway.Question{
		Method: http.MethodPost, Path: "/login?next=%2Fhome", As: "acme", From: "127.0.0.2",
		Header: http.Header{
			"X-Tenant": {"globex", "hobby"}, "X-Forwarded-For": {"198.51.100.1"}, "X-Original-Uri": {"/healthz"},
			"Idempotency-Key": {"k"}, "Authorization": {"Bearer b"}, "Cookie": {"c=d"}, "X-Anything": {"e"},
		},
		Body: "user=u&password=p",
	}).Is(t, http.StatusOK)

	got := regiond.Requests()[0]
	want := gateway.Seen{Method: http.MethodGet, Host: "regiond", URI: "/v1/authz-nginx", Header: http.Header{
		"X-Tenant": {"acme"}, "X-Forwarded-For": {"127.0.0.2"},
		"X-Original-Method": {"POST"}, "X-Original-Uri": {"/login?next=%2Fhome"},
	}}
	if got.Method != want.Method || got.Host != want.Host || got.URI != want.URI || got.Body != "" {
		t.Errorf("regiond was asked %s %s at host %s with body %q, want %s %s at %s without one",
			got.Method, got.URI, got.Host, got.Body, want.Method, want.URI, want.Host)
	}
	if !maps.EqualFunc(got.Header, want.Header, slices.Equal) {
		t.Errorf("regiond was sent the fields\n%v, want\n%v", got.Header, want.Header)
	}
}

// TestWhatCountsAsAway: only a regiond that fails opens the gate. One that
// refuses to understand is a mistake of configuration, or somebody's attempt.
func TestWhatCountsAsAway(t *testing.T) {
	example().TestAway(t, map[int]int{
		200: 200,
		500: 200, 502: 200, 503: 200, 504: 200,
		400: 500, 404: 500, 429: 500, 431: 500, 302: 500,
	})
}

// TestLogSaysWhatWasDecided: an operator who looks for requests that went through
// unlimited finds them by decision=none.
func TestLogSaysWhatWasDecided(t *testing.T) {
	decided := gateway.NewStandIn(t, http.StatusOK, http.Header{"X-Regiond-Decision": {"allow"}}, "")
	broken := gateway.NewStandIn(t, http.StatusBadGateway, nil, "")
	for _, c := range []struct{ regiond, decision string }{{decided.Addr, "allow"}, {broken.Addr, "none"}} {
		addr, log := launchLogging(t, c.regiond, gateway.NewApp(t).Addr, example().Patient...)
		customer := gateway.Customer{Addr: addr, Prove: gateway.APIKey}
		customer.Exhaust(t, gateway.Question{As: "acme"}, 3)
		customer.Ask(t, gateway.Question{As: "guessed"}).Is(t, http.StatusUnauthorized)
		text := accessLog(t, log, 4)
		if n := strings.Count(text, "tenant=acme decision="+c.decision+" "); n != 3 {
			t.Errorf("the access log has %d of 3 requests of acme with decision=%s:\n%s", n, c.decision, text)
		}
		if !strings.Contains(text, "401 tenant= decision=none ") {
			t.Errorf("the access log does not show a request without tenant as undecided:\n%s", text)
		}
	}
}
