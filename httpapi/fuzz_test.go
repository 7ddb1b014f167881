package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// Whatever a gateway forwards, the answer is 200, 403 or 429, and the limiter gets
// only valid ids, at most once, and none when the answer is 403.
func FuzzAuthz(f *testing.F) {
	f.Add("GET", "/login", "acme", "42", "1.1.1.1")
	f.Add("POST", "//login/../%2e%2e;x", "a,b", "", ",,")
	f.Add("BREW", "*", "", "\x00", "[::1]:80, x")
	f.Add("POST", "http://h/%", "é", "a b", strings.Repeat("10.0.0.1,", 100))
	f.Fuzz(func(t *testing.T, method, path, tenant, user, forwarded string) {
		for _, base := range []string{"/v1/authz/", "/v1/authz", "/v1/authz-nginx"} {
			l := &fake{}
			o := options(l)
			o.Settings = with(&httpapi.Settings{ForwardAuth: forwardAuth()})
			r := httptest.NewRequest(http.MethodGet, base, nil)
			if base == "/v1/authz/" {
				r.Method, r.RequestURI = method, base+path
				r.URL = &url.URL{Path: base + path}
			}
			r.Header = http.Header{
				"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {path}, "X-Original-Method": {method}, "X-Original-Uri": {path},
				"X-Tenant": {tenant}, "X-User": {user}, "X-Forwarded-For": {forwarded},
			}
			got := serve(data(t, o), r)
			skipped := got.status == 200 && l.calls() == 0
			if got.status != 200 && got.status != 403 || got.status == 403 && l.calls() != 0 || l.calls() > 1 {
				t.Fatalf("%s: %d after %d calls: %s", base, got.status, l.calls(), got.body)
			}
			if !skipped && got.status == 200 {
				seen := l.last(t)
				if ms := seen.Validate(); len(ms) > 0 || seen.Tenant != tenant {
					t.Fatalf("checked %+v: %v", seen, ms)
				}
				if !slices.IsSortedFunc(seen.Dimensions, func(a, b quota.Dimension) int { return strings.Compare(a.Name, b.Name) }) {
					t.Fatalf("dimensions %v", seen.Dimensions)
				}
			}
			for name, values := range got.header {
				if strings.ContainsAny(name+strings.Join(values, ""), "\r\n") {
					t.Fatalf("a line break in %v", got.header)
				}
			}
		}
	})
}
