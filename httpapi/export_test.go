package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"net/netip"
	"time"

	"github.com/regiond/regiond/quota"
)

// What the external tests see of the pure core.

// ClientIP is clientIP.
func ClientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	return clientIP(remote, forwarded, trusted)
}

// IPValue is ipValue.
func IPValue(a netip.Addr, bits int) string { return ipValue(a, bits) }

// ParseCost is parseCost.
func ParseCost(s string) (int64, bool) { return parseCost(s) }

// DecodeCheck decodes one check body.
func DecodeCheck(body []byte) (quota.Request, []quota.FieldError) {
	return newDecoder().check(bytes.NewBuffer(body), nil)
}

// DecodeBatch decodes a batch body; errs[i] belongs to check i.
func DecodeBatch(body []byte) (requests []quota.Request, errs [][]quota.FieldError, envelope []quota.FieldError) {
	items, envelope := newDecoder().batch(bytes.NewBuffer(body))
	for _, it := range items {
		requests = append(requests, it.request)
		errs = append(errs, it.errs)
	}
	return requests, errs, envelope
}

// RouteName returns the name of the route of a request, quota.RouteOther for none.
func RouteName(f *quota.ForwardAuth, method, uri string) (string, error) {
	path, err := target(uri)
	if err != nil {
		return "", err
	}
	r, err := matchRoute(f, method, path)
	if r == nil {
		return quota.RouteOther, err
	}
	return r.Name, err
}

// Fields returns the header fields of a decision.
func Fields(hs quota.Headers, d *quota.Decision, jitter float64, nowUS int64, denied bool) http.Header {
	h := http.Header{}
	setFields(h, d, fieldInput{headers: hs, jitter: jitter, nowUS: nowUS, denied: denied}, nil)
	return h
}

// Endpoints returns "METHOD pattern" of both listeners.
func Endpoints() (names []string) {
	for _, e := range append(dataEndpoints(), adminEndpoints()...) {
		names = append(names, e.method+" "+e.pattern)
	}
	return names
}

// Within returns the context that the limiter gets.
func Within(ctx context.Context, d time.Duration) context.Context {
	return (&call{ctx: ctx}).within(d)
}
