package httpapi_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/quota"
)

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func tokens(t *testing.T) access.Access {
	t.Helper()
	tokens, err := access.ParseTokens(strings.NewReader("gw "+hashOf("s3cret")+"\nold "+hashOf("older")), access.DefaultScopes)
	if err != nil {
		t.Fatal(err)
	}
	admins, err := access.ParseTokens(strings.NewReader("op "+hashOf("adm1n")), access.AdminScopes)
	if err != nil {
		t.Fatal(err)
	}
	return access.Access{Tokens: tokens, AdminTokens: admins}
}

func TestAccess(t *testing.T) {
	rows := []struct {
		name   string
		header []string
		check  int // status of a check, of forward-auth, of an admin call
		authz  int
		admin  int
	}{
		{"nothing", nil, 401, 403, 401},
		{"bearer", []string{"Authorization: Bearer s3cret"}, 200, 403, 401},
		{"second bearer", []string{"Authorization: bearer older"}, 200, 403, 401},
		{"service token", []string{"X-Regiond-Token: s3cret"}, 200, 200, 401},
		{"service token wins", []string{"X-Regiond-Token: s3cret", "Authorization: Bearer x"}, 200, 200, 401},
		{"wrong", []string{"Authorization: Bearer s3cre"}, 401, 403, 401},
		{"wrong service token", []string{"X-Regiond-Token: s3cret2", "Authorization: Bearer s3cret"}, 401, 403, 401},
		{"the hash", []string{"Authorization: Bearer " + hashOf("s3cret")}, 401, 403, 401},
		{"basic", []string{"Authorization: Basic s3cret"}, 401, 403, 401},
		{"no scheme", []string{"Authorization: s3cret"}, 401, 403, 401},
		{"empty", []string{"Authorization: Bearer "}, 401, 403, 401},
		{"twice", []string{"Authorization: Bearer s3cret", "Authorization: Bearer s3cret"}, 401, 403, 401},
		{"service token twice", []string{"X-Regiond-Token: s3cret", "X-Regiond-Token: s3cret"}, 401, 403, 401},
		{"admin", []string{"Authorization: Bearer adm1n"}, 401, 403, 200},
		{"admin service token", []string{"X-Regiond-Token: adm1n"}, 401, 403, 200},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			f := &fake{}
			o := options(f)
			o.Settings = with(&httpapi.Settings{Access: tokens(t), ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}})
			check := serve(data(t, o), request("POST", "/v1/check", `{"tenant":"a"}`, row.header...))
			if check.status != row.check || (check.field("Www-Authenticate") != "") != (row.check == 401) {
				t.Errorf("check: %d %v %s", check.status, check.header, check.body)
			}
			authz := serve(data(t, o), request("GET", "/v1/authz", "", append(row.header, "X-Tenant: a")...))
			if authz.status != row.authz || authz.status == 403 && authz.field("X-Regiond-Decision") != "invalid" {
				t.Errorf("authz: %d %s", authz.status, authz.body)
			}
			if regions := serve(admin(t, o), request("GET", "/v1/regions", "", row.header...)); regions.status != row.admin {
				t.Errorf("admin: %d %s", regions.status, regions.body)
			}
			if want := map[int]int{200: 1}[row.check] + map[int]int{200: 1}[row.authz]; f.calls() != want {
				t.Errorf("%d calls of the limiter, want %d", f.calls(), want)
			}
		})
	}
}

// A reservation of a tenant that the caller may not name is no reservation, alone and in a batch, and a settle may charge more than
// was held, so it needs the scope of reports.
func TestReservationsAreOfTheirTenants(t *testing.T) {
	held, err := access.ParseTokens(strings.NewReader("acme "+hashOf("mine")+" tenants=acme\nedge "+hashOf("narrow")+" scopes=check"), access.DefaultScopes)
	if err != nil {
		t.Fatal(err)
	}
	o := options(&fake{})
	o.Settings = with(&httpapi.Settings{Access: access.Access{Tokens: held}})
	h := data(t, o)
	for _, row := range []struct {
		token, path, body string
		want              int
		text              string
	}{
		{"mine", "/v1/settle", `{"reservation":"sealed-acme","actual":1}`, 200, `"charged":1`},
		{"mine", "/v1/settle", `{"reservation":"sealed-globex","actual":1}`, 404, "reservation-unknown"},
		{"mine", "/v1/extend", `{"reservation":"sealed-globex","ttl_ms":1}`, 404, "reservation-unknown"},
		{"mine", "/v1/settle:batch", `{"settlements":[{"reservation":"sealed-globex","actual":1}]}`, 200, `"status":404`},
		{"mine", "/v1/reserve", `{"tenant":"globex","amount":1}`, 403, "forbidden"},
		{"mine", "/v1/reserve:batch", `{"reservations":[{"tenant":"globex","amount":1}]}`, 200, `"status":403`},
		{"narrow", "/v1/reserve", `{"tenant":"acme","amount":1}`, 200, `"reservation":{"id":"sealed-acme"`},
		{"narrow", "/v1/extend", `{"reservation":"sealed-acme","ttl_ms":1}`, 200, `"expires_in_ms":1`},
		{"narrow", "/v1/settle", `{"reservation":"sealed-acme","actual":1}`, 403, "scope report"},
		{"narrow", "/v1/settle:batch", `{"settlements":[{"reservation":"sealed-acme","actual":1}]}`, 403, "scope report"},
	} {
		got := serve(h, request("POST", row.path, row.body, "Authorization: Bearer "+row.token))
		if got.status != row.want || !strings.Contains(got.body, row.text) {
			t.Errorf("%s %s %s: %d %s, want %d with %s", row.token, row.path, row.body, got.status, got.body, row.want, row.text)
		}
	}
}

