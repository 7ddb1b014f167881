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

// known are tokens of a tokens file whose lines begin with a secret, which is the name too.
func known(t *testing.T, scopes access.Scope, lines ...string) []access.Token {
	t.Helper()
	for i, line := range lines {
		name, rest, _ := strings.Cut(line, " ")
		lines[i] = name + " " + hashOf(name) + " " + rest
	}
	all, err := access.ParseTokens(strings.NewReader(strings.Join(lines, "\n")), scopes)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func tokens(t *testing.T) access.Access {
	t.Helper()
	return access.Access{Tokens: known(t, access.DefaultScopes, "s3cret", "older"), AdminTokens: known(t, access.AdminScopes, "adm1n")}
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

// TestClientCertificate: an authority signs more certificates than those of gateways.
func TestClientCertificate(t *testing.T) {
	named := func(common string, dns ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: dns}
	}
	verified := func(leaf *x509.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	}
	gateway, names := named("gateway-1"), []string{"gateway-1", "gateway.example"}
	some := tokens(t).Tokens
	for name, row := range map[string]struct {
		access access.Access
		state  *tls.ConnectionState
		header string
		want   int
	}{
		"verified":        {access.Access{Tokens: some, ClientCA: true}, verified(gateway), "", 429},
		"not verified":    {access.Access{Tokens: some, ClientCA: true}, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{gateway}}, "", 401},
		"plain":           {access.Access{Tokens: some, ClientCA: true}, nil, "", 401},
		"no tokens":       {access.Access{ClientCA: true}, nil, "", 401},
		"not configured":  {access.Access{Tokens: some}, verified(gateway), "", 401},
		"token instead":   {access.Access{Tokens: some, ClientCA: true}, nil, "s3cret", 429},
		"its common name": {access.Access{ClientCA: true, ClientNames: names}, verified(gateway), "", 429},
		"its DNS name":    {access.Access{ClientCA: true, ClientNames: names}, verified(named("other", "gateway.example")), "", 429},
		"a DNS name only": {access.Access{ClientCA: true, ClientNames: names}, verified(named("", "gateway.example")), "", 429},
		"other names":     {access.Access{ClientCA: true, ClientNames: names}, verified(named("other", "other.example")), "", 401},
		"no name":         {access.Access{ClientCA: true, ClientNames: names}, verified(named("")), "", 401},
	} {
		var log bytes.Buffer
		o := options(&fake{decide: deny}) // so that a line names the caller
		o.Logger, o.Settings = slog.New(slog.NewTextHandler(&log, nil)), with(&httpapi.Settings{Access: row.access})
		r := request("POST", "/v1/check", `{"tenant":"a"}`, "X-Regiond-Token: "+row.header)
		r.TLS = row.state
		if got := serve(data(t, o), r); got.status != row.want {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if name == "verified" && !strings.Contains(log.String(), "caller=gateway-1") {
			t.Errorf("log: %s", log.String())
		}
	}
}

// TestLeastRights: what a token may do, and for whom.
func TestLeastRights(t *testing.T) {
	tokens := known(t, access.DefaultScopes, "plain", "check scopes=check", "report scopes=report", "usage scopes=usage,explain",
		"explain scopes=check,report,usage,explain", "held tenants=b,a", "ops scopes=admin", "support scopes=admin tenants=a",
		"collector scopes=metrics", "sales scopes=limits", "agent scopes=limits tenants=a")
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
