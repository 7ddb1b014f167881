package httpapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// hashedBytes is how much of a SHA-256 replaces a hashed header: 128 bits are
// enough that two tokens never collide, and half as long in every key.
const hashedBytes = 16

// identify reads the tenant and dimensions of a gateway's request, but for what the
// gateway's configuration says. Any doubt is an error; its text reaches the end user and
// names the header and the rule, never the value.
func identify(f *quota.ForwardAuth, r *Request, said *Said) (id quota.Request, err error) {
	if err := refuseAliases(f, r.Header); err != nil {
		return id, err
	}
	if id.Tenant = said.Tenant; id.Tenant == "" && !said.NoTenant {
		id.Tenant, err = identityHeader(r.Header, f.Tenant.Header)
	}
	anonymous := false
	switch {
	case err != nil:
		return id, err
	case id.Tenant != "":
	case f.Missing == quota.MissingAnonymous:
		id.Tenant, anonymous = quota.AnonymousTenant, true
	case said.NoTenant:
		return id, errors.New("the request has no tenant where the gateway's configuration says that it is")
	default:
		return id, fmt.Errorf("header %s is missing: the gateway must set it to the tenant", f.Tenant.Header)
	}
	if id.TenantPolicy, err = tenantPolicy(f, r, said); err != nil {
		return id, err
	}
	if anonymous { // of which nothing was verified
		id.TenantPolicy = ""
	}
	if f.PolicyFrom != nil {
		id.PolicyValues = f.PolicyFrom.Policies
	}
	id.Dimensions = append(make(quota.Dimensions, 0, len(f.Dimensions)+len(said.Dimensions)+1), said.Dimensions...)
	id.Dimensions = slices.DeleteFunc(id.Dimensions, func(d quota.Dimension) bool { return d.Value == "" })
	for i := range f.Dimensions {
		name := f.Dimensions[i].Name
		if slices.ContainsFunc(said.Dimensions, func(d quota.Dimension) bool { return d.Name == name }) {
			continue
		}
		value, err := dimensionValue(f, &f.Dimensions[i], r)
		if err != nil {
			return id, err
		}
		if value != "" {
			id.Dimensions = append(id.Dimensions, quota.Dimension{Name: name, Value: value})
		}
	}
	return id, nil
}

// tenantPolicy returns what the gateway has verified of the tenant's policy, "" for nothing. Its configuration wins over policy_from.
func tenantPolicy(f *quota.ForwardAuth, r *Request, said *Said) (value string, err error) {
	switch from := f.PolicyFrom; {
	case said.TenantPolicy != "" || said.Policy != "":
		return said.TenantPolicy, nil
	case from == nil || from.Header != "" && said.NoPolicy:
		return "", nil
	case from.Header != "":
		return identityHeader(r.Header, from.Header)
	case said.Metadata == nil:
		return "", nil
	default:
		if value, err = said.Metadata(from.Metadata); err != nil {
			err = fmt.Errorf("policy_from: %w", err)
		}
		return value, err
	}
}

// dimensionValue returns "" when the request does not have it.
func dimensionValue(f *quota.ForwardAuth, s *quota.DimensionSource, r *Request) (string, error) {
	switch {
	case s.ClientIP:
		if addr := clientIP(r.Remote.String(), r.Header.Values("X-Forwarded-For"), f.TrustedProxies); addr.IsValid() {
			return ipValue(addr, int(f.IPv6Prefix)), nil
		}
		return "", nil
	case s.Hash:
		value, err := soleValue(r.Header, s.Header)
		if value == "" {
			return "", err
		}
		sum := sha256.Sum256([]byte(value))
		return hex.EncodeToString(sum[:hashedBytes]), nil
	}
	return identityHeader(r.Header, s.Header)
}

// soleValue returns the value of a header that may be sent once, "" when it is
// missing or empty.
func soleValue(h Header, name string) (string, error) {
	switch lines := h.Values(name); len(lines) {
	case 0:
		return "", nil
	case 1:
		return lines[0], nil
	default:
		return "", fmt.Errorf("header %s was sent %d times: the gateway must overwrite it, not add to it", name, len(lines))
	}
}

// identityHeader returns the id in a header, "" when it has none. It also refuses
// commas: several gateways join duplicated lines with one.
func identityHeader(h Header, name string) (string, error) {
	value, err := soleValue(h, name)
	if value == "" {
		return "", err
	}
	if err := quota.ValidID(value); err != nil {
		return "", fmt.Errorf("header %s %w", name, err)
	}
	if strings.Contains(value, ",") {
		return "", fmt.Errorf("header %s must not contain a comma, which is how gateways join duplicated lines", name)
	}
	return value, nil
}

// refuseAliases refuses X_Tenant and X.Tenant beside a configured X-Tenant:
// servers that map "_" or "." to "-" would see another identity than we do.
func refuseAliases(f *quota.ForwardAuth, h Header) error {
	for name := range h.Names() {
		if !strings.ContainsAny(name, "_.") {
			continue
		}
		alias := ""
		if isAlias(name, f.Tenant.Header) {
			alias = f.Tenant.Header
		} else if from := f.PolicyFrom; from != nil && isAlias(name, from.Header) {
			alias = from.Header
		}
		for i := range f.Dimensions {
			if isAlias(name, f.Dimensions[i].Header) {
				alias = cmp.Or(alias, f.Dimensions[i].Header)
			}
		}
		if alias != "" {
			return fmt.Errorf("header %s has an alias written with _ or . in this request", alias)
		}
	}
	return nil
}

// isAlias reports whether name is header, without regard to case, once its "_" and "."
// are "-".
func isAlias(name, header string) bool {
	return len(name) == len(header) && strings.EqualFold(strings.ReplaceAll(strings.ReplaceAll(name, "_", "-"), ".", "-"), header)
}

// maxHops bounds how many hops of X-Forwarded-For are read.
const maxHops = 64

// clientIP returns the address that a request is attributed to: the right-most
// hop that is not a trusted proxy, since everything left of it could be forged.
// The peer itself is the first hop: when it is not trusted, X-Forwarded-For is
// not read. A hop that is no address ends the search, and the last good one
// counts. The result is invalid when the peer has no address, as on a Unix socket.
func clientIP(remote string, forwarded []string, trusted []netip.Prefix) netip.Addr {
	last, ok := parseHop(remote)
	if !ok || len(forwarded) == 0 {
		return last
	}
	list := strings.Join(forwarded, ",")
	for hops, more := 0, true; more && hops < maxHops && contains(trusted, last); hops++ {
		i := strings.LastIndexByte(list, ',')
		hop, ok := parseHop(list[i+1:])
		if !ok {
			break
		}
		last, list, more = hop, list[:max(i, 0)], i >= 0
	}
	return last
}

// parseHop reads an address as proxies write it: 192.0.2.1, 192.0.2.1:80,
// 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
func parseHop(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone(""), true
	}
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap().WithZone(""), err == nil
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ipValue is the dimension value of an address: of IPv6 a prefix of so many bits, by
// default quota.DefaultIPv6Prefix.
func ipValue(a netip.Addr, bits int) string {
	if a.Is6() {
		return netip.PrefixFrom(a, cmp.Or(bits, quota.DefaultIPv6Prefix)).Masked().String()
	}
	return a.String()
}
