package httpapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/regiond/regiond/quota"
)

// decisionHeader carries the decision for gateways that can only pass on 403.
const (
	decisionHeader  = "X-Regiond-Decision"
	decisionAllow   = "allow"
	decisionDeny    = "deny"
	decisionInvalid = "invalid"
)

// authzPath serves ANY /v1/authz/{path...}: method and path are the request's own.
func (c *call) authzPath() { c.authz(c.method(), "/"+c.tail, nil) }

// authzForwarded serves ANY /v1/authz, for gateways that call a fixed address.
func (c *call) authzForwarded() { c.authzHeaders("X-Forwarded-Method", "X-Forwarded-Uri") }

// authzNginx serves ANY /v1/authz-nginx.
func (c *call) authzNginx() { c.authzHeaders("X-Original-Method", "X-Original-Uri") }

// authzHeaders reads method and path from two headers, and from no others: the
// end user could choose one that the gateway does not overwrite.
func (c *call) authzHeaders(methodHeader, uriHeader string) {
	if c.settings.ForwardAuth == nil || len(c.settings.ForwardAuth.Routes) == 0 {
		c.authz("", "", nil)
		return
	}
	method, err := soleValue(c, methodHeader)
	uri, uriErr := soleValue(c, uriHeader)
	if err = errors.Join(err, uriErr); err == nil && (method == "" || uri == "") {
		err = errors.New("headers " + methodHeader + " and " + uriHeader + " are needed, since routes are configured: the gateway must set both")
	}
	path := ""
	if err == nil {
		if path, err = target(uri); err != nil {
			err = fmt.Errorf("the path of header %s %w", uriHeader, err)
		}
	}
	c.authz(method, path, err)
}

// authz decides about a request that a gateway holds; unclear is why its method
// or path cannot be known.
func (c *call) authz(method, path string, unclear error) {
	if !c.enter() {
		return
	}
	f, said := c.settings.ForwardAuth, c.said()
	if f == nil && said.Tenant != "" {
		f = &quota.ForwardAuth{}
	}
	if f == nil {
		c.authzRefuse(problem{kind: kindNoForwardAuth, detail: "Set forward_auth in topology.yaml: at least forward_auth: {tenant: {header: X-Tenant}}."}, decisionInvalid)
		return
	}
	var matched *quota.Route
	unclear = errors.Join(unclear, said.Unclear)
	switch {
	case unclear != nil:
	case said.Route != "":
		matched, unclear = routeSaid(f, said.Route)
	case len(f.Routes) > 0:
		matched, unclear = c.router.match(f, method, path)
	}
	if unclear != nil {
		c.unattributed(unclear)
		return
	}
	if matched != nil && matched.Skip {
		c.authzAllow()
		return
	}
	tenant, dims, err := identify(f, c, said)
	if err != nil {
		c.unattributed(err)
		return
	}
	if !c.mayName(tenant) {
		return
	}
	req := quota.Request{Tenant: tenant, Policy: said.Policy, Dimensions: dims, Cost: 1}
	if len(f.Routes) > 0 || matched != nil {
		name := quota.RouteOther
		if matched != nil {
			name, req.Cost = matched.Name, max(1, matched.Cost)
		}
		req.Dimensions = append(req.Dimensions, quota.Dimension{Name: quota.RouteDimension, Value: name})
	}
	_, _ = req.Dimensions.Sort() // the names differ
	req.Cost = cmp.Or(said.Cost, req.Cost)
	d, err := c.Limiter.Check(c.within(c.Deadline), req)
	if err != nil {
		c.authzUndecided(err)
		return
	}
	d.ID = c.decisionID()
	c.traceDecision(&d, "")
	c.logDecision(&d, req.Dimensions)
	c.authzAnswer(&d)
}

