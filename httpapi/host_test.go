package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/httpapi/access"
)

// TestDNSRebinding: a page whose name resolves to a listener cannot use it. The browser
// names the page's host.
func TestDNSRebinding(t *testing.T) {
	const check, remove, regions, usage = "POST /v1/check", "DELETE /v1/usage/a", "GET /v1/regions", "GET /v1/usage/a"
	rows := []struct {
		address string
		calls   []string // of one listener
		hosts   string
		allowed bool
	}{
		{"127.0.0.1:9090", []string{remove, regions, "GET /debug/pprof/cmdline"}, "evil.example evil.example:9090 127.0.0.1.evil.example localhost.evil.example 0x7f.1 2130706433 regiond.internal EVIL.example.", false},
		{"127.0.0.1:9090", []string{remove, regions}, "127.0.0.1 127.0.0.1:9090 LOCALHOST localhost:9090 localhost. a.localhost [::1]:9090 ::1 10.1.2.3:80 admin.example Admin.Example:443", true},
		{"127.0.0.1:9090", []string{"GET /healthz", "GET /readyz", "GET /metrics"}, "evil.example", true},
		{"regiond.internal:9090", []string{remove, regions}, "regiond.internal Regiond.Internal:9090", true},
		{":9090", []string{remove, regions}, "evil.example", false},
		{"127.0.0.1:8080", []string{check, usage, "POST /v1/report", "POST /v1/check:batch"}, "evil.example evil.example:8080", false},
		{"localhost:8080", []string{check, usage}, "evil.example", false},
		{"[::1]:8080", []string{check, usage}, "evil.example", false},
		{"127.0.0.1:8080", []string{check, usage}, "127.0.0.1:8080 localhost admin.example", true},
		{"127.0.0.1:8080", []string{"GET /v1/authz/x", "GET /v1/authz", "GET /v1/authz-nginx", "GET /v1/openapi.yaml"}, "shop.example", true},
		{"0.0.0.0:8080", []string{check, usage}, "regiond.eu-west", true},
		{"10.0.0.1:8080", []string{check, usage}, "regiond.eu-west", true},
	}
	for _, row := range rows {
		f := &fake{}
		o := options(f)
		o.Address = row.address
		o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth(), Access: access.Access{AllowedHosts: []string{"admin.example"}}})
		for _, call := range row.calls {
			h := data(t, o)
			if strings.Contains(row.address, "9090") {
				h = admin(t, o)
			}
			method, path, _ := strings.Cut(call, " ")
			for host := range strings.FieldsSeq(row.hosts) {
				body := `{"tenant":"a"}`
				if path == "/v1/check:batch" {
					body = `{"checks":[` + body + `]}`
				}
				r := request(method, path, body, "X-Tenant: a")
				r.Host = host
				before := f.calls()
				got := serve(h, r)
				if (got.status != http.StatusMisdirectedRequest) != row.allowed {
					t.Errorf("%s on %s for %s: %d %s", call, row.address, host, got.status, got.body)
				}
				if !row.allowed && (f.calls() != before || got.json(t)["type"] != "urn:regiond:problem:misdirected" || !strings.Contains(got.body, "access.allowed_hosts")) {
					t.Errorf("%s on %s for %s does not say what to configure, or did it: %s", call, row.address, host, got.body)
				}
			}
		}
	}
}
