package httpapi

import "net/netip"

// What the external tests see of the pure core.

// ClientIP is clientIP.
func ClientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	return clientIP(remote, forwarded, trusted)
}

// IPValue is ipValue.
func IPValue(a netip.Addr, bits int) string { return ipValue(a, bits) }

// Endpoints returns "METHOD pattern" of both listeners.
func Endpoints() (names []string) {
	for _, e := range append(dataEndpoints(), adminEndpoints()...) {
		names = append(names, e.method+" "+e.pattern)
	}
	return names
}
