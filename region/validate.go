package region

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/regiond/regiond/quota"
)

// problems collects what is wrong with a topology, or to be warned of.
type problems struct{ quota.FieldErrors }

func (ps *problems) oneOf(pointer, word string, words ...string) {
	ps.When(!slices.Contains(words, word), pointer, "%q is not one of %s", quota.Clip(word), strings.Join(words, ", "))
}

// unique adds a problem for each item of a list whose name came before. Its pointer is that of
// the item and what is below it.
func unique[T any](ps *problems, what, at, below string, list []T, name func(*T) string) {
	seen := make(map[string]bool, len(list))
	for i := range list {
		v := name(&list[i])
		ps.When(seen[v], quota.Item(at, i)+below, "%s %q is duplicated", what, quota.Clip(v))
		seen[v] = true
	}
}

func (ps *problems) uniqueItems(what, at string, list []string) {
	unique(ps, what, at, "", list, func(s *string) string { return *s })
}

// Validate returns every mistake of value, with pointers as in topology.yaml.
// Parse has called it; a Topology that was put together in code needs it.
func (t *Topology) Validate() []quota.FieldError {
	var ps problems
	if t.Cluster != "" {
		ps.Check("/cluster", quota.ValidName(t.Cluster))
	}
	ps.Between("/revision", t.Revision, 0, MaxRevision)
	t.validateRegions(&ps)
	t.validatePolicies(&ps)
	t.validateTenants(&ps)
	ps.Between("/max_unknown", t.MaxUnknown, 0, MaxUnknownTenants)
	ps.Between("/max_values", t.MaxValues, 1, MaxTenantValues)
	if t.ForwardAuth != nil {
		ps.forwardAuth(t.ForwardAuth)
		if from := t.ForwardAuth.PolicyFrom; from != nil {
			t.validatePolicyFrom(&ps, from)
		}
		t.validateRouteUse(&ps)
	}
	ps.oneOf("/headers/format", string(t.Headers.Format),
		string(quota.Draft11), string(quota.Triplet), string(quota.XRateLimit), string(quota.OpenAI), string(quota.Anthropic), string(quota.HeadersOff))
	ps.oneOf("/headers/x_reset", string(t.Headers.XReset), string(quota.ResetDelta), string(quota.ResetEpoch))
	t.Access.validate(&ps)
	t.validateRLS(&ps)
	return ps.FieldErrors
}

func (a *Access) validate(ps *problems) {
	for i, host := range a.AllowedHosts {
		at := quota.Item("/access/allowed_hosts", i)
		ps.Check(at, checkHost(host, host))
		ps.When(host == "" || host != strings.ToLower(host) || strings.HasSuffix(host, "."), at, "must be a name in lower case, without port, is %q", quota.Clip(host))
	}
	ps.uniqueItems("host", "/access/allowed_hosts", a.AllowedHosts)
	ps.certificates("/access/", a.CertFile, a.KeyFile, a.ClientCAFile, a.ClientNames)
	ps.certificates("/access/admin_", a.AdminCertFile, a.AdminKeyFile, a.AdminClientCAFile, a.AdminClientNames)
	ps.When(a.AdminClientCAFile != "" && len(a.AdminClientNames) == 0, "/access/admin_client_ca_file",
		"needs admin_client_names: who of all that it has signed is an operator")
}

// certificates checks the four fields of a listener, whose pointers begin with prefix.
func (ps *problems) certificates(prefix, cert, key, clientCA string, names []string) {
	field := strings.TrimPrefix(prefix, "/access/")
	ps.pair(prefix, field, cert, key)
	ps.When(clientCA != "" && cert == "", prefix+"client_ca_file", "needs %scert_file and %[1]skey_file: client certificates are shown over TLS", field)
	ps.When(len(names) > 0 && clientCA == "", prefix+"client_names", "needs %sclient_ca_file", field)
	ps.uniqueItems("name", prefix+"client_names", names)
}

// pair holds a certificate and its key together. Their pointers begin with prefix, their
// names with field.
func (ps *problems) pair(prefix, field, cert, key string) {
	ps.When(cert != "" && key == "", prefix+"cert_file", "needs %skey_file", field)
	ps.When(key != "" && cert == "", prefix+"key_file", "needs %scert_file", field)
}

