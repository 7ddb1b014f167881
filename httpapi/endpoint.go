package httpapi

import (
	"net/http"
	"strings"
)

// endpoint is one line of the table of calls. A pattern is a literal path, or
// ends in "{name}" for one segment, or in "{name...}" for anything.
//
// This is not http.ServeMux because that redirects unclean paths: behind
// /v1/authz/ is the path of an end user's request, so "//login" must be decided
// and not redirected, and every error must be a problem document.
type endpoint struct {
	method  string // "GET" serves HEAD too, "ANY" serves all
	pattern string
	guard   guard
	handle  func(*call)
}

// guard is who may call an endpoint, and the form of a refusal there.
type guard uint8

const (
	guardNone         guard = iota // anyone
	guardData                      // Bearer or X-Regiond-Token, else 401
	guardForward                   // X-Regiond-Token only, else 403; every other refusal is 429 or 403
	guardForwardNginx              // as guardForward, every refusal is 403
	guardAdmin                     // an admin token, else 401
)

func (g guard) forwardAuth() bool { return g == guardForward || g == guardForwardNginx }

func dataEndpoints() []endpoint {
	return []endpoint{
		{"POST", "/v1/check", guardData, (*call).check},
		{"POST", "/v1/check:batch", guardData, (*call).batch},
		{"POST", "/v1/report", guardData, (*call).report},
		{"GET", "/v1/usage/{tenant}", guardData, (*call).usage},
		{"ANY", "/v1/authz", guardForward, (*call).authzForwarded},
		{"ANY", "/v1/authz/{path...}", guardForward, (*call).authzPath},
		{"ANY", "/v1/authz-nginx", guardForwardNginx, (*call).authzNginx},
		{"GET", "/v1/openapi.yaml", guardNone, (*call).openapi},
	}
}

func adminEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/healthz", guardNone, (*call).healthz},
		{"GET", "/readyz", guardNone, (*call).readyz},
		{"GET", "/metrics", guardAdmin, (*call).scrape},
		{"GET", "/v1/regions", guardAdmin, (*call).regions},
		{"DELETE", "/v1/usage/{tenant}", guardAdmin, (*call).reset},
		{"GET", "/debug/pprof/{path...}", guardAdmin, (*call).pprof},
		{"POST", "/debug/pprof/symbol", guardAdmin, (*call).pprof},
	}
}

// match returns the part of the path that the pattern's last segment stands
// for. The path is escaped, so a slash in it was sent as a slash.
func (e *endpoint) match(path string) (tail string, ok bool) {
	open := strings.IndexByte(e.pattern, '{')
	if open < 0 {
		return "", path == e.pattern
	}
	tail, ok = strings.CutPrefix(path, e.pattern[:open])
	if ok && !strings.HasSuffix(e.pattern, "...}") {
		ok = tail != "" && !strings.Contains(tail, "/")
	}
	return tail, ok
}

func (e *endpoint) serves(method string) bool {
	return e.method == method || e.method == "ANY" || e.method == http.MethodGet && method == http.MethodHead
}

// find returns the index of the endpoint of a request. When only the method is
// wrong it returns −1 and the methods that exist; when nothing matches, −1 and "".
func find(endpoints []endpoint, method, path string) (index int, tail, allow string) {
	var methods []string
	for i := range endpoints {
		e := &endpoints[i]
		tail, ok := e.match(path)
		switch {
		case ok && e.serves(method):
			return i, tail, ""
		case ok && e.method == http.MethodGet:
			methods = append(methods, http.MethodGet, http.MethodHead)
		case ok:
			methods = append(methods, e.method)
		}
	}
	return -1, "", strings.Join(methods, ", ")
}