func (c *call) authzAnswer(d *quota.Decision) {
	if c.forwarded != nil {
		c.forwarded.answer.Decision, c.forwarded.answer.Trace = d, trace.SpanContextFromContext(c.ctx).TraceID()
	}
	c.field = setFields(&c.fields, d, c.fieldInput(!d.Allowed), c.field)
	if d.Allowed {
		c.authzAllow()
		return
	}
	c.nameDenier(d)
	p := denial(d, c.field)
	p.status = http.StatusTooManyRequests // also when a fail mode is closed
	p.status = c.authzStatus(p)
	c.out = append(c.out[:0], '{')
	c.out = p.appendMembers(c.out)
	c.out = appendID(c.out, d.ID)
	c.out = appendViolated(c.out, d)
	c.out = append(c.out, '}', '\n')
	c.fields.set(decisionHeader, decisionDeny)
	c.write(p.status, typeProblem, c.out)
}

// authzUndecided never lets an error look like an outage of the limiter, on
// which gateways let everything through, or nothing.
func (c *call) authzUndecided(err error) {
	var bad *quota.Invalid
	if !errors.As(err, &bad) {
		c.logRefusal("undecided", err.Error())
		c.unavailable(noDecision)
		return
	}
	p := invalid(bad.Fault, bad.Fields)
	c.logRefusal("invalid", bad.Error())
	if bad.Fault == quota.FaultCost {
		c.nameLimit(bad.Limit)
		p.status = http.StatusTooManyRequests
		c.authzRefuse(p, decisionDeny)
		return
	}
	p.kind, p.status = kindIdentity, http.StatusForbidden
	c.authzRefuse(p, decisionInvalid)
}

func (c *call) unattributed(err error) {
	c.logRefusal("unattributed", err.Error())
	c.authzRefuse(problem{kind: kindIdentity, detail: err.Error()}, decisionInvalid)
}

func (c *call) authzAllow() {
	c.fields.set(decisionHeader, decisionAllow)
	c.write(http.StatusOK, "", nil)
}

// authzRefuse writes a refusal in a status that the gateway passes on.
func (c *call) authzRefuse(p problem, decision string) {
	p.status = c.authzStatus(p)
	c.fields.set(decisionHeader, decision)
	c.refuse(p)
}

// authzStatus is 403 where nginx would turn anything else into a 500.
func (c *call) authzStatus(p problem) int {
	if c.endpoint.guard == guardForwardNginx {
		return http.StatusForbidden
	}
	return p.code()
}

// hashedBytes is how much of a SHA-256 replaces a hashed header: 128 bits are
// enough that two tokens never collide, and half as long in every key.
const hashedBytes = 16

// identify reads the tenant and dimensions of a gateway's request, but for what the
// gateway's configuration says. Any doubt is an error; its text reaches the end user and
// names the header and the rule, never the value.
func identify(f *quota.ForwardAuth, x exchange, said *Forwarded) (tenant string, dims quota.Dimensions, err error) {
	if err := refuseAliases(f, x); err != nil {
		return "", nil, err
	}
	if tenant = said.Tenant; tenant == "" && !said.NoTenant {
		tenant, err = identityHeader(x, f.Tenant.Header)
	}
	switch {
	case err != nil:
		return "", nil, err
	case tenant == "" && said.NoTenant && f.Missing != quota.MissingAnonymous:
		return "", nil, errors.New("the request has no tenant where the gateway's configuration says that it is")
	case tenant == "" && f.Missing != quota.MissingAnonymous:
		return "", nil, fmt.Errorf("header %s is missing: the gateway must set it to the tenant", f.Tenant.Header)
	case tenant == "":
		tenant = quota.AnonymousTenant
	}
	dims = append(make(quota.Dimensions, 0, len(f.Dimensions)+len(said.Dimensions)+1), said.Dimensions...)
	dims = slices.DeleteFunc(dims, func(d quota.Dimension) bool { return d.Value == "" })
	for i := range f.Dimensions {
		if slices.ContainsFunc(said.Dimensions, func(d quota.Dimension) bool { return d.Name == f.Dimensions[i].Name }) {
			continue
		}
		value, err := dimensionValue(f, &f.Dimensions[i], x)
		if err != nil {
			return "", nil, err
		}
		if value != "" {
			dims = append(dims, quota.Dimension{Name: f.Dimensions[i].Name, Value: value})
		}
	}
	return tenant, dims, nil
}

