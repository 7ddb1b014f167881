package httpapi_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/httpapi"
	"github.com/regiond/regiond/quota"
)

// What a client might write to be served /login without being counted there,
// or to be skipped as /status is.
func TestRoutes(t *testing.T) {
	const refused = "refused"
	f := forwardAuth()
	f.Routes = append(f.Routes,
		quota.Route{Name: "files", Path: "/files/*"},
		quota.Route{Name: "open", Path: "/public/*", Skip: true})
	rows := []struct{ uri, want string }{
		{"/login", "login"},
		{"/login/", "login"},
		{"/login?next=/status", "login"},
		{"//login", "login"},
		{"/login//", "login"},
		{"/./login", "login"},
		{"/login/.", "login"},
		{"/x/../login", "login"},
		{"/../login", "login"},
		{"/%6cogin", "login"},
		{"/%6Cogin", "login"},
		{"/x/%2e%2e/login", "login"},
		{"/x/%2E%2e/login", "login"},
		{"/%2flogin", "login"},
		{"/x%2f..%2flogin", "login"},
		{`/x\..\login`, "login"},
		{"/%5clogin", "login"},
		{"/login;x", "login"},
		{"/login;a=b;c=d", "login"},
		{"/;x/login", "login"},
		{"/login%3bx", "login"},
		{"/login/x", "other"},
		{"/loginx", "other"},
		{"/LOGIN", "other"},
		{"/%256cogin", "other"}, // decoded once: /%6cogin
		{"/login%3Fx", "other"}, // a path that has a question mark in it
		{"/", "other"},
		{"http://host/login?x", "login"},
		{"http://host", "other"},

		{"/search", "search"},
		{"/search/", "search"},
		{"/search/a/b", "search"},
		{"/searching", "other"},
		{"/search/a%2Fb", "search"},

		{"/status", "status"},
		{"/status/", "status"},
		{"//status", "status"},
		{"/public/a%20b.css", "open"},
		{"/public/v1.2/a", "open"},
		// A server that reads these otherwise would serve what was never counted.
		{"/login/../status", "other"},
		{"/login/..;/status", "other"},
		{"/x%2f..%2fstatus", "other"},
		{"/status;x", "other"},
		{"/public/../login", "login"},
		{"/public/..%2flogin", "login"},
		{"/public/..;/login", "login"},
		{"/files/..%2fstatus", "files"},
		{"/files/../login", refused},
		{"/search/..%2ffiles/x", refused},

		{"/login#x", refused},
		{"/login%00", refused},
		{"/login%0a", refused},
		{"/login\x01", refused},
		{"/login%", refused},
		{"/login%2", refused},
		{"/login%zz", refused},
		{"/%u006cogin", refused},
		{"login", refused},
		{"*", refused},
		{"", refused},
	}
	for _, row := range rows {
		got, err := httpapi.RouteName(f.Routes, "POST", row.uri)
		if err != nil {
			got = refused
		}
		if got != row.want {
			t.Errorf("%-28s %s, want %s (%v)", row.uri, got, row.want, err)
		}
	}
}

// plainRoute is the dumb twin: decode and clean with the standard library, and
// take the first match.
func plainRoute(f *quota.ForwardAuth, method, raw string) string {
	decoded, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	cleaned := path.Clean(decoded)
	for _, r := range f.Routes {
		if len(r.Methods) > 0 && !strings.Contains(strings.Join(r.Methods, " "), method) {
			continue
		}
		base, prefix := strings.CutSuffix(r.Path, "/*")
		if cleaned == base || prefix && strings.HasPrefix(cleaned+"/", base+"/") {
			return r.Name
		}
	}
	return quota.RouteOther
}

func TestRoutesAgainstPlainCleaning(t *testing.T) {
	f := forwardAuth()
	pieces := rapid.SampledFrom([]string{"/", "//", "login", "search", "status", "x", ".", "..", "%2e", "%6cogin", "%2F", "%20", "a-b"})
	rapid.Check(t, func(t *rapid.T) {
		raw := "/" + strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(t, "pieces"), "")
		method := rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method")
		got, err := httpapi.RouteName(f.Routes, method, raw)
		want := plainRoute(f, method, raw)
		// The plain reading counts, except that a skip is given up and a conflict
		// refused where another server could read the path otherwise; it is never
		// a skip that the plain reading does not have.
		switch {
		case err != nil && want != quota.RouteOther, got == want:
		case want == "status" && got != "status":
		case want == quota.RouteOther && got != "status":
		default:
			t.Fatalf("%s %s: %s (%v), plainly %s", method, raw, got, err, want)
		}
		plain := !strings.ContainsAny(raw, "%.;")
		if plain && got != want {
			t.Fatalf("%s %s: %s, want %s: there is only one way to read it", method, raw, got, want)
		}
	})
}
