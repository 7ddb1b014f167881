package access

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A page of any origin can make a browser send requests to a listener on loopback or of
// an internal network, and read the answers, by having its own name resolve to there
// (DNS rebinding). Such a request names the page's host. So the admin listener, and a
// data listener on loopback, answer only under names that are known to be theirs.

// Misdirected returns why a listener does not answer under the Host of a request, "" where it does: the
// host is own, this machine, an address, or one of AllowedHosts.
func (a *Access) Misdirected(field, own string) (detail string) {
	host := Hostname(field)
	if host == "" || host == own || IsLoopback(host) || isAddress(host) || slices.Contains(a.AllowedHosts, host) {
		return ""
	}
	if len(field) > 80 {
		field = strings.ToValidUTF8(field[:80], "") + "…"
	}
	return "Host " + field + " is not known to be a name of this listener: a web page could have had it resolve to here. " +
		"Call the listener by its address, or add the name to access.allowed_hosts in topology.yaml."
}

// Hostname is the host of a Host field or of an address to listen on, in lower case,
// without port and without the dot of a full name.
func Hostname(host string) string {
	if strings.Contains(host, ":") { // without one the error would take memory in each check
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// IsLoopback reports whether a host is this machine, for every browser and resolver.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback()
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
