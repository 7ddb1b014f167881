package paths_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/regiond/regiond/httpapi/paths"
	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/test/spelling"
)

func routes() *quota.ForwardAuth {
	return &quota.ForwardAuth{Routes: []quota.Route{
		{Name: "login", Methods: []string{"POST"}, Path: "/login"},
		{Name: "search", Path: "/search/*", Cost: 5},
		{Name: "status", Path: "/status", Skip: true},
	}}
}

// What a client might write to be served /login without being counted there, or to be skipped as /status is: an example of each rule.
// TestNoSpellingSlipsPast and TestRoutesAgainstPlainCleaning draw many.
func TestRoutes(t *testing.T) {
	const refused = "refused"
	f := routes()
	f.Routes = append(f.Routes,
		quota.Route{Name: "files", Path: "/files/*"},
		quota.Route{Name: "open", Path: "/public/*", Skip: true})
	rows := []struct{ uri, want string }{
		{"/login", "login"},
		{"/login/", "login"},
		{"/login?next=/status", "login"},
		{"/%6cogin", "login"},
		{"/x%2f..%2flogin", "login"},
		{`/x\..\login`, refused},
		{"/public/a%5Cb%5Cc/..%2F..%2Flogin", refused},
		{"/login;x", "login"},
		{"/login/x", "other"},
		{"/loginx", "other"},
		{"/LOGIN", "login"},
		{"/%25256cogin", "login"},
		{"/login%3Fx", "login"}, // a gateway may decode it and send it on
		{"/login.", "login"},
		{"/login%20", "login"},
		{"//host/login", "login"},
		{"/login//..", "login"}, // without merging slashes
		{"/", "other"},
		{"http://host/login?x", "login"},
		{"http://host", "other"},

		{"/search", "search"},
		{"/search/a/b", "search"},
		{"/searching", "other"},

		{"/status", "status"},
		{"/%73tatus", "status"},
		{"/public/caf%C3%A9%20100%25.css", "open"},
		{"/public/v1.2/a", "open"},
		// A server that reads these otherwise would serve what was never counted.
		{"//status", "other"},
		{"/STATUS", "other"},
		{"/status.", "other"},
		{"/%2573tatus", "other"},
		{"/public/a%2Fb", "other"},
		{"/public/a;v=1", "other"},
		{"/public/%2e/a", "other"},
		{"/public//a", "other"},
		{"/login/../status", "other"},
		{"/public/../login", "login"},
		{"/files/..%2fstatus", "files"},
		{"/files/../login", refused},
		{"/search/..%2ffiles/x", refused},

		{"/login#x", refused},
		{"/login%" + strings.Repeat("25", 100) + "20", refused},
		{"/" + strings.Repeat("a%2F..%252f;x/.//", 900), refused},
		{"/login%00", refused},
		{"/login\x01", refused},
		{"/login%", refused},
		{"/login%zz", refused},
		{"login", refused},
		{"*", refused},
		{"", refused},
	}
	for _, row := range rows {
		got, err := paths.RouteName(f, "POST", row.uri)
		if err != nil {
			got = refused
		}
		if got != row.want {
			t.Errorf("%-28s %s, want %s (%v)", row.uri, got, row.want, err)
		}
	}
}

// A client chooses the method too: servers that ignore case, and answer HEAD as GET.
func TestRouteMethods(t *testing.T) {
	f := &quota.ForwardAuth{Routes: []quota.Route{
		{Name: "login", Methods: []string{"POST"}, Path: "/login"},
		{Name: "report", Methods: []string{"GET"}, Path: "/report"},
		{Name: "ping", Methods: []string{"GET"}, Path: "/ping", Skip: true},
	}}
	for _, row := range []struct{ method, path, want string }{
		{"POST", "/login", "login"},
		{"post", "/login", "login"},
		{"PoSt", "/login", "login"},
		{"GET", "/login", "other"},
		{"HEAD", "/login", "other"},
		{"GET", "/report", "report"},
		{"HEAD", "/report", "report"},
		{"head", "/report", "report"},
		{"GET", "/ping", "ping"},
		{"HEAD", "/ping", "ping"},
		{"get", "/ping", "other"},
		{"BREW", "/login", "other"},
		{"POST,GET", "/login", "refused"},
		{"POST ", "/login", "refused"},
		{"", "/login", "refused"},
		{"PÖST", "/login", "refused"},
	} {
		got, err := paths.RouteName(f, row.method, row.path)
		if err != nil {
			got = "refused"
		}
		if got != row.want {
			t.Errorf("%q %s is %s, want %s (%v)", row.method, row.path, got, row.want, err)
		}
	}
}