func (t *Topology) validateRegions(ps *problems) {
	n := len(t.Regions)
	ps.When(n == 0 || n > quota.MaxRegions, "/regions", "a topology has between 1 and %d regions, this one %d", quota.MaxRegions, n)
	unique(ps, "region", "/regions", "/name", t.Regions, func(g *Region) string { return g.Name })
	advertised := map[string]string{}
	// All regions have a key or none: the ids by which regions name partitions to
	// each other are made with it, and those of two keys have nothing in common.
	keyed := slices.IndexFunc(t.Regions, func(g Region) bool { return g.keyed() })
	own := slices.IndexFunc(t.Regions, func(g Region) bool { return g.NATS.Embedded && g.NATS.TLS != nil })
	for i := range t.Regions {
		g, at := &t.Regions[i], quota.Item("/regions", i)
		g.validate(ps, at)
		if keyed >= 0 && !g.keyed() && !g.open() {
			ps.Add(at+"/gossip", "needs key_file, as region %s has one: without the same key regions cannot tell "+
				"what the others have used; give it to all or to none", quota.Clip(t.Regions[keyed].Name))
		}
		ps.When(own >= 0 && g.NATS.Embedded && g.NATS.TLS == nil, at+"/nats", "needs tls, as region %s has it: gateways with "+
			"certificates of another authority do not connect; give it to all or to none", quota.Clip(t.Regions[max(own, 0)].Name))
		if g.Gossip != nil {
			other, taken := advertised[g.Gossip.Advertise]
			ps.When(taken, at+"/gossip/advertise", "is the address of region %q too", quota.Clip(other))
			advertised[g.Gossip.Advertise] = g.Name
		}
	}
}

func (g *Region) validate(ps *problems, at string) {
	ps.Check(at+"/name", quota.ValidName(g.Name))
	ps.Between(at+"/weight", g.Weight, 1, quota.MaxWeight)
	listeners := g.listeners()
	for i, l := range listeners {
		if l.name != "gateway" { // which is seen from other regions
			ps.Check(at+l.field, checkListen(l.addr))
		}
		if other, taken := portTaken(l.addr, listeners[:i]); taken {
			ps.Add(at+l.field, "must not be the port of %s, is %s", other, quota.Clip(l.addr))
		}
	}
	g.Redis.validate(ps, at+"/redis")
	g.NATS.validate(ps, at+"/nats")
	const open = " would admit anybody who reaches it, and without a shared key it listens on 127.0.0.1 only; " +
		"`openssl rand -base64 32` makes one"
	switch {
	case g.Gossip != nil:
		ps.Check(at+"/gossip/advertise", checkAdvertised(g.Gossip.Advertise))
		ps.When(g.open(), at+"/gossip", "needs key_file: gossip, and an embedded NATS server beside it, on %s"+open, quota.Clip(g.Gossip.Bind))
	case g.NATS.Embedded:
		ps.When(g.open(), at+"/nats/gateway", "needs gossip with key_file: the embedded NATS server on %s"+open, quota.Clip(g.NATS.Gateway))
	}
}

// listener is one of a region, with its field below the region's.
type listener struct{ name, field, addr string }

// listeners are what one process listens on: no two may have one port.
func (g *Region) listeners() []listener {
	all := []listener{{"http", "/http", g.HTTP}, {"admin", "/admin", g.Admin}}
	if g.GRPC != "" {
		all = append(all, listener{"grpc", "/grpc", g.GRPC})
	}
	if g.Gossip == nil {
		return all
	}
	all = append(all, listener{"gossip", "/gossip/bind", g.Gossip.Bind})
	host, _, err := net.SplitHostPort(g.Gossip.Bind)
	if _, port, err2 := net.SplitHostPort(g.NATS.Gateway); err == nil && err2 == nil { // it listens on gossip's host
		all = append(all, listener{"gateway", "/nats/gateway", net.JoinHostPort(host, port)})
	}
	return all
}

func portTaken(addr string, by []listener) (name string, taken bool) {
	i := slices.IndexFunc(by, func(l listener) bool { return sameListener(addr, l.addr) })
	if i < 0 {
		return "", false
	}
	return by[i].name, true
}

func (g *Region) keyed() bool { return g.Gossip != nil && g.Gossip.KeyFile != "" }