// dimensionValue returns "" when the request does not have it.
func dimensionValue(f *quota.ForwardAuth, s *quota.DimensionSource, x exchange) (string, error) {
	switch {
	case s.ClientIP:
		if addr := clientIP(x.remote(), x.values("X-Forwarded-For"), f.TrustedProxies); addr.IsValid() {
			return ipValue(addr, int(f.IPv6Prefix)), nil
		}
		return "", nil
	case s.Hash:
		value, err := soleValue(x, s.Header)
		if value == "" {
			return "", err
		}
		sum := sha256.Sum256([]byte(value))
		return hex.EncodeToString(sum[:hashedBytes]), nil
	}
	return identityHeader(x, s.Header)
}

// soleValue returns the value of a header that may be sent once, "" when it is
// missing or empty.
func soleValue(x exchange, name string) (string, error) {
	switch lines := x.values(name); len(lines) {
	case 0:
		return "", nil
	case 1:
		return lines[0], nil
	default:
		return "", fmt.Errorf("header %s was sent %d times: the gateway must overwrite it, not add to it", name, len(lines))
	}
}

// identityHeader returns the id in a header, "" when it has none. It also refuses
// commas: several gateways join duplicated lines with one.
func identityHeader(x exchange, name string) (string, error) {
	value, err := soleValue(x, name)
	if value == "" {
		return "", err
	}
	if err := quota.ValidID(value); err != nil {
		return "", fmt.Errorf("header %s %w", name, err)
	}
	if strings.Contains(value, ",") {
		return "", fmt.Errorf("header %s must not contain a comma, which is how gateways join duplicated lines", name)
	}
	return value, nil
}

// refuseAliases refuses X_Tenant and X.Tenant beside a configured X-Tenant:
// servers that map "_" or "." to "-" would see another identity than we do.
func refuseAliases(f *quota.ForwardAuth, x exchange) error {
	for name := range x.names() {
		if !strings.ContainsAny(name, "_.") {
			continue
		}
		if isAlias(name, f.Tenant.Header) {
			return aliasError(f.Tenant.Header)
		}
		for i := range f.Dimensions {
			if isAlias(name, f.Dimensions[i].Header) {
				return aliasError(f.Dimensions[i].Header)
			}
		}
	}
	return nil
}

func aliasError(header string) error {
	return fmt.Errorf("header %s has an alias written with _ or . in this request", header)
}

// isAlias reports whether name is header, without regard to case, once its "_" and "."
// are "-". It allocates nothing: an end user chooses the names.
func isAlias(name, header string) bool {
	if len(name) != len(header) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if c == '_' || c == '.' {
			c = '-'
		}
		if lower(c) != lower(header[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// maxHops bounds how many hops of X-Forwarded-For are read.
const maxHops = 64

// clientIP returns the address that a request is attributed to: the right-most
// hop that is not a trusted proxy, since everything left of it could be forged.
// The peer itself is the first hop: when it is not trusted, X-Forwarded-For is
// not read. A hop that is no address ends the search, and the last good one
// counts. The result is invalid when the peer has no address, as on a Unix socket.
func clientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	last, ok := parseHop(remote)
	if !ok || len(forwarded) == 0 {
		return last
	}
	list := strings.Join(forwarded, ",")
	for hops, more := 0, true; more && hops < maxHops && contains(trusted, last); hops++ {
		i := strings.LastIndexByte(list, ',')
		hop, ok := parseHop(list[i+1:])
		if !ok {
			break
		}
		last, list, more = hop, list[:max(i, 0)], i >= 0
	}
	return last
}

// parseHop reads an address as proxies write it: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap().WithZone(""), err == nil
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ipValue is the dimension value of an address: of IPv6 a prefix of so many bits, by
// default quota.DefaultIPv6Prefix.
func ipValue(a netip.Addr, bits int) string {
	if a.Is6() {
		return netip.PrefixFrom(a, cmp.Or(bits, quota.DefaultIPv6Prefix)).Masked().String()
	}
	return a.String()
}
