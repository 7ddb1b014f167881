package httpapi

import (
	"net/http"
	"strings"
)

// guard says who may call a route, and how a refusal looks there.
type guard uint8

const (
	guardNone         guard = iota // anyone
	guardData                      // Bearer or X-Regiond-Token, else 401
	guardForward                   // X-Regiond-Token only, else 403; every other refusal is 429 or 403
	guardForwardNginx              // as guardForward, every refusal is 403
	guardAdmin                     // an admin token, else 401
)

// traced reports whether calls of the route may have a span: questions about a
// limit have, health checks and what operators ask never.
func (g guard) traced() bool { return g == guardData || g.forwardAuth() }

func (g guard) forwardAuth() bool { return g == guardForward || g == guardForwardNginx }

// route is one line of the table of calls. A pattern is a literal path, or ends
// in "{name}" for one segment, or in "{name...}" for anything.
//
// This is not http.ServeMux because that cleans paths by redirecting: behind
// /v1/authz/ stands what an end user asked for, "//login" must be decided and
// not redirected, and whatever is wrong must be a problem document.
type route struct {
	method  string // "GET" serves HEAD too, "ANY" serves all
	pattern string
	guard   guard
	handle  func(*call)
}

// match returns what stands in the place of the pattern's last segment. The
// path is escaped, so a slash in it is one that the caller wrote as a slash.
func (rt *route) match(path string) (tail string, ok bool) {
	open := strings.IndexByte(rt.pattern, '{')
	if open < 0 {
		return "", path == rt.pattern
	}
	tail, ok = strings.CutPrefix(path, rt.pattern[:open])
	if !ok {
		return "", false
	}
	if strings.HasSuffix(rt.pattern, "...}") {
		return tail, true
	}
	return tail, tail != "" && !strings.Contains(tail, "/")
}

func (rt *route) serves(method string) bool {
	switch rt.method {
	case "ANY":
		return true
	case http.MethodGet:
		return method == http.MethodGet || method == http.MethodHead
	}
	return method == rt.method
}

// find returns the index of the route of a request. When only the method is
// wrong it returns −1 and the methods that would be served; when nothing
// matches, −1 and "".
func find(routes []route, method, path string) (index int, tail, allow string) {
	for i := range routes {
		tail, ok := routes[i].match(path)
		if !ok {
			continue
		}
		if routes[i].serves(method) {
			return i, tail, ""
		}
		if allow != "" {
			allow += ", "
		}
		allow += routes[i].method
		if routes[i].method == http.MethodGet {
			allow += ", HEAD"
		}
	}
	return -1, "", allow
}