func TestPublicEndpoints(t *testing.T) {
	o := options(&fake{})
	o.Settings = with(&httpapi.Settings{Access: tokens(t)})
	for target, status := range map[string]int{
		"/healthz": 200, "/readyz": 200,
		"/metrics": 401, "/v1/regions": 401, "/debug/pprof/": 401, "/debug/pprof/cmdline": 401,
	} {
		if got := serve(admin(t, o), request("GET", target, "")); got.status != status {
			t.Errorf("%s: %d, want %d", target, got.status, status)
		}
	}
	if got := serve(data(t, o), request("GET", "/v1/openapi.yaml", "")); got.status != 200 {
		t.Errorf("openapi.yaml: %d", got.status)
	}
}

func TestClientCertificate(t *testing.T) {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "gateway-1"}}
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	shown := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	rows := []struct {
		name   string
		ca     bool
		state  *tls.ConnectionState
		header []string
		want   int
	}{
		{"verified", true, verified, nil, 429},
		{"not verified", true, shown, nil, 401},
		{"plain", true, nil, nil, 401},
		{"no tokens", true, nil, nil, 401},
		{"not configured", false, verified, nil, 401},
		{"token instead", true, nil, []string{"Authorization: Bearer s3cret"}, 429},
	}
	for _, row := range rows {
		var log bytes.Buffer
		o := options(&fake{decide: deny}) // so that a line names the caller
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a := tokens(t)
		a.ClientCA = row.ca
		if row.name == "no tokens" {
			a.Tokens = nil
		}
		o.Settings = with(&httpapi.Settings{Access: a})
		r := request("POST", "/v1/check", `{"tenant":"a"}`, row.header...)
		r.TLS = row.state
		if got := serve(data(t, o), r); got.status != row.want {
			t.Errorf("%s: %d", row.name, got.status)
		}
		if row.name == "verified" && !strings.Contains(log.String(), "caller=gateway-1") {
			t.Errorf("log: %s", log.String())
		}
	}
}