// open reports whether gossip, or an embedded NATS server, would let anybody join: it
// listens beyond loopback and without a key.
func (g *Region) open() bool {
	listen := g.NATS.Gateway
	if g.Gossip != nil {
		listen = g.Gossip.Bind
	}
	return !g.keyed() && checkListen(listen) == nil && !OnLoopback(listen)
}

func (s *Redis) validate(ps *problems, at string) {
	if s.Embedded {
		ps.When(s.Addrs != nil || s.Mode != "" || s.Master != "" || s.Username != "" || s.PasswordFile != "" || s.TLS != nil ||
			s.SentinelUsername != "" || s.SentinelPasswordFile != "",
			at+"/embedded", "an embedded store has no other settings; remove them or `embedded`")
		return
	}
	ps.When(len(s.Addrs) == 0, at+"/addrs", "needs at least one address, or `embedded: true`")
	for i, addr := range s.Addrs {
		ps.Check(quota.Item(at+"/addrs", i), checkRemote(addr))
	}
	ps.uniqueItems("address", at+"/addrs", s.Addrs)
	ps.oneOf(at+"/mode", string(s.Mode), string(quota.RedisStandalone), string(quota.RedisSentinel), string(quota.RedisCluster))
	ps.When(s.Mode == quota.RedisStandalone && len(s.Addrs) > 1,
		at+"/addrs", "mode standalone has one address, found %d; set mode: sentinel or cluster", len(s.Addrs))
	sentinel := s.Mode == quota.RedisSentinel
	ps.When(sentinel && s.Master == "", at+"/master", "mode sentinel needs the name of the primary")
	ps.When(!sentinel && s.Master != "", at+"/master", "needs mode: sentinel")
	ps.When(s.Username != "" && s.PasswordFile == "", at+"/username", "needs password_file")
	ps.When(!sentinel && s.SentinelPasswordFile != "", at+"/sentinel_password_file", "needs mode: sentinel")
	ps.When(s.SentinelUsername != "" && s.SentinelPasswordFile == "", at+"/sentinel_username", "needs sentinel_password_file")
	s.TLS.validate(ps, at+"/tls")
}

func (s *NATS) validate(ps *problems, at string) {
	if s.Embedded {
		ps.When(s.URLs != nil || s.CredsFile != "" || s.Username != "" || s.PasswordFile != "",
			at+"/embedded", "an embedded server has no urls, creds_file or username; remove them or `embedded`")
		s.TLS.validate(ps, at+"/tls")
		ps.When(s.TLS != nil && (s.TLS.CAFile == "" || s.TLS.CertFile == ""),
			at+"/tls", "gateways of embedded servers verify both sides: needs ca_file, cert_file and key_file")
		if s.Gateway != "" {
			ps.Check(at+"/gateway", checkAdvertised(s.Gateway))
		}
		return
	}
	ps.When(len(s.URLs) == 0, at+"/urls", "needs at least one URL, or `embedded: true`")
	for i, u := range s.URLs {
		ps.Check(quota.Item(at+"/urls", i), checkNATS(u))
	}
	ps.uniqueItems("URL", at+"/urls", s.URLs)
	ps.When(s.Gateway != "", at+"/gateway", "needs embedded: true")
	ps.When(s.Username != "" && s.PasswordFile == "", at+"/username", "needs password_file, the path of a file with this user's password")
	ps.When(s.Username == "" && s.PasswordFile != "", at+"/password_file", "needs username: NATS looks a password up by the name of its user")
	ps.When(s.Username != "" && s.CredsFile != "", at+"/creds_file", "is another way to log in than username; remove one of them")
	s.TLS.validate(ps, at+"/tls")
}

func (t *TLS) validate(ps *problems, at string) {
	if t != nil {
		ps.pair(at+"/", "", t.CertFile, t.KeyFile)
	}
}

const keylessBound = "needs gossip with key_file in all regions: " +
	"what regions lend each other is not authentic without a shared key; `openssl rand -base64 32` makes one"

// longestInMemory is the longest window of a limit with max_overshoot where usage is kept in memory.
const longestInMemory = time.Hour

