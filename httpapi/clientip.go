package httpapi

import (
	"net/netip"
	"strings"
)

// maxHops bounds how much of X-Forwarded-For is walked.
const maxHops = 64

// clientIP returns the address that a request is attributed to: the right-most
// hop that is not a trusted proxy. Whatever stands left of it was written by
// someone we do not trust. The peer itself is the first hop, so when it is not
// trusted, X-Forwarded-For is not read at all. A hop that is no address ends
// the walk, and the last good one counts. The result is invalid when the peer
// has no address, as on a Unix socket.
func clientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	last, ok := parseHop(remote)
	if !ok || !inside(last, trusted) {
		return last
	}
	hops := 0
	for i := len(forwarded) - 1; i >= 0; i-- {
		for rest, more := forwarded[i], true; more; {
			var hop string
			rest, hop, more = cutLast(rest)
			addr, ok := parseHop(hop)
			if hops++; !ok || hops > maxHops {
				return last
			}
			if last = addr; !inside(addr, trusted) {
				return addr
			}
		}
	}
	return last
}

// cutLast cuts the last element off a comma-separated list; more says whether
// something was left of it.
func cutLast(list string) (rest, last string, more bool) {
	i := strings.LastIndexByte(list, ',')
	if i < 0 {
		return "", list, false
	}
	return list[:i], list[i+1:], true
}

// parseHop reads an address as proxies write it: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return plain(ap.Addr()), true
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return plain(addr), true
}

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func inside(a netip.Addr, prefixes []netip.Prefix) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// ipValue is the dimension value of an address. A customer with IPv6 holds at
// least a /64, so counting single addresses would count nothing.
func ipValue(a netip.Addr) string {
	if a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().String()
	}
	return a.String()
}
