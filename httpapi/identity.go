package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/regiond/regiond/quota"
)

// hashedBytes is how much of a SHA-256 stands for a hashed header: 128 bits are
// enough that two tokens never meet, and half as long in every key.
const hashedBytes = 16

// identify reads whom a gateway's request is for. Any doubt is an error, since
// its text reaches the end user and says which header broke which rule, never
// what the header held.
func (f *ForwardAuth) identify(r *http.Request) (tenant string, dims quota.Dimensions, err error) {
	if err := f.refuseAliases(r.Header); err != nil {
		return "", nil, err
	}
	tenant, err = soleValue(r.Header, f.TenantHeader)
	switch {
	case err != nil:
		return "", nil, err
	case tenant != "":
		if err := validIdentity(f.TenantHeader, tenant); err != nil {
			return "", nil, err
		}
	case !f.Anonymous:
		return "", nil, fmt.Errorf("header %s is missing: the gateway must set it to the tenant", f.TenantHeader)
	default:
		tenant = AnonymousTenant
	}
	dims = make(quota.Dimensions, 0, len(f.Dimensions)+1)
	for i := range f.Dimensions {
		value, err := f.dimension(&f.Dimensions[i], r)
		if err != nil {
			return "", nil, err
		}
		if value != "" {
			dims = append(dims, quota.Dimension{Name: f.Dimensions[i].Name, Value: value})
		}
	}
	return tenant, dims, nil
}

// dimension returns "" when the request does not have it.
func (f *ForwardAuth) dimension(s *DimensionSource, r *http.Request) (string, error) {
	if s.ClientIP {
		addr := clientIP(r.RemoteAddr, r.Header["X-Forwarded-For"], f.TrustedProxies)
		if !addr.IsValid() {
			return "", nil
		}
		return ipValue(addr), nil
	}
	value, err := soleValue(r.Header, s.Header)
	if err != nil || value == "" {
		return "", err
	}
	if s.Hash {
		sum := sha256.Sum256([]byte(value))
		return hex.EncodeToString(sum[:hashedBytes]), nil
	}
	return value, validIdentity(s.Header, value)
}

// soleValue returns the value of a header that may stand once, "" when it is
// missing or empty.
func soleValue(h http.Header, name string) (string, error) {
	switch lines := h.Values(name); len(lines) {
	case 0:
		return "", nil
	case 1:
		return lines[0], nil
	default:
		return "", fmt.Errorf("header %s stands %d times: the gateway must overwrite it, not add to it", name, len(lines))
	}
}

// validIdentity also refuses commas: several gateways join duplicated lines
// with one, and a joined identity is as doubtful as a duplicated one.
func validIdentity(header, value string) error {
	if err := quota.ValidID(value); err != nil {
		return fmt.Errorf("header %s %w", header, err)
	}
	if strings.Contains(value, ",") {
		return fmt.Errorf("header %s must not contain a comma, which is how gateways join duplicated lines", header)
	}
	return nil
}

// refuseAliases refuses X_Tenant and X.Tenant beside a configured X-Tenant:
// servers that map "_" or "." to "-" would see another identity than we do.
func (f *ForwardAuth) refuseAliases(h http.Header) error {
	for name := range h {
		if !strings.ContainsAny(name, "_.") {
			continue
		}
		if sameHeader(name, f.TenantHeader) {
			return fmt.Errorf("header %s has an alias written with _ or . in this request", f.TenantHeader)
		}
		for i := range f.Dimensions {
			if sameHeader(name, f.Dimensions[i].Header) {
				return fmt.Errorf("header %s has an alias written with _ or . in this request", f.Dimensions[i].Header)
			}
		}
	}
	return nil
}

// sameHeader compares an alias with a configured name, without regard to case.
func sameHeader(alias, name string) bool {
	if len(alias) != len(name) {
		return false
	}
	for i := range len(name) {
		a := alias[i]
		if a == '_' || a == '.' {
			a = '-'
		}
		if lower(a) != lower(name[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
