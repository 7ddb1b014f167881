package region

import (
	"net/netip"
	"net/textproto"
)

func (r *reader) forwardAuth(n *node, f *ForwardAuth) {
	f.Missing = MissingDeny
	r.fields(n, map[string]take{
		"tenant":          r.tenantSource(&f.TenantHeader),
		"dimensions":      r.dimensions(&f.Dimensions),
		"trusted_proxies": list(r, &f.TrustedProxies, r.prefix),
		"missing":         wordOf(r, &f.Missing),
		"routes":          list(r, &f.Routes, r.route),
	})
	r.need(n, "tenant")
}

// tenantSource takes a header only: an address does not say who pays.
func (r *reader) tenantSource(dst *string) take {
	return func(n *node) {
		r.fields(n, map[string]take{"header": r.text(dst)})
		r.need(n, "header")
		*dst = textproto.CanonicalMIMEHeaderKey(*dst)
	}
}

func (r *reader) dimensions(dst *map[string]Source) take {
	return func(n *node) {
		if !r.is(n, string(mapping), mapping) {
			return
		}
		*dst = make(map[string]Source, len(n.entries))
		for _, e := range n.entries {
			var s Source
			r.source(e.value, &s)
			(*dst)[e.key] = s
		}
	}
}

// source keeps header names in the form that net/http looks them up by.
func (r *reader) source(n *node, s *Source) {
	r.fields(n, map[string]take{
		"header":    r.text(&s.Header),
		"client_ip": r.truth(&s.ClientIP),
		"hash":      r.truth(&s.Hash),
	})
	s.Header = textproto.CanonicalMIMEHeaderKey(s.Header)
}

func (r *reader) prefix(n *node, p *netip.Prefix) {
	var cidr string
	if r.text(&cidr)(n); r.shape != nil || cidr == "" {
		return
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		r.wrong(n.Place, "must be a prefix such as 10.0.0.0/8 or 192.0.2.7/32, is %q", clip(cidr))
		return
	}
	*p = prefix
}

func (r *reader) route(n *node, t *Route) {
	r.fields(n, map[string]take{
		"name":    r.text(&t.Name),
		"methods": r.texts(&t.Methods),
		"path":    r.text(&t.Path),
		"cost":    r.whole(&t.Cost),
		"skip":    r.truth(&t.Skip),
	})
	r.need(n, "name", "path")
	if _, priced := n.byKey["cost"]; !priced && !t.Skip {
		t.Cost = 1
	}
}
