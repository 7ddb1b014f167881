// Package access says who may call: tokens and client certificates, scopes, tenants, and the hosts under
// which a listener answers.
//
//	access.go    settings, and who a caller is by what a request shows
//	tokens.go    a tokens file
//	sessions.go  what a browser has in place of a token
//	host.go      names of a listener
//
// It is for the APIs over HTTP and gRPC. What an endpoint requires is theirs to say.
package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"slices"
	"strings"
)

// Access is who may call. The zero value admits everyone: bind to loopback or
// keep the network closed.
type Access struct {
	Tokens      []Token // of the data listener
	AdminTokens []Token // of the admin listener
	// ClientCA accepts a verified client certificate on the data listener in
	// place of a token. The listener's tls.Config verifies it.
	ClientCA bool
	// ClientNames are the common names and DNS names of the certificates that are
	// accepted; none means all that the authority has signed.
	ClientNames []string
	// AdminClientNames are the names of the verified client certificates that the admin
	// listener accepts in place of a token; none accepts none.
	AdminClientNames []string
	// ClientCAs and AdminClientCAs are the authorities of the listeners' tls.Config: what
	// another one vouched for when the connection began is worth nothing. nil is not checked.
	ClientCAs, AdminClientCAs *x509.CertPool
	// AllowedHosts are names of the listeners besides that of Options.Address, in lower
	// case and without port.
	AllowedHosts []string
}

// Scope is what a caller may do, as bits.
type Scope uint8

// The scopes, and the words for them in a tokens file.
const (
	Check   Scope = 1 << iota // "check": checks, batches and forward-auth
	Report                    // "report": charges above the limit, which can use up any quota
	Usage                     // "usage": reading what is left
	Explain                   // "explain": GET /v1/explain and ?explain=1, which show keys and other regions
	Admin                     // "admin": the admin listener; who has it has Metrics and Limits too
	Metrics                   // "metrics": GET /metrics there, and nothing else
	Limits                    // "limits": overrides there, and nothing else
	// UsageOfAll is to list what all tenants have used. It has no word of its own: who has Usage in so many words has it too.
	UsageOfAll

	// DefaultScopes are those of a token for the data listener, and of a client
	// certificate, where nothing else is said.
	DefaultScopes = Check | Report | Usage
	// AdminScopes are those of a token for the admin listener, and of a client certificate.
	AdminScopes = Admin | Metrics | Limits
)

// scopeNames are the words, by the number of a scope's bit.
var scopeNames = [...]string{"check", "report", "usage", "explain", "admin", "metrics", "limits"}

// String returns the words of s, with commas.
func (s Scope) String() string {
	var names []string
	if s&UsageOfAll != 0 {
		s |= Usage
	}
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Token is a secret that a caller may present, kept as its SHA-256. The secret
// should be random and long: a plain hash does not protect a guessable one.
type Token struct {
	Name   string // of the caller, for the log
	SHA256 [sha256.Size]byte
	Scopes Scope
	// Tenants are those that the caller may name, sorted; nil means all. A token that is
	// held to tenants reads no metrics, profiles or regions, which show all of them.
	Tenants []string
}

// Everyone is the caller where nothing is required.
func Everyone() *Token { return &everyone }

// everyone is shared and never changed.
var everyone = Token{Scopes: ^Scope(0)}

// MayName reports whether the caller may act for a tenant.
func (t *Token) MayName(tenant string) bool {
	if t.Tenants == nil {
		return true
	}
	_, ok := slices.BinarySearch(t.Tenants, tenant)
	return ok
}

// TokenHeader carries a service's token where Authorization is the end user's.
const TokenHeader = "X-Regiond-Token"

// Shown is what a request shows of its caller.
type Shown struct {
	Header interface{ Values(name string) []string } // lines of a header field
	Chains [][]*x509.Certificate                     // of the client's certificate, as it was verified
}

// Caller returns who makes a call of the data listener, or in detail why that is not known. bearer is
// whether Authorization is the caller's own.
func (a *Access) Caller(s Shown, bearer bool) (caller *Token, detail string) {
	if len(a.Tokens) == 0 && !a.ClientCA {
		return Everyone(), ""
	}
	if name, ok := s.certificate(a.ClientCAs, a.ClientNames); ok && a.ClientCA {
		return &Token{Name: name, Scopes: DefaultScopes}, ""
	}
	return s.token(a.Tokens, bearer)
}

// Admin returns who makes a call of the admin listener, or in detail why that is not known.
func (a *Access) Admin(s Shown) (caller *Token, detail string) {
	if a.AdminIsOpen() {
		return Everyone(), ""
	}
	if name, ok := s.certificate(a.AdminClientCAs, a.AdminClientNames); ok && len(a.AdminClientNames) > 0 {
		return &Token{Name: name, Scopes: AdminScopes}, ""
	}
	return s.token(a.AdminTokens, true)
}

// AdminIsOpen reports whether the admin listener admits everyone.
func (a *Access) AdminIsOpen() bool { return len(a.AdminTokens) == 0 && len(a.AdminClientNames) == 0 }

// AdminToken returns the token of the admin listener by the hash of its secret, or in detail why it is not known.
func (a *Access) AdminToken(sum [sha256.Size]byte) (caller *Token, detail string) {
	return find(a.AdminTokens, sum)
}

// certificate returns the name by which the verified client certificate may
// call: one of those allowed, or any where that is empty.
func (s Shown) certificate(authorities *x509.CertPool, allowed []string) (name string, ok bool) {
	if !slices.ContainsFunc(s.Chains, func(chain []*x509.Certificate) bool {
		_, err := chain[len(chain)-1].Verify(x509.VerifyOptions{Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return authorities == nil || err == nil
	}) {
		return "", false
	}
	leaf := s.Chains[0][0]
	names := leaf.DNSNames
	if leaf.Subject.CommonName != "" {
		names = append([]string{leaf.Subject.CommonName}, names...)
	}
	for _, name := range names {
		if len(allowed) == 0 || slices.Contains(allowed, name) {
			return name, true
		}
	}
	return "", len(allowed) == 0
}

// token returns whose token a request has.
func (s Shown) token(tokens []Token, bearer bool) (caller *Token, detail string) {
	secret, detail := s.Secret(bearer)
	if detail != "" {
		return nil, detail
	}
	return find(tokens, sha256.Sum256([]byte(secret)))
}

// find compares with every token in time that depends only on how many there are.
func find(tokens []Token, sum [sha256.Size]byte) (caller *Token, detail string) {
	for i := range tokens {
		if subtle.ConstantTimeCompare(sum[:], tokens[i].SHA256[:]) == 1 {
			caller = &tokens[i]
		}
	}
	if caller == nil {
		return nil, "the token is not known"
	}
	return caller, ""
}

// Secret returns the token of a request, or why it has none. X-Regiond-Token wins over Authorization.
func (s Shown) Secret(bearer bool) (secret, detail string) {
	if own := s.Header.Values(TokenHeader); len(own) == 1 && own[0] != "" {
		return own[0], ""
	} else if len(own) > 1 {
		return "", "header X-Regiond-Token is duplicated"
	}
	if !bearer {
		return "", "send the service's token in header X-Regiond-Token"
	}
	lines := s.Header.Values("Authorization")
	if len(lines) != 1 {
		return "", "send one header Authorization: Bearer, or X-Regiond-Token"
	}
	scheme, secret, _ := strings.Cut(lines[0], " ")
	secret = strings.TrimLeft(secret, " ")
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return "", "the scheme of header Authorization must be Bearer, followed by a token"
	}
	return secret, ""
}