// case_sensitive is for applications that serve two paths which differ in case only.
func TestCaseSensitive(t *testing.T) {
	f := &quota.ForwardAuth{CaseSensitive: true, Routes: []quota.Route{{Name: "login", Path: "/login"}, {Name: "kelvin", Path: "/k/*"}}}
	for _, row := range []struct{ path, folded, exact string }{
		{"/LOGIN", "login", "other"},
		{"/login", "login", "login"},
		{"/K/x", "kelvin", "other"},
		{"/%E2%84%AA/x", "kelvin", "other"}, // U+212A, a K for servers that know Unicode
	} {
		f.CaseSensitive = true
		exact, err := paths.RouteName(f, "GET", row.path)
		f.CaseSensitive = false
		folded, err2 := paths.RouteName(f, "GET", row.path)
		if err != nil || err2 != nil || exact != row.exact || folded != row.folded {
			t.Errorf("%s is %s, and %s if case matters; want %s and %s (%v, %v)", row.path, folded, exact, row.folded, row.exact, err, err2)
		}
	}
}

// spelled has the routes of an attacker's choice: one to reach, one that is free.
func spelled() *quota.ForwardAuth {
	return &quota.ForwardAuth{Routes: []quota.Route{
		{Name: "login", Methods: []string{"POST"}, Path: "/login"},
		{Name: "assets", Path: "/assets/*", Skip: true},
	}}
}

// slipsPast returns the servers that serve /login for a path which is counted otherwise.
func slipsPast(models []spelling.Server, path string) (servers []string, counted string, served bool) {
	counted, err := paths.RouteName(spelled(), "POST", path)
	for _, s := range models {
		if !s.Serves(path) {
			continue
		}
		served = true
		if err == nil && counted != "login" {
			servers = append(servers, s.Name)
		}
	}
	return servers, counted, served
}

// However a client spells /login: what a server serves as /login is counted as login.
func TestNoSpellingSlipsPast(t *testing.T) {
	models, served := spelling.Servers(), 0
	for _, path := range spelling.Logins(2, 30_000) {
		servers, counted, ok := slipsPast(models, path)
		if ok {
			served++
		}
		if len(servers) > 0 {
			t.Errorf("%s is counted as %s and served as /login by %q", path, counted, servers)
		}
	}
	t.Logf("%d spellings are served as /login by some server", served)
	if served < 10_000 {
		t.Errorf("%d of 30,000 spellings are served as /login, want 10,000", served)
	}
}

// A path of an honest client is never refused.
func TestHonestPathsPass(t *testing.T) {
	f := spelled()
	f.Routes = append(f.Routes, quota.Route{Name: "api", Path: "/api/*"}, quota.Route{Name: "users", Path: "/users/*"})
	for _, path := range spelling.Honest(3, 2000) {
		got, err := paths.RouteName(f, "POST", path)
		if err != nil || got == "login" {
			t.Errorf("%s is %s: %v", path, got, err)
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
	f := routes()
	pieces := rapid.SampledFrom([]string{"/", "//", "login", "search", "status", "x", ".", "..", "%2e", "%6cogin", "%2F", "%20", "a-b"})
	rapid.Check(t, func(t *rapid.T) {
		raw := "/" + strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(t, "pieces"), "")
		method := rapid.SampledFrom([]string{"GET", "POST"}).Draw(t, "method")
		got, err := paths.RouteName(f, method, raw)
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
		plain := !strings.ContainsAny(raw, "%.;") && !strings.Contains(raw, "//")
		if plain && got != want {
			t.Fatalf("%s %s: %s, want %s: there is only one way to read it", method, raw, got, want)
		}
	})
}

// A path that some server serves as /login is counted as login, or refused.
func FuzzSpelling(f *testing.F) {
	models := spelling.Servers()
	for _, path := range spelling.Logins(3, 100) {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "? ") {
			t.Skip("not the path of a request")
		}
		if servers, counted, _ := slipsPast(models, path); len(servers) > 0 {
			t.Errorf("%q is counted as %s and served as /login by %q", path, counted, servers)
		}
	})
}
