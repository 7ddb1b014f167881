package httpapi

import (
	"net/http"
	"strings"

	"github.com/regiond/regiond/httpapi/access"
	"github.com/regiond/regiond/httpapi/input"
	"github.com/regiond/regiond/httpapi/paths"
	"github.com/regiond/regiond/quota"
)

// endpoint is one line of the table of calls. A pattern is a literal path, or
// has "{name}" for one segment, or ends in "{name...}" for anything.
//
// This is not http.ServeMux because that redirects unclean paths: behind
// /v1/authz/ is the path of an end user's request, so "//login" must be decided
// and not redirected, and every error must be a problem document.
type endpoint struct {
	method  string // "GET" serves HEAD too, "ANY" serves all
	pattern string
	guard   guard
	scope   access.Scope // that a caller needs
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
	guardCostly                    // as guardAdmin, and never for a page of another origin: it holds a connection, a profile or a look-up
	guardMetrics                   // as guardAdmin, under any host
	guardLogin                     // anyone, under a host that is the listener's
)

// admin reports whether a session will do in place of an admin token.
func (g guard) admin() bool { return g == guardAdmin || g == guardCostly }

func (g guard) forwardAuth() bool { return g == guardForward || g == guardForwardNginx }

func dataEndpoints() []endpoint {
	check := operation{read: input.Check, decide: asking(quota.AskCheck)}
	report := operation{read: input.Check, decide: asking(quota.AskReport), charges: true}
	reserve := operation{read: input.Reserve, decide: reserving}
	settle := operation{read: input.Settle, decide: claiming(Limiter.Settle), claims: true, charges: true}
	extend := operation{read: input.Extend, decide: claiming(Limiter.Extend), claims: true}
	return []endpoint{
		{"POST", "/v1/check", guardData, access.Check, check.one},
		{"POST", "/v1/check:batch", guardData, access.Check, check.many("checks")},
		{"POST", "/v1/report", guardData, access.Report, report.one},
		{"POST", "/v1/reserve", guardData, access.Check, reserve.one},
		{"POST", "/v1/reserve:batch", guardData, access.Check, reserve.many("reservations")},
		{"POST", "/v1/settle", guardData, access.Report, settle.one},
		{"POST", "/v1/settle:batch", guardData, access.Report, settle.many("settlements")},
		{"POST", "/v1/extend", guardData, access.Check, extend.one},
		{"POST", "/v1/extend:batch", guardData, access.Check, extend.many("extensions")},
		{"GET", "/v1/usage/{tenant}", guardData, access.Usage, (*call).usage},
		{"GET", "/v1/usage", guardData, access.Usage | access.UsageOfAll, (*call).listUsage},
		{"GET", "/v1/explain/{tenant}", guardData, access.Explain, (*call).explain},
		{"ANY", "/v1/authz", guardForward, access.Check, (*call).authzForwarded},
		{"ANY", "/v1/authz/{path...}", guardForward, access.Check, (*call).authzPath},
		{"ANY", "/v1/authz-nginx", guardForwardNginx, access.Check, (*call).authzNginx},
		{"GET", "/v1/openapi.yaml", guardNone, 0, (*call).openapi},
	}
}

func adminEndpoints() []endpoint {
	return []endpoint{
		{"GET", "/healthz", guardNone, 0, (*call).healthz},
		{"GET", "/readyz", guardNone, 0, (*call).readyz},
		{"GET", "/metrics", guardMetrics, access.Metrics, (*call).scrape},
		{"GET", "/", guardNone, 0, (*call).page},
		{"GET", "/page/{path...}", guardNone, 0, (*call).page},
		{"POST", "/session", guardLogin, 0, (*call).login},
		{"DELETE", "/session", guardLogin, 0, (*call).logout},
		{"GET", "/v1/events", guardCostly, access.Admin, (*call).events},
		{"POST", "/demo/{path...}", guardAdmin, access.Admin, (*call).demo},
		{"GET", "/v1/regions", guardAdmin, access.Admin, (*call).regions},
		{"POST", "/v1/reopen/{region}", guardAdmin, access.Admin, (*call).reopen},
		{"GET", "/v1/top", guardCostly, access.Admin, (*call).top},
		{"GET", "/v1/explain/{tenant}", guardCostly, access.Admin, (*call).explain},
		{"DELETE", "/v1/usage/{tenant}", guardAdmin, access.Admin, (*call).reset},
		{"GET", "/v1/overrides", guardCostly, access.Limits, (*call).listOverrides},
		{"GET", "/v1/overrides/{tenant}/history", guardCostly, access.Limits, (*call).overrideHistory},
		{"GET", "/v1/overrides/{tenant}", guardCostly, access.Limits, (*call).showOverride},
		{"PUT", "/v1/overrides/{tenant}", guardAdmin, access.Limits, (*call).setOverride},
		{"DELETE", "/v1/overrides/{tenant}", guardAdmin, access.Limits, (*call).deleteOverride},
		{"GET", "/debug/pprof/{path...}", guardCostly, access.Admin, (*call).pprof},
		{"POST", "/debug/pprof/symbol", guardCostly, access.Admin, (*call).pprof},
	}
}

// match returns the part of the path that the pattern's name stands
// for. The path is escaped, so a slash in it was sent as a slash.
func (e *endpoint) match(path string) (tail string, ok bool) {
	open := strings.IndexByte(e.pattern, '{')
	if open < 0 {
		if strings.Contains(path, "%3") { // clients may encode the colon of /v1/check:batch
			path = strings.NewReplacer("%3A", ":", "%3a", ":").Replace(path)
		}
		return "", path == e.pattern
	}
	if tail, ok = strings.CutPrefix(path, e.pattern[:open]); ok {
		tail, ok = strings.CutSuffix(tail, e.pattern[strings.IndexByte(e.pattern, '}')+1:])
	}
	if ok && !strings.HasSuffix(e.pattern, "...}") {
		ok = tail != "" && !strings.Contains(tail, "/")
	}
	return tail, ok
}

func (e *endpoint) serves(method string) bool {
	return e.method == method || e.method == "ANY" || e.method == http.MethodGet && method == http.MethodHead
}

// listener is the one that a call may have been meant for instead.
type listener struct {
	hint      string // where it is
	endpoints []endpoint
}

const (
	adminHint = "The admin listener has this call: `admin` of the region, by default 127.0.0.1:9090."
	dataHint  = "The data listener has this call: `http` of the region, by default 127.0.0.1:8080."
)

// elsewhere is a sentence that names the other listener, if it has this call; else "".
func (c *call) elsewhere() string {
	path, _ := paths.Target(c.Target)
	if i, _, _ := find(c.other.endpoints, c.Method, path); i < 0 {
		return ""
	}
	return " " + c.other.hint
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
