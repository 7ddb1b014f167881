package region

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

func (f *ForwardAuth) validate(ps *problems) {
	const at = "/forward_auth"
	ps.check(at+"/tenant/header", checkHeader(f.Tenant.Header))
	for _, name := range slices.Sorted(maps.Keys(f.Dimensions)) {
		below := under(at+"/dimensions", name)
		source := f.Dimensions[name]
		source.validate(ps, below)
		ps.name(below, name)
		if name == RouteDimension {
			ps.add(below, "dimension %q comes from routes; choose another name", name)
		}
	}
	for i, p := range f.TrustedProxies {
		if p != p.Masked() {
			ps.add(item(at+"/trusted_proxies", i), "has bits beyond its length; is %s meant?", p.Masked())
		}
	}
	ps.oneOf(at+"/missing", string(f.Missing), string(MissingDeny), string(MissingAnonymous))
	names := map[string]bool{}
	for i := range f.Routes {
		r, below := &f.Routes[i], item(at+"/routes", i)
		r.validate(ps, below)
		if names[r.Name] {
			ps.add(below+"/name", "route %q is duplicated", clip(r.Name))
		}
		names[r.Name] = true
	}
}

func (s *Source) validate(ps *problems, at string) {
	switch {
	case s.Header == "" && !s.ClientIP:
		ps.add(at, "needs exactly one source: header: NAME or client_ip: true")
	case s.Header != "" && s.ClientIP:
		ps.add(at, "has two sources; keep header or client_ip")
	}
	if s.Header != "" {
		ps.check(at+"/header", checkHeader(s.Header))
	}
	if s.Hash && s.Header == "" {
		ps.add(at+"/hash", "needs header; a client address is stored as it is")
	}
}

func (r *Route) validate(ps *problems, at string) {
	ps.name(at+"/name", r.Name)
	if r.Name == RouteOther {
		ps.add(at+"/name", "%q means that no route matched; choose another name", RouteOther)
	}
	for i, m := range r.Methods {
		below := item(at+"/methods", i)
		if !isMethod(m) {
			ps.add(below, "must be a method in capitals such as POST, is %q", clip(m))
		}
		if slices.Contains(r.Methods[:i], m) {
			ps.add(below, "method %s is duplicated", clip(m))
		}
	}
	r.validatePath(ps, at+"/path")
	switch {
	case r.Skip && r.Cost != 0:
		ps.add(at+"/cost", "a route that is skipped has no cost; remove cost or skip")
	case !r.Skip && (r.Cost < 1 || r.Cost > quota.MaxUnits):
		ps.add(at+"/cost", "must be between 1 and %d, is %d", quota.MaxUnits, r.Cost)
	}
}

// validatePath refuses what no request can match: requests are compared after
// decoding and cleaning, without their query.
func (r *Route) validatePath(ps *problems, at string) {
	switch {
	case !strings.HasPrefix(r.Path, "/"):
		ps.add(at, "must begin with /, is %q", clip(r.Path))
	case strings.ContainsAny(r.Path, "?#%;\\"):
		ps.add(at, "must be a decoded path without query, so none of ? # %% ; \\ may be in it, is %q", clip(r.Path))
	case strings.Contains(strings.TrimSuffix(r.Path, "/*"), "*"):
		ps.add(at, "may have * only as its whole last segment, is %q", clip(r.Path))
	case path.Clean(r.Path) != r.Path:
		ps.add(at, "must be clean, without //, ., .. or a / at its end: is %s meant?", visible(clip(path.Clean(r.Path))))
	}
}

// validateRouteUse finds limits that wait for a route which no request can get.
// Without forward_auth nothing is known of routes: callers name them.
func (t *Topology) validateRouteUse(ps *problems) {
	routes := map[string]bool{RouteOther: true}
	for _, r := range t.ForwardAuth.Routes {
		routes[r.Name] = !r.Skip
	}
	for i := range t.Policies {
		for j := range t.Policies[i].Limits {
			l, at := &t.Policies[i].Limits[j], item(item("/policies", i)+"/limits", j)
			if by := slices.Index(l.By, RouteDimension); by >= 0 && len(t.ForwardAuth.Routes) == 0 {
				ps.add(at+"/by", "counts by %q, but forward_auth has no routes", RouteDimension)
			}
			for _, m := range l.When {
				if m.Dimension == RouteDimension && !routes[m.Value] {
					ps.add(at+"/when/"+RouteDimension, "route %q is not among forward_auth.routes that count", clip(m.Value))
				}
			}
		}
	}
}

// checkHeader accepts letters, digits and "-": what gateways and servers agree
// on. Behind many of them "_" arrives as "-" or not at all, and a client could
// send the one where the gateway overwrites the other.
func checkHeader(name string) error {
	const allowed = letters + "0123456789-"
	if name == "" || len(name) > 128 || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("must be the name of a header field of letters, digits and -, is %q", clip(name))
	}
	if name == "Host" {
		return errors.New("must not be Host, which names the limiter itself behind some gateways; use X-Forwarded-Host")
	}
	return nil
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// isMethod reports whether s is a token of RFC 9110 in capitals.
func isMethod(s string) bool {
	const allowed = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && strings.Trim(s, allowed) == ""
}
