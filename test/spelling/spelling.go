// Package spelling writes one path in many ways, and has models of how servers read them.
//
// Logins are what a client might send to be served /login; Servers are models of common
// servers and gateways, those of nginx, HAProxy, Caddy and Go checked against the real
// programs; Honest are paths that must never be refused. Only tests import this package.
package spelling

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
)

// Logins returns n different spellings of /login, the same for the same seed. Each is
// made by undoing some steps of some server, so that most are served as /login somewhere.
func Logins(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	seen := map[string]bool{}
	var all []string
	for len(all) < n {
		path := "/login"
		for range 1 + r.IntN(5) {
			path = respell(r, path)
		}
		if !seen[path] && len(path) < 200 {
			seen[path] = true
			all = append(all, path)
		}
	}
	return all
}

// respell changes a path in one way.
func respell(r *rand.Rand, path string) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	// at inserts text after a slash, which is where a segment begins.
	at := func(text string) string {
		var slashes []int
		for i := range len(path) {
			if path[i] == '/' {
				slashes = append(slashes, i+1)
			}
		}
		if len(slashes) == 0 {
			return path
		}
		i := slashes[r.IntN(len(slashes))]
		return path[:i] + text + path[i:]
	}
	segment := pick("x", "assets", "assets/a", "login", "search", "x%2Fy", `x\y`, "x%5Cy", "a.b", ";v=1", "x;v=1/y")
	switch r.IntN(12) { // the first slash stays
	case 0:
		return at(segment + "/../")
	case 1:
		return at(pick("./", "/", "//", "", ";/", ";a=b/", ";x/../", "..;/", "x/..;y/"))
	case 2:
		return at(strings.Repeat(segment+"/", 2) + pick("..%2F..%2F", "../../", "%2e%2e/../", "..;/../", "/../../", `..\..\`, "..%5C..%5C"))
	case 3: // one byte is encoded
		i := 1 + r.IntN(len(path)-1)
		return path[:i] + escape(r, path[i]) + path[i+1:]
	case 4: // every byte of one kind is encoded
		c := path[r.IntN(len(path))]
		return path[:1] + strings.ReplaceAll(path[1:], string(c), escape(r, c))
	case 5:
		i := r.IntN(len(path))
		return path[:i] + strings.ToUpper(path[i:i+1]) + path[i+1:]
	case 6:
		return path + pick("/", "//", "/.", "/./", "/x/..", ";", ";v=1", ";a=b/", "%3Fx", "%23x", ".", "%20", "//..", "/..;/login")
	case 7:
		return "/" + pick("/host", "/", "%2F", "%2f%2fhost", "x/../", "../", "%2e%2e/", "./") + path
	case 8:
		i := strings.LastIndexByte(path, '/')
		if i < 1 {
			return path
		}
		return path[:i] + pick(`\`, "%5C", "%5c", "%2F", "%2f", "%252F", "%255C", "/") + path[i+1:]
	case 9:
		return strings.Replace(path, "..", pick("%2e%2e", ".%2E", "%252e%252e", "..;", "..;a=b", "..%3b"), 1)
	case 10:
		return strings.Replace(path, ";", pick("%3B", "%3b", ";;", "%253B"), 1)
	default:
		return strings.Replace(path, "%", "%25", 1+r.IntN(2))
	}
}

// escape encodes one byte, in either case of the digits.
func escape(r *rand.Rand, c byte) string {
	return fmt.Sprintf([]string{"%%%02x", "%%%02X"}[r.IntN(2)], c)
}

// Honest returns n paths that clients send in good faith, none of them /login.
func Honest(seed uint64, n int) []string {
	r := rand.New(rand.NewPCG(seed, 2))
	segments := []string{
		"api", "v1", "users", "42", "app.min.js", "a.b.c", ".well-known", "security.txt", "group%2Fname", "@scope%2fpackage",
		"item;v=1", "matrix;lat=50;long=8", "a,b", "a+b", "a%20b", "100%25", "C%23", "who%3F", "key=value", "~home", "a:b", "(x)", "it's", "$metadata",
		"2024-05-01T10:00:00Z", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "eyJhbGciOiJIUzI1NiJ9.e30.x_y-z", "README.md", "...", "..a", "a..b", "UPPER", "logins", "Login-help",
		"name@example.org", "!", "*", "%5Bid%5D", "%7Bid%7D", "sha256%3Aabc", "a%26b%3Dc",
	}
	for _, word := range []string{"größe", "東京", "привет", "café", "שלום", "🚀", "ﬁ", "naïve file.txt", "é.css"} {
		segments = append(segments, url.PathEscape(word))
	}
	seen := map[string]bool{}
	var all []string
	for len(all) < n {
		path := ""
		for range 1 + r.IntN(5) {
			path += "/" + segments[r.IntN(len(segments))]
		}
		path += []string{"", "", "", "/"}[r.IntN(4)]
		if !seen[path] {
			seen[path] = true
			all = append(all, path)
		}
	}
	slices.Sort(all)
	return all
}