func (t *Topology) validatePolicies(ps *problems) {
	ps.When(len(t.Policies) == 0, "/policies", "a topology has at least one policy")
	memory := slices.ContainsFunc(t.Regions, func(g Region) bool { return g.Redis.Embedded })
	keyless := len(t.Regions) > 1 && slices.ContainsFunc(t.Regions, func(g Region) bool { return !g.keyed() })
	unique(ps, "policy", "/policies", "/name", t.Policies, func(p *quota.Policy) string { return p.Name })
	for i := range t.Policies {
		p, at := &t.Policies[i], quota.Item("/policies", i)
		ps.Below(at, p.Validate())
		for j := range p.Limits {
			l, bound := &p.Limits[j], quota.Item(at+"/limits", j)+"/max_overshoot"
			ps.When(keyless && l.MaxOvershoot != 0, bound, keylessBound)
			ps.When(memory && l.MaxOvershoot != 0 && l.Window > longestInMemory, bound, "needs redis in all regions for a window above %s: "+
				"with usage in memory each start counts the region's own share as used for a window and more", quota.WindowText(longestInMemory))
		}
		ps.When(p.EnforcePercent >= 0 && p.Enforcement == quota.Observe, at+"/enforce_share", "needs enforcement: enforce")
	}
}

func (t *Topology) validateTenants(ps *problems) {
	ps.When(t.Tenants.Default == nil && len(t.Tenants.Listed) == 0, "/tenants", "nobody would be served; name at least `default`")
	names := map[string]bool{} // where one has none, that may be the one that is meant
	for i := range t.Policies {
		names[t.Policies[i].Name] = true
	}
	known := func(at, policy string) {
		ps.When(!names[policy] && !names[""], at+"/policy", "policy %q is not among policies", quota.Clip(policy))
	}
	if d := t.Tenants.Default; d != nil {
		known("/tenants/"+DefaultTenant, d.Policy)
	}
	for _, id := range slices.Sorted(maps.Keys(t.Tenants.Listed)) {
		at := quota.Under("/tenants", id)
		if err := quota.ValidID(id); err != nil {
			ps.Add(at, "a tenant id %v", err)
		}
		known(at, t.Tenants.Listed[id].Policy)
	}
}

func (ps *problems) forwardAuth(f *quota.ForwardAuth) {
	const at = "/forward_auth"
	ps.Between(at+"/ipv6_prefix", f.IPv6Prefix, 32, 128)
	ps.Check(at+"/tenant/header", checkHeader(f.Tenant.Header))
	for _, s := range f.Dimensions {
		at := quota.Under(at+"/dimensions", s.Name)
		ps.Check(at, quota.ValidName(s.Name))
		ps.When(s.Name == quota.RouteDimension, at, "dimension %q comes from routes; choose another name", s.Name)
		ps.When(s.Header == "" && !s.ClientIP, at, "needs exactly one source: header: NAME or client_ip: true")
		ps.When(s.Header != "" && s.ClientIP, at, "has two sources; keep header or client_ip")
		ps.When(s.Header == "" && s.Hash, at+"/hash", "needs header; a client address is stored as it is")
		if s.Header != "" {
			ps.Check(at+"/header", checkHeader(s.Header))
		}
	}
	for i, p := range f.TrustedProxies {
		ps.When(p != p.Masked(), quota.Item(at+"/trusted_proxies", i), "has bits beyond its length; is %s meant?", p.Masked())
	}
	ps.oneOf(at+"/missing", string(f.Missing), string(quota.MissingDeny), string(quota.MissingAnonymous))
	unique(ps, "route", at+"/routes", "/name", f.Routes, func(r *quota.Route) string { return r.Name })
	for i := range f.Routes {
		ps.route(&f.Routes[i], quota.Item(at+"/routes", i))
	}
}

func (t *Topology) validatePolicyFrom(ps *problems, from *quota.PolicySource) {
	const at = "/forward_auth/policy_from"
	ps.When((from.Header == "") == (from.Metadata == ""), at, "needs exactly one source: header: NAME or metadata: NAMESPACE/KEY")
	if from.Header != "" {
		ps.Check(at+"/header", checkHeader(from.Header))
	}
	if from.Metadata != "" {
		namespace, key, _ := strings.Cut(from.Metadata, "/")
		ps.When(namespace == "" || namespace == "header" || slices.Contains(strings.Split(key, "/"), ""), at+"/metadata",
			"must be a place in Envoy's dynamic metadata such as envoy.filters.http.jwt_authn/payload/plan, is %q", quota.Clip(from.Metadata))
	}
	t.validatePolicyValues(ps, at, from.Policies)
}

