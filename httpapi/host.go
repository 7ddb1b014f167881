package httpapi

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
//
// Not checked are health checks, /metrics and the OpenAPI document, which collectors and
// probes call by whatever name they have and which change nothing, and forward-auth,
// where gateways pass the end user's Host.

// foreignHost reports whether a request names a host that is not this listener.
func (c *call) foreignHost() bool {
	switch c.endpoint.guard {
	case guardNone, guardMetrics, guardForward, guardForwardNginx:
		return false
	case guardData, guardAdmin, guardCostly, guardLogin:
	}
	return c.checksHost && c.settings.Access.foreignHost(c.hostField(), c.host)
}

// foreignHost reports whether a Host field names neither own, nor this machine, an address, or one of AllowedHosts.
func (a *Access) foreignHost(field, own string) bool {
	host := hostname(field)
	return host != "" && host != own && !isLoopback(host) && !isAddress(host) && !slices.Contains(a.AllowedHosts, host)
}

// Misdirected returns, for a listener of another package at an address, why it does not answer under the Host of a request;
// "" where it does, as always off loopback.
func (a *Access) Misdirected(host, address string) (detail string) {
	if own := hostname(address); isLoopback(own) && a.foreignHost(host, own) {
		return misdirection(host)
	}
	return ""
}

func misdirection(host string) string {
	return "Host " + truncate(host) + " is not known to be a name of this listener: a web page could have had it resolve to here. " +
		"Call the listener by its address, or add the name to access.allowed_hosts in topology.yaml."
}

// misdirected answers a request under a foreign host.
func (c *call) misdirected() {
	detail := misdirection(c.hostField())
	c.logRefusal("misdirected", detail)
	c.refuse(problem{kind: kindMisdirected, detail: detail})
}

// hostname is the host of a Host field or of an address to listen on, in lower case,
// without port and without the dot of a full name.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLoopback reports whether a host is this machine, for every browser and resolver.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.IsLoopback()
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
