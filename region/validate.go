package region

import (
	"maps"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Validate returns every mistake of value, with pointers as in topology.yaml.
// Parse has called it; a Topology that was put together in code needs it.
func (t *Topology) Validate() []quota.FieldError {
	var ps problems
	if t.Cluster != "" {
		ps.name("/cluster", t.Cluster)
	}
	t.validateRegions(&ps)
	t.validatePolicies(&ps)
	t.validateTenants(&ps)
	if t.MaxUnknown < 0 || t.MaxUnknown > MaxUnknownTenants {
		ps.add("/max_unknown", "must be between 0 and %d, is %d", MaxUnknownTenants, t.MaxUnknown)
	}
	if t.ForwardAuth != nil {
		t.ForwardAuth.validate(&ps)
		t.validateRouteUse(&ps)
	}
	ps.oneOf("/headers/format", string(t.Headers.Format),
		string(HeadersDraft11), string(HeadersTriplet), string(HeadersX), string(HeadersOff))
	t.Access.validate(&ps, "/access")
	ps.oneOf("/headers/x_reset", string(t.Headers.XReset), string(ResetDelta), string(ResetEpoch))
	return ps
}

func (ps *problems) name(pointer, name string) {
	ps.check(pointer, quota.ValidName(name))
}

func (ps *problems) check(pointer string, err error) {
	if err != nil {
		ps.add(pointer, "%v", err)
	}
}

func (ps *problems) oneOf(pointer, word string, words ...string) {
	if !slices.Contains(words, word) {
		ps.add(pointer, "%q is not one of %s", clip(word), strings.Join(words, ", "))
	}
}

func (t *Topology) validateRegions(ps *problems) {
	if n := len(t.Regions); n == 0 || n > MaxRegions {
		ps.add("/regions", "a topology has between 1 and %d regions, this one %d", MaxRegions, n)
	}
	names, advertised := map[string]bool{}, map[string]string{}
	for i := range t.Regions {
		g, at := &t.Regions[i], item("/regions", i)
		g.validate(ps, at)
		if names[g.Name] {
			ps.add(at+"/name", "region %q is duplicated", clip(g.Name))
		}
		names[g.Name] = true
		if g.Gossip == nil {
			continue
		}
		if other, taken := advertised[g.Gossip.Advertise]; taken {
			ps.add(at+"/gossip/advertise", "is the address of region %q too", clip(other))
		}
		advertised[g.Gossip.Advertise] = g.Name
	}
	t.validateKeys(ps)
}

func (g *Region) validate(ps *problems, at string) {
	ps.name(at+"/name", g.Name)
	if g.Weight < 1 || g.Weight > MaxWeight {
		ps.add(at+"/weight", "must be between 1 and %d, is %d", MaxWeight, g.Weight)
	}
	ps.check(at+"/http", checkListen(g.HTTP))
	ps.check(at+"/admin", checkListen(g.Admin))
	if sameListener(g.HTTP, g.Admin) {
		ps.add(at+"/admin", "must not be the port of http, is %s", clip(g.Admin))
	}
	if g.Gossip != nil {
		ps.check(at+"/gossip/bind", checkListen(g.Gossip.Bind))
		ps.check(at+"/gossip/advertise", checkAdvertised(g.Gossip.Advertise))
	}
	g.Redis.validate(ps, at+"/redis")
	g.NATS.validate(ps, at+"/nats")
	switch n := g.Gossip; {
	case !g.open():
	case n != nil:
		ps.add(at+"/gossip", "needs key_file: the embedded NATS server listens beside gossip on %s, and without a shared key "+
			"it does so on 127.0.0.1 only; `openssl rand -base64 32` makes one", clip(n.Bind))
	default:
		ps.add(at+"/nats/gateway", "needs gossip with key_file: the embedded NATS server listens on %s, and without a shared key "+
			"it does so on 127.0.0.1 only; `openssl rand -base64 32` makes one", clip(g.NATS.Gateway))
	}
}

// keyed reports whether the region has the deployment's secret.
func (g *Region) keyed() bool { return g.Gossip != nil && g.Gossip.KeyFile != "" }

// open reports whether an embedded NATS server would let anybody join it: it listens
// beside gossip, or where its gateway is, and has no secret to ask for.
func (g *Region) open() bool {
	listen := g.NATS.Gateway
	if g.Gossip != nil {
		listen = g.Gossip.Bind
	}
	return g.NATS.Embedded && !g.keyed() && checkListen(listen) == nil && !onLoopback(listen)
}

// validateKeys wants a key in every region or in none: the ids by which regions tell each
// other of partitions are made with it, and those of two keys mean nothing to each other.
func (t *Topology) validateKeys(ps *problems) {
	with := slices.IndexFunc(t.Regions, func(g Region) bool { return g.keyed() })
	if with < 0 {
		return
	}
	for i := range t.Regions {
		if g := &t.Regions[i]; !g.keyed() && !g.open() {
			ps.add(item("/regions", i)+"/gossip", "needs key_file, as region %s has one: without the same key regions cannot tell "+
				"what the others have used; give it to all or to none", clip(t.Regions[with].Name))
		}
	}
}

func (s *Redis) validate(ps *problems, at string) {
	if s.Embedded {
		if s.Addrs != nil || s.Mode != "" || s.Master != "" || s.Username != "" || s.PasswordFile != "" || s.TLS != nil ||
			s.SentinelUsername != "" || s.SentinelPasswordFile != "" {
			ps.add(at+"/embedded", "an embedded store has no other settings; remove them or `embedded`")
		}
		return
	}
	if len(s.Addrs) == 0 {
		ps.add(at+"/addrs", "needs at least one address, or `embedded: true`")
	}
	for i, addr := range s.Addrs {
		ps.check(item(at+"/addrs", i), checkRemote(addr))
		if slices.Contains(s.Addrs[:i], addr) {
			ps.add(item(at+"/addrs", i), "address %q is duplicated", clip(addr))
		}
	}
	ps.oneOf(at+"/mode", string(s.Mode), string(RedisStandalone), string(RedisSentinel), string(RedisCluster))
	if s.Mode == RedisStandalone && len(s.Addrs) > 1 {
		ps.add(at+"/addrs", "mode standalone has one address, found %d; set mode: sentinel or cluster", len(s.Addrs))
	}
	if s.Mode == RedisSentinel && s.Master == "" {
		ps.add(at+"/master", "mode sentinel needs the name of the primary")
	}
	if s.Mode != RedisSentinel && s.Master != "" {
		ps.add(at+"/master", "needs mode: sentinel")
	}
	if s.Username != "" && s.PasswordFile == "" {
		ps.add(at+"/username", "needs password_file")
	}
	if s.SentinelPasswordFile != "" && s.Mode != RedisSentinel {
		ps.add(at+"/sentinel_password_file", "needs mode: sentinel")
	}
	if s.SentinelUsername != "" && s.SentinelPasswordFile == "" {
		ps.add(at+"/sentinel_username", "needs sentinel_password_file")
	}
	s.TLS.validate(ps, at+"/tls")
}

func (s *NATS) validate(ps *problems, at string) {
	if s.Embedded {
		if s.URLs != nil || s.CredsFile != "" || s.TLS != nil {
			ps.add(at+"/embedded", "an embedded server has no urls, creds_file or tls; remove them or `embedded`")
		}
		if s.Gateway != "" {
			ps.check(at+"/gateway", checkAdvertised(s.Gateway))
		}
		return
	}
	if len(s.URLs) == 0 {
		ps.add(at+"/urls", "needs at least one URL, or `embedded: true`")
	}
	for i, u := range s.URLs {
		ps.check(item(at+"/urls", i), checkNATS(u))
		if slices.Contains(s.URLs[:i], u) {
			ps.add(item(at+"/urls", i), "URL %q is duplicated", clip(u))
		}
	}
	if s.Gateway != "" {
		ps.add(at+"/gateway", "needs embedded: true")
	}
	s.TLS.validate(ps, at+"/tls")
}

func (t *TLS) validate(ps *problems, at string) {
	if t != nil {
		validatePair(ps, at, t.CertFile, t.KeyFile)
	}
}

func (a *Access) validate(ps *problems, at string) {
	validatePair(ps, at, a.CertFile, a.KeyFile)
	if a.ClientCAFile != "" && a.CertFile == "" {
		ps.add(at+"/client_ca_file", "needs cert_file and key_file: client certificates are shown over TLS")
	}
}

// validatePair holds a certificate and its key together.
func validatePair(ps *problems, at, cert, key string) {
	if cert != "" && key == "" {
		ps.add(at+"/cert_file", "needs key_file")
	}
	if key != "" && cert == "" {
		ps.add(at+"/key_file", "needs cert_file")
	}
}

func (t *Topology) validatePolicies(ps *problems) {
	if len(t.Policies) == 0 {
		ps.add("/policies", "a topology has at least one policy")
	}
	names := map[string]bool{}
	for i := range t.Policies {
		p, at := &t.Policies[i], item("/policies", i)
		for _, m := range p.Validate() {
			ps.add(at+m.Pointer, "%s", m.Detail)
		}
		if names[p.Name] {
			ps.add(at+"/name", "policy %q is duplicated", clip(p.Name))
		}
		names[p.Name] = true
		if p.EnforcePercent >= 0 && p.Enforcement == quota.Observe {
			ps.add(at+"/enforce_share", "needs enforcement: enforce")
		}
	}
}

func (t *Topology) validateTenants(ps *problems) {
	if t.Tenants.Default == nil && len(t.Tenants.Listed) == 0 {
		ps.add("/tenants", "nobody would be served; name at least `default`")
	}
	names := map[string]bool{}
	for i := range t.Policies {
		names[t.Policies[i].Name] = true
	}
	known := func(at, policy string) {
		if !names[policy] {
			ps.add(at+"/policy", "policy %q is not among policies", clip(policy))
		}
	}
	if d := t.Tenants.Default; d != nil {
		known("/tenants/"+DefaultTenant, d.Policy)
	}
	for _, id := range slices.Sorted(maps.Keys(t.Tenants.Listed)) {
		at := under("/tenants", id)
		if err := quota.ValidID(id); err != nil {
			ps.add(at, "a tenant id %v", err)
		}
		known(at, t.Tenants.Listed[id].Policy)
	}
}
