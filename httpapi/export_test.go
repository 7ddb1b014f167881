package httpapi

import (
	"net/http"
	"net/netip"

	"github.com/regiond/regiond/quota"
)

// What the external tests see of the pure core.

// ClientIP is clientIP.
func ClientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	return clientIP(remote, forwarded, trusted)
}

// IPValue is ipValue.
func IPValue(a netip.Addr) string { return ipValue(a) }

// ParseCost is parseCost.
func ParseCost(s string) (int64, bool) { return parseCost(s) }

// DecodeCheck decodes one check body.
func DecodeCheck(body []byte) (quota.Request, []quota.FieldError) { return newDecoder().check(body) }

// DecodeBatch decodes a batch body; mistakes[i] belongs to check i.
func DecodeBatch(body []byte) (requests []quota.Request, mistakes [][]quota.FieldError, envelope []quota.FieldError) {
	items, envelope := newDecoder().batch(body)
	for _, it := range items {
		requests = append(requests, it.request)
		mistakes = append(mistakes, it.mistakes)
	}
	return requests, mistakes, envelope
}

// RouteName returns the name of the route of a request, OtherRoute for none.
func (f *ForwardAuth) RouteName(method, uri string) (string, error) {
	path, err := target(uri)
	if err != nil {
		return "", err
	}
	r, err := f.route(method, path)
	if r == nil {
		return OtherRoute, err
	}
	return r.Name, err
}

// Fields returns the header fields of a decision.
func Fields(hs Headers, d *quota.Decision, jitter float64, nowUS int64, denied bool) http.Header {
	h := http.Header{}
	setFields(h, d, fieldInput{headers: hs, jitter: jitter, nowUS: nowUS, denied: denied}, nil)
	return h
}

// Routes returns "METHOD pattern" of both listeners.
func Routes() (names []string) {
	for _, r := range append(dataRoutes(), adminRoutes()...) {
		names = append(names, r.method+" "+r.pattern)
	}
	return names
}