// validatePolicyValues checks `policies` of the policy_from at a pointer.
func (t *Topology) validatePolicyValues(ps *problems, at string, policies map[string]string) {
	ps.When(policies != nil && len(policies) == 0, at+"/policies", "names no policy; leave it out to take all")
	for _, value := range slices.Sorted(maps.Keys(policies)) {
		at, name := quota.Under(at+"/policies", value), policies[value]
		if err := quota.ValidID(value); err != nil {
			ps.Add(at, "a value %v", err)
		}
		known := slices.ContainsFunc(t.Policies, func(p quota.Policy) bool { return p.Name == name || p.Name == "" })
		ps.When(!known, at, "policy %q is not among policies", quota.Clip(name))
	}
}

func (ps *problems) route(r *quota.Route, at string) {
	ps.Check(at+"/name", quota.ValidName(r.Name))
	ps.When(r.Name == quota.RouteOther, at+"/name", "%q means that no route matched; choose another name", quota.RouteOther)
	for i, m := range r.Methods {
		bad := m == "" || strings.Trim(m, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" // a token of RFC 9110
		ps.When(bad, quota.Item(at+"/methods", i), "must be a method in capitals such as POST, is %q", quota.Clip(m))
	}
	ps.uniqueItems("method", at+"/methods", r.Methods)
	ps.Check(at+"/path", checkPath(r.Path))
	ps.When(r.Skip && r.Cost != 0, at+"/cost", "a route that is skipped has no cost; remove cost or skip")
	if !r.Skip {
		ps.Between(at+"/cost", r.Cost, 1, quota.MaxUnits)
	}
}

// checkPath refuses what no request can match: requests are compared after
// decoding and cleaning, without their query.
func checkPath(p string) error {
	switch {
	case !strings.HasPrefix(p, "/"):
		return fmt.Errorf("must begin with /, is %q", quota.Clip(p))
	case strings.ContainsAny(p, "?#%;\\"):
		return fmt.Errorf("must be a decoded path without query, so none of ? # %% ; \\ may be in it, is %q", quota.Clip(p))
	case strings.Contains(strings.TrimSuffix(p, "/*"), "*"):
		return fmt.Errorf("may have * only as its whole last segment, is %q", quota.Clip(p))
	case path.Clean(p) != p:
		return fmt.Errorf("must be clean, without //, ., .. or a / at its end: is %s meant?", visible(quota.Clip(path.Clean(p))))
	}
	return nil
}

// validateRouteUse finds limits for a route that no request can get. Without
// forward_auth nothing is known of routes: callers name them.
func (t *Topology) validateRouteUse(ps *problems) {
	routes := map[string]bool{quota.RouteOther: true}
	for _, r := range t.ForwardAuth.Routes {
		routes[r.Name] = !r.Skip
	}
	for i := range t.Policies {
		for j := range t.Policies[i].Limits {
			l, at := &t.Policies[i].Limits[j], quota.Item(quota.Item("/policies", i)+"/limits", j)
			ps.When(slices.Contains(l.By, quota.RouteDimension) && len(t.ForwardAuth.Routes) == 0,
				at+"/by", "counts by %q, but forward_auth has no routes", quota.RouteDimension)
			for _, m := range l.When {
				ps.When(m.Dimension == quota.RouteDimension && !routes[m.Value] && !routes[""],
					at+"/when/"+quota.RouteDimension, "route %q is not among forward_auth.routes that count", quota.Clip(m.Value))
			}
		}
	}
}

// checkHeader accepts letters, digits and "-": what gateways and servers agree
// on. Behind many of them "_" arrives as "-" or not at all, and a client could
// send the one where the gateway overwrites the other.
func checkHeader(name string) error {
	if name == "" || len(name) > 128 || strings.Trim(name, letters+"0123456789-") != "" {
		return fmt.Errorf("must be the name of a header field of letters, digits and -, is %q", quota.Clip(name))
	}
	if name == "Host" {
		return errors.New("must not be Host, which names the limiter itself behind some gateways; use X-Forwarded-Host")
	}
	return nil
}