// TestLeastRights: what a token may do, and for whom.
func TestLeastRights(t *testing.T) {
	tokens, err := access.ParseTokens(strings.NewReader(strings.Join([]string{
		"plain " + hashOf("plain"), "check " + hashOf("check") + " scopes=check", "report " + hashOf("report") + " scopes=report",
		"usage " + hashOf("usage") + " scopes=usage,explain", "explain " + hashOf("explain") + " scopes=check,report,usage,explain",
		"held " + hashOf("held") + " tenants=b,a", "ops " + hashOf("ops") + " scopes=admin", "support " + hashOf("support") + " scopes=admin tenants=a",
		"collector " + hashOf("collector") + " scopes=metrics",
		"sales " + hashOf("sales") + " scopes=limits", "agent " + hashOf("agent") + " scopes=limits tenants=a",
	}, "\n")), access.DefaultScopes)
	if err != nil {
		t.Fatal(err)
	}
	a := access.Access{Tokens: tokens, AdminTokens: tokens[6:]}
	rows := []struct {
		call, body string
		may        string // the tokens that may
	}{
		{"POST /v1/check", `{"tenant":"a"}`, "plain check explain held"},
		{"POST /v1/check", `{"tenant":"c"}`, "plain check explain"},
		{"POST /v1/check?explain=1", `{"tenant":"a"}`, "explain"},
		{"POST /v1/check:batch", `{"checks":[{"tenant":"a"}]}`, "plain check explain held"},
		{"POST /v1/check:batch?explain=1", `{"checks":[{"tenant":"a"}]}`, "explain"},
		{"POST /v1/report", `{"tenant":"a"}`, "plain report explain held"},
		{"POST /v1/report", `{"tenant":"c"}`, "plain report explain"},
		{"GET /v1/usage/a", "", "plain usage explain held"},
		{"GET /v1/usage/c", "", "plain usage explain"},
		{"GET /v1/usage/a?explain=1", "", "usage explain"},
		{"GET /v1/usage", "", "usage explain"}, // who has the scope in so many words, and all tenants
		{"GET /v1/explain/a", "", "usage explain"},
		{"GET /v1/explain/c", "", "usage explain"},
		{"GET /v1/authz/x", "a", "plain check explain held"},
		{"GET /v1/authz/x", "c", "plain check explain"},
		{"GET /v1/authz-nginx", "c", "plain check explain"},
		{"DELETE /v1/usage/a", "", "ops support"},
		{"DELETE /v1/usage/c", "", "ops"},
		{"GET /v1/explain/a", "", "ops support"},
		{"GET /v1/explain/c", "", "ops"},
		{"GET /v1/regions", "", "ops"},
		{"POST /v1/reopen/local", "", "ops"},
		{"GET /v1/top", "", "ops"},
		{"GET /v1/events", "", "ops"},
		{"GET /v1/overrides", "", "ops sales"},
		{"GET /v1/overrides/a", "", "ops support sales agent"},
		{"GET /v1/overrides/c", "", "ops sales"},
		{"GET /v1/overrides/a/history", "", "ops support sales agent"},
		{"GET /v1/overrides/c/history", "", "ops sales"},
		{"PUT /v1/overrides/a", `{"policy":"standard"}`, "ops support sales agent"},
		{"PUT /v1/overrides/c", `{"policy":"standard"}`, "ops sales"},
		{"DELETE /v1/overrides/a", "", "ops support sales agent"},
		{"DELETE /v1/overrides/c", "", "ops sales"},
		{"GET /metrics", "", "ops collector"},
		{"GET /debug/pprof/cmdline", "", "ops"},
		{"POST /debug/pprof/symbol", "", "ops"},
	}
	for _, row := range rows {
		for _, token := range tokens {
			f := &fake{}
			o := options(f)
			o.Settings = with(&httpapi.Settings{Access: a, ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}})
			h := data(t, o)
			if strings.Contains(row.may, "ops") {
				h = admin(t, o)
			}
			method, path, _ := strings.Cut(row.call, " ")
			got := serve(h, request(method, path, row.body, "X-Regiond-Token: "+token.Name, "X-Tenant: "+row.body))
			may := slices.Contains(strings.Fields(row.may), token.Name)
			if may != (got.status == 200 || got.status == 204) || !may && (got.status != 403 && got.status != 401 || f.calls() > 0) {
				t.Errorf("%s may %s %s: %v, got %d %s", token.Name, row.call, row.body, may, got.status, got.body)
			}
		}
	}
	// In a batch the others are decided.
	f := &fake{}
	o := options(f)
	o.Settings = with(&httpapi.Settings{Access: a})
	got := serve(data(t, o), request("POST", "/v1/check:batch", `{"checks":[{"tenant":"c"},{"tenant":"a"}]}`, "X-Regiond-Token: held"))
	if !strings.HasPrefix(got.body, `{"results":[{"type":"urn:regiond:problem:forbidden",`) || strings.Count(got.body, `"status":200`) != 1 || f.calls() != 1 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestClientNames: an authority signs more certificates than those of gateways.
func TestClientNames(t *testing.T) {
	for _, row := range []struct {
		cert *x509.Certificate
		want int
	}{
		{&x509.Certificate{Subject: pkix.Name{CommonName: "gateway-1"}}, 200},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "other"}, DNSNames: []string{"gateway.example"}}, 200},
		{&x509.Certificate{DNSNames: []string{"gateway.example"}}, 200},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "other"}, DNSNames: []string{"other.example"}}, 401},
		{&x509.Certificate{}, 401},
	} {
		o := options(&fake{})
		o.Settings = with(&httpapi.Settings{Access: access.Access{ClientCA: true, ClientNames: []string{"gateway-1", "gateway.example"}}})
		r := request("POST", "/v1/check", `{"tenant":"a"}`)
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{row.cert}}}
		if got := serve(data(t, o), r); got.status != row.want {
			t.Errorf("%v %v: %d %s", row.cert.Subject, row.cert.DNSNames, got.status, got.body)
		}
	}
}
