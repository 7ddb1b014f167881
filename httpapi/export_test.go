package httpapi

import (
	"net/netip"

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
func DecodeCheck(body []byte) (quota.Request, []quota.FieldError) { return decodeCheck(body, "") }

// DecodeBatch decodes a batch body; errs[i] belongs to check i.
func DecodeBatch(body []byte) (requests []quota.Request, errs [][]quota.FieldError, envelope []quota.FieldError) {
	items, envelope := decodeBatch(body)
	for _, it := range items {
		requests = append(requests, it.request)
		errs = append(errs, it.errs)
	}
	return requests, errs, envelope
}

// Endpoints returns "METHOD pattern" of both listeners.
func Endpoints() (names []string) {
	for _, e := range append(dataEndpoints(), adminEndpoints()...) {
		names = append(names, e.method+" "+e.pattern)
	}
	return names
}
