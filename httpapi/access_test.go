package httpapi_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"log/slog"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestParseTokens(t *testing.T) {
	a, b := hashOf("a"), hashOf("b")
	rows := []struct {
		name, file string
		want       string // names, or the error
	}{
		{"two", "gw " + a + "\nother " + b + "\n", "gw other"},
		{"comments and blanks", "# who\n\n  gw\t" + a + "  # since May\r\n", "gw"},
		{"hash sign in a name", "gw#1 " + a, "gw#1"},
		{"capitals", "gw " + strings.ToUpper(a), "gw"},
		{"rotation", "gw " + a + "\ngw " + b, "gw gw"},
		{"empty", "", ""},
		{"one word", "gw " + a + "\n" + b + "\n", "read tokens: line 2: want a name and a SHA-256 in hex, found 1 fields"},
		{"three words", "gw " + a + " x", "read tokens: line 1: want a name and a SHA-256 in hex, found 3 fields"},
		{"a secret as it is", "\ngw hunter2", "read tokens: line 2: a SHA-256 has 64 hex digits, found 7 characters"},
		{"no hex", "gw " + strings.Repeat("z", 64), "read tokens: line 1: a SHA-256 has only hex digits"},
		{"bad name", "g{w " + a, "read tokens: line 1: the name must be printable ASCII"},
		{"same hash", "gw " + a + "\n#\nother " + a, "read tokens: line 3: the same hash is on line 1"},
		{"long line", "gw " + a + "\ngw " + strings.Repeat("a", 5000), "read tokens: line 2: bufio.Scanner: token too long"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			tokens, err := httpapi.ParseTokens(strings.NewReader(row.file))
			var names []string
			for _, tok := range tokens {
				names = append(names, tok.Name)
			}
			got := strings.Join(names, " ")
			if err != nil {
				got = err.Error()
			}
			if got != row.want && (err == nil || !strings.HasPrefix(got, row.want)) {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("the error shows a secret: %q", got)
			}
		})
	}
}

func access(t *testing.T) httpapi.Access {
	t.Helper()
	tokens, err := httpapi.ParseTokens(strings.NewReader("gw " + hashOf("s3cret") + "\nold " + hashOf("older")))
	if err != nil {
		t.Fatal(err)
	}
	admins, err := httpapi.ParseTokens(strings.NewReader("op " + hashOf("adm1n")))
	if err != nil {
		t.Fatal(err)
	}
	return httpapi.Access{Tokens: tokens, AdminTokens: admins}
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
			o.Settings = with(&httpapi.Settings{Access: access(t), ForwardAuth: &quota.ForwardAuth{Tenant: quota.TenantSource{Header: "X-Tenant"}}})
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

func TestPublicEndpoints(t *testing.T) {
	o := options(&fake{})
	o.Settings = with(&httpapi.Settings{Access: access(t)})
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
		a := access(t)
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
