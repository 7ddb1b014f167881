package httpapi_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

func forwardAuth() *quota.ForwardAuth {
	return &quota.ForwardAuth{
		Tenant: quota.TenantSource{Header: "X-Tenant"},
		Dimensions: []quota.DimensionSource{
			{Name: "user", Header: "X-User"},
			{Name: "ip", ClientIP: true},
			{Name: "token", Header: "Authorization", Hash: true},
		},
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("10.0.0.0/8")},
		Routes: []quota.Route{
			{Name: "login", Methods: []string{"POST"}, Path: "/login"},
			{Name: "search", Path: "/search/*", Cost: 5},
			{Name: "status", Path: "/status", Skip: true},
			{Name: "open", Path: "/public/*", Skip: true},
		},
	}
}

// checked is the calls of the limiter in one line.
func checked(f *fake) string { return strings.ReplaceAll(strings.Join(f.asked, ""), "check ", "") }

func TestForwardAuth(t *testing.T) {
	tenant := "X-Tenant: acme"
	rows := []struct {
		name    string
		call    string // method and target
		header  []string
		status  int
		checked string
	}{
		{"own method and path", "POST /v1/authz/login?explain=1&cost=99", []string{tenant}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"method decides", "GET /v1/authz/login", []string{tenant}, 200, "acme cost=1 ip=192.0.2.1 route=other"},
		{"cost of a route", "GET /v1/authz/search/x", []string{tenant}, 200, "acme cost=5 ip=192.0.2.1 route=search"},
		{"skipped", "GET /v1/authz/status", nil, 200, ""},
		{"root", "GET /v1/authz/", []string{tenant}, 200, "acme cost=1 ip=192.0.2.1 route=other"},
		{"user", "GET /v1/authz/", []string{tenant, "X-User: auth0|x"}, 200, "acme cost=1 ip=192.0.2.1 route=other user=auth0|x"},
		{"token is hashed", "GET /v1/authz/", []string{tenant, "Authorization: Bearer s3cret, spaced"}, 200, "acme cost=1 ip=192.0.2.1 route=other token=4ebd187c29718bf464e9743f05e0472a"},
		{"forwarded", "GET /v1/authz", []string{tenant, "X-Forwarded-Method: POST", "X-Forwarded-Uri: /login?x=/status"}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"forwarded, absolute form", "GET /v1/authz", []string{tenant, "X-Forwarded-Method: POST", "X-Forwarded-Uri: http://h/login"}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"nginx", "GET /v1/authz-nginx", []string{tenant, "X-Original-Method: POST", "X-Original-URI: /login"}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"nginx does not read forwarded", "GET /v1/authz-nginx", []string{tenant, "X-Original-Method: POST", "X-Original-URI: /login", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /status"}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"forwarded does not read nginx's", "GET /v1/authz", []string{tenant, "X-Original-Method: GET", "X-Original-URI: /status", "X-Forwarded-Method: POST", "X-Forwarded-Uri: /login"}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"suffix reads neither", "POST /v1/authz/login", []string{tenant, "X-Original-Method: GET", "X-Original-URI: /status", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /status"}, 200, "acme cost=1 ip=192.0.2.1 route=login"},
		{"no forwarded path", "GET /v1/authz", []string{tenant}, 403, ""},
		{"no original path", "GET /v1/authz-nginx", []string{tenant, "X-Forwarded-Method: GET", "X-Forwarded-Uri: /status"}, 403, ""},
		{"two forwarded paths", "GET /v1/authz", []string{tenant, "X-Forwarded-Method: GET", "X-Forwarded-Uri: /status", "X-Forwarded-Uri: /login"}, 403, ""},
		{"asterisk form", "GET /v1/authz", []string{tenant, "X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: *"}, 403, ""},
		{"no tenant", "GET /v1/authz/", nil, 403, ""},
		{"empty tenant", "GET /v1/authz/", []string{"X-Tenant: "}, 403, ""},
		{"two tenants", "GET /v1/authz/", []string{tenant, tenant}, 403, ""},
		{"joined tenants", "GET /v1/authz/", []string{"X-Tenant: acme,evil"}, 403, ""},
		{"tenant with space", "GET /v1/authz/", []string{"X-Tenant: acme evil"}, 403, ""},
		{"tenant with brace", "GET /v1/authz/", []string{"X-Tenant: acme}"}, 403, ""},
		{"tenant not ASCII", "GET /v1/authz/", []string{"X-Tenant: é"}, 403, ""},
		{"tenant long", "GET /v1/authz/", []string{"X-Tenant: " + strings.Repeat("a", 257)}, 403, ""},
		{"tenant under an alias", "GET /v1/authz/", []string{tenant, "x_tenant: evil"}, 403, ""},
		{"tenant under a dotted alias", "GET /v1/authz/", []string{tenant, "X.Tenant: evil"}, 403, ""},
		{"user under an alias", "GET /v1/authz/", []string{tenant, "X_User: evil"}, 403, ""},
		{"unrelated alias", "GET /v1/authz/", []string{tenant, "X_Other: fine"}, 200, "acme cost=1 ip=192.0.2.1 route=other"},
		{"two users", "GET /v1/authz/", []string{tenant, "X-User: a", "X-User: b"}, 403, ""},
		{"user with space", "GET /v1/authz/", []string{tenant, "X-User: a b"}, 403, ""},
		{"two tokens", "GET /v1/authz/", []string{tenant, "Authorization: a", "Authorization: b"}, 403, ""},
		{"forged client", "GET /v1/authz/", []string{tenant, "X-Forwarded-For: 1.1.1.1, 198.51.100.7"}, 200, "acme cost=1 ip=198.51.100.7 route=other"},
		{"key of the end user is not ours", "GET /v1/authz/", []string{tenant, "Idempotency-Key: a b"}, 200, "acme cost=1 ip=192.0.2.1 route=other"},
		{"broken escape", "GET /v1/authz", []string{tenant, "X-Forwarded-Method: POST", "X-Forwarded-Uri: /login%2"}, 403, ""},
		{"any method", "BREW /v1/authz/login", []string{tenant}, 200, "acme cost=1 ip=192.0.2.1 route=other"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := &fake{}
			o := options(f)
			o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
			method, target, _ := strings.Cut(row.call, " ")
			got := serve(data(t, o), request(method, target, "a body that is not read", row.header...))
			if got.status != row.status {
				t.Errorf("status %d, want %d: %s", got.status, row.status, got.body)
			}
			if got := checked(f); got != row.checked {
				t.Errorf("checked %q\nwant    %q", got, row.checked)
			}
			decision, body := "allow", ""
			if row.status != 200 {
				decision, body = "invalid", got.body
			}
			if got.field("X-Regiond-Decision") != decision || got.body != body {
				t.Errorf("decision %q, body %q", got.field("X-Regiond-Decision"), got.body)
			}
			if row.checked != "" && (got.field("RateLimit") == "" || got.field("RateLimit-Policy") == "" || got.field("Content-Type") != "") {
				t.Errorf("header %v", got.header)
			}
			if row.status != 200 && got.json(t)["type"] != "urn:regiond:problem:identity" {
				t.Errorf("body %s", got.body)
			}
		})
	}
}

// A refusal in a status that each gateway passes on, whatever the reason.
func TestForwardAuthRefusals(t *testing.T) {
	doc := document(t)
	rows := []struct {
		name     string
		decide   func(context.Context, quota.Request) (quota.Decision, error)
		status   int
		decision string
		retry    string
		limit    string
		kind     string
	}{
		{"denied", deny, 429, "deny", "13", "sustained", "https://iana.org/assignments/http-problem-types#quota-exceeded"},
		{"closed", closed, 429, "deny", "1", "", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
		{"shed", shed, 429, "deny", "1", "", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
		{"undecided", fails, 429, "deny", "1", "", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
		{"panic", func(context.Context, quota.Request) (quota.Decision, error) { panic("defect") }, 429, "deny", "1", "", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
		{"cost", tooCostly, 429, "deny", "", "burst", "urn:regiond:problem:cost-exceeds-limit"},
		{"input", refuses(quota.FaultInput, "/cost", "is at most 20"), 403, "invalid", "", "", "urn:regiond:problem:identity"},
		{"not configured", nil, 403, "invalid", "", "", "urn:regiond:problem:forward-auth-not-configured"},
		{"reuse", refuses(quota.FaultReuse, "/cost", "is at most 20"), 403, "invalid", "", "", "urn:regiond:problem:identity"},
	}
	for _, row := range rows {
		for _, target := range []string{"/v1/authz", "/v1/authz/x", "/v1/authz-nginx"} {
			t.Run(row.name+" "+target, func(t *testing.T) {
				o := options(&fake{decide: row.decide})
				if row.decide != nil {
					o.Settings = with(&httpapi.Settings{ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}})
				}
				got := serve(data(t, o), request("GET", target, "", "X-Tenant: acme"))
				doc.isDocumented(t, "get", target, got)
				want := row.status
				if target == "/v1/authz-nginx" {
					want = 403
				}
				if got.status != want || fmt.Sprint(got.json(t)["status"]) != fmt.Sprint(want) {
					t.Errorf("status %d, want %d: %s", got.status, want, got.body)
				}
				if got.field("X-Regiond-Decision") != row.decision || got.field("Retry-After") != row.retry || got.json(t)["type"] != row.kind {
					t.Errorf("%q %q %s", got.field("X-Regiond-Decision"), got.field("Retry-After"), got.body)
				}
				if got.field("X-Regiond-Limit") != row.limit {
					t.Errorf("limit %q, want %q", got.field("X-Regiond-Limit"), row.limit)
				}
				if strings.Contains(got.body, "ceiling") || strings.Contains(got.body, `"limits"`) || got.field("Cache-Control") != "no-store" {
					t.Errorf("customers must not get this: %v %s", got.header, got.body)
				}
			})
		}
	}
}

// TestPolicyFrom: a header says the tenant's policy under the rules of the header that says the tenant, and of a request without
// tenant, which is anonymous, it says nothing.
func TestPolicyFrom(t *testing.T) {
	const anonymous, acme, gold = "anonymous cost=1 ip=192.0.2.1", "acme cost=1 ip=192.0.2.1", "acme cost=1 ip=192.0.2.1 tenant_policy=gold"
	f := forwardAuth()
	f.Missing, f.Routes, f.PolicyFrom = quota.MissingAnonymous, nil, &quota.PolicySource{Header: "X-Plan"}
	for header, want := range map[string]string{
		"Accept: any":                    anonymous,
		"X-Tenant: ":                     anonymous,
		"X-Plan: gold":                   anonymous,
		"X-Tenant: \nX-Plan: gold":       anonymous,
		"X-Tenant: acme":                 acme,
		"X-Tenant: acme\nX-Plan: ":       acme,
		"X-Tenant: acme\nX-Plan: gold":   gold,
		"X-Tenant: acme\nX-Tenant: acme": "",
		"X-Tenant: \nX-Tenant: ":         "",
		"X-Tenant: a b":                  "",
		"X_Tenant: acme":                 "",

		"X-Tenant: acme\nX-Plan: gold\nX-Plan: platinum": "",
		"X-Tenant: acme\nX-Plan: gold,platinum":          "",
		"X-Tenant: acme\nX-Plan: a b":                    "",
		"X-Tenant: acme\nX_Plan: gold":                   "",
		"X-Tenant: acme\nX-Plan: gold\nX.Plan: platinum": "",
	} {
		l := &fake{}
		o := options(l)
		o.Settings = with(&httpapi.Settings{ForwardAuth: f})
		got := serve(data(t, o), request("GET", "/v1/authz", "", strings.Split(header, "\n")...))
		if checked(l) != want || got.status != map[bool]int{true: 200, false: 403}[want != ""] {
			t.Errorf("%q: %d, checked %q, want %q", header, got.status, checked(l), want)
		}
	}
}

func TestClientIP(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	rows := []struct {
		peer, forwarded, want string // forwarded lines separated by |
	}{
		{"198.51.100.7:4711", "", "198.51.100.7"},
		{"198.51.100.7:4711", "1.1.1.1", "198.51.100.7"}, // not trusted: not believed
		{"10.0.0.1:80", "", "10.0.0.1"},
		{"10.0.0.1:80", "198.51.100.7", "198.51.100.7"},
		{"10.0.0.1:80", "1.1.1.1, 198.51.100.7", "198.51.100.7"},
		{"10.0.0.1:80", "1.1.1.1, 198.51.100.7, 10.9.9.9", "198.51.100.7"},
		{"10.0.0.1:80", "1.1.1.1|198.51.100.7|10.9.9.9", "198.51.100.7"},
		{"10.0.0.1:80", "10.0.0.2, 10.0.0.3", "10.0.0.2"}, // all ours: the left-most
		{"10.0.0.1:80", "198.51.100.7, garbage, 10.0.0.3", "10.0.0.3"},
		{"10.0.0.1:80", "198.51.100.7,", "10.0.0.1"},
		{"10.0.0.1:80", "unknown", "10.0.0.1"},
		{"10.0.0.1:80", " 198.51.100.7:4711 ", "198.51.100.7"},
		{"10.0.0.1:80", "::ffff:198.51.100.7", "198.51.100.7"},
		{"[::ffff:10.0.0.1]:80", "198.51.100.7", "198.51.100.7"},
		{"[fd00::1%eth0]:80", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"10.0.0.1:80", "[2001:db8:1:2:3::6]:443", "2001:db8:1:2::/64"},
		{"10.0.0.1:80", "[2001:db8:1:2:3::6]", "2001:db8:1:2::/64"},
		{"10.0.0.1:80", "198.51.100.7, " + strings.Repeat("10.0.0.1, ", 200) + "10.0.0.1", "10.0.0.1"},
		{"@", "198.51.100.7", "invalid IP"},
		{"", "", "invalid IP"},
	}
	for _, row := range rows {
		var lines []string
		if row.forwarded != "" {
			lines = strings.Split(row.forwarded, "|")
		}
		if got := httpapi.IPValue(httpapi.ClientIP(row.peer, lines, trusted), 0); got != row.want {
			t.Errorf("%s behind %q: %s, want %s", row.peer, row.forwarded, got, row.want)
		}
	}
}

// Nothing that a client writes itself moves it to another address: what it
// sends stands left of what the first trusted proxy adds.
func TestForgedHopsChangeNothing(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	rapid.Check(t, func(t *rapid.T) {
		forged := rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"10.0.0.9", "1.1.1.1", "::1", ","})), 0, 4).Draw(t, "forged")
		lines := append(forged, "198.51.100.7, 10.0.0.2") //nolint:gocritic // a new slice is meant
		if got := httpapi.ClientIP("10.0.0.1:80", lines, trusted); got.String() != "198.51.100.7" {
			t.Fatalf("%q: %s", lines, got)
		}
	})
}

func TestIPv6Prefix(t *testing.T) {
	for bits, want := range map[int]string{0: "2001:db8:1:2::/64", 32: "2001:db8::/32", 48: "2001:db8:1::/48", 56: "2001:db8:1::/56", 128: "2001:db8:1:2:3:4:5:6/128"} {
		if got := httpapi.IPValue(netip.MustParseAddr("2001:db8:1:2:3:4:5:6"), bits); got != want {
			t.Errorf("by /%d it is %s, want %s", bits, got, want)
		}
		if got := httpapi.IPValue(netip.MustParseAddr("192.0.2.1"), bits); got != "192.0.2.1" {
			t.Errorf("IPv4 by /%d is %s", bits, got)
		}
	}
}
