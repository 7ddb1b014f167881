package warnings

import (
	"net/textproto"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
	"github.com/regiond/regiond/region"
)

func (t *topology) forwardAuth() {
	f := t.ForwardAuth
	counted := map[string]bool{}
	for i := range t.Policies {
		for _, name := range t.Policies[i].Dimensions() {
			counted[name] = true
		}
	}
	byAddress := false
	for _, d := range f.Dimensions {
		at := quota.Under("/forward_auth/dimensions", d.Name)
		byAddress = byAddress || d.ClientIP
		t.When(!counted[d.Name], at, "no policy counts or asks by dimension %q", d.Name)
		t.secretHeader(at, d.Header, !d.Hash)
		t.When(d.ClientIP && len(f.TrustedProxies) == 0, at+"/client_ip",
			"without trusted_proxies this is the address of the direct client, which is the gateway")
	}
	for i, p := range f.TrustedProxies {
		t.When(byAddress && p.Bits() == 0, quota.Item("/forward_auth/trusted_proxies", i),
			"%s trusts every client to choose its own address", p)
	}
	t.secretHeader("/forward_auth/tenant/header", f.Tenant.Header, true)
	if f.PolicyFrom != nil {
		t.routePolicy(f)
	}
	for i := range f.Routes { // a stricter limit behind a route that is never reached would never apply
		before := slices.IndexFunc(f.Routes[:i], func(r quota.Route) bool { return covers(&r, &f.Routes[i], !f.CaseSensitive) })
		if before >= 0 {
			t.Add(quota.Item("/forward_auth/routes", i), "route %q is never reached: route %q before it matches all of it",
				f.Routes[i].Name, f.Routes[before].Name)
		}
	}
}

// routePolicy finds sources that no gateway fills, or that a client fills itself.
func (t *topology) routePolicy(f *quota.ForwardAuth) {
	const at = "/forward_auth/policy_from"
	header := f.PolicyFrom.Header
	t.When(ofClients(header), at+"/header", "clients send header %s themselves, and a gateway passes it on: whoever sends it chooses a policy; "+
		"use a header that the gateway sets from what it has verified, or metadata", header)
	t.When(header != "" && header == f.Tenant.Header, at+"/header", "is the header of the tenant; list tenants under `tenants` with their policies instead")
	t.When(header != "" && slices.ContainsFunc(f.Dimensions, func(d quota.DimensionSource) bool { return d.Header == header }), at+"/header",
		"is the header of a dimension, which a client may be free to choose; use one that only the gateway sets")
	t.When(f.PolicyFrom.Metadata != "" && !slices.ContainsFunc(t.Regions, func(g region.Region) bool { return g.GRPC != "" }), at+"/metadata",
		"only ext_authz over gRPC brings metadata, and no region has a listener `grpc`; set it, or start regiond with --grpc")
}

// descriptorPolicy finds keys whose values clients choose. What a gateway fills others with its own configuration says.
func (t *topology) descriptorPolicy(d *region.Domain) {
	at, key := d.At+"/policy_from/descriptor", d.PolicyFrom.Descriptor
	header := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(key, "_", "-"))
	t.When(ofClients(header) || slices.Contains([]string{"remote_address", "masked_remote_address", "path", "query_match"}, key), at,
		"clients choose what descriptors have as %q, and so their policy; use a key that the gateway fills from what it has verified, "+
			"such as metadata of jwt_authn", quota.Clip(key))
	t.When(slices.Contains(d.Tenant, key), at, "is a key of `tenant`; list tenants under `tenants` with their policies instead")
}

// ofClients reports whether a header is one that clients set and gateways pass on as it is, or with what they add.
func ofClients(header string) bool {
	return slices.Contains([]string{
		"Authorization", "Cookie", "Proxy-Authorization", "User-Agent", "Referer", "Origin", "From", "Forwarded", "X-Requested-With",
		"X-Api-Key", "Content-Type", "Range", "Te", "Via", "Traceparent", "Tracestate", "Baggage",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Method", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Proto", "X-Forwarded-Uri",
	}, header) || slices.ContainsFunc([]string{"Accept", "If-", "Sec-", "X-Original-"}, func(prefix string) bool {
		return strings.HasPrefix(header, prefix)
	})
}

// secretHeader warns of a header whose value would be in Redis and in the log.
func (t *topology) secretHeader(at, header string, plain bool) {
	t.When(plain && slices.Contains([]string{"Authorization", "Cookie", "Proxy-Authorization"}, header), at,
		"header %s is a secret that would be in Redis and in the log; count by a dimension of it with hash: true", header)
}

// covers reports whether every request that o matches is matched by r too; fold ignores
// case where r counts.
func covers(r, o *quota.Route, fold bool) bool {
	missing := func(method string) bool { return !r.MatchesMethod(method) }
	if len(r.Methods) > 0 && (len(o.Methods) == 0 || slices.ContainsFunc(o.Methods, missing)) {
		return false
	}
	stem, wide := strings.CutSuffix(o.Path, "/*")
	return (!wide || strings.HasSuffix(r.Path, "/*")) && r.MatchesPath(stem, fold && !r.Skip)
}
