package httpapi

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
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
	ScopeCheck   Scope = 1 << iota // "check": checks, batches and forward-auth
	ScopeReport                    // "report": charges above the limit, which can use up any quota
	ScopeUsage                     // "usage": reading what is left
	ScopeExplain                   // "explain": GET /v1/explain and ?explain=1, which show keys and other regions
	ScopeAdmin                     // "admin": the admin listener; who has it has ScopeMetrics too
	ScopeMetrics                   // "metrics": GET /metrics there, and nothing else

	// DefaultScopes are those of a token for the data listener, and of a client
	// certificate, where nothing else is said.
	DefaultScopes = ScopeCheck | ScopeReport | ScopeUsage
	// AdminScopes are those of a token for the admin listener, and of a client certificate.
	AdminScopes = ScopeAdmin | ScopeMetrics

	everyScope = ScopeMetrics<<1 - 1
)

// scopeNames are the words, by the number of a scope's bit.
var scopeNames = [...]string{"check", "report", "usage", "explain", "admin", "metrics"}

// String returns the words of s, with commas.
func (s Scope) String() string {
	var names []string
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

// everyone is the caller where nothing is required.
var everyone = Token{Scopes: everyScope}

// MayName reports whether the caller may act for a tenant.
func (t *Token) MayName(tenant string) bool {
	if t.Tenants == nil {
		return true
	}
	_, ok := slices.BinarySearch(t.Tenants, tenant)
	return ok
}

// maxTokenLine bounds a line of a tokens file, most of which can be a list of tenants.
const maxTokenLine = 64 << 10

// ParseTokens reads lines of "name sha256hex [scopes=check,usage] [tenants=acme,globex]".
// Without scopes a token has those of the argument. Blank lines, and text from a "#"
// that begins a line or follows a blank, are skipped. Names are ids and may
// repeat, so that an old and a new token of one caller can overlap; a hash may
// not. Errors name the line, never its content, which may be a secret that
// was not hashed.
func ParseTokens(r io.Reader, scopes Scope) ([]Token, error) {
	var tokens []Token
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1024), maxTokenLine)
	seen := map[[sha256.Size]byte]int{}
	n := 0
	for lines.Scan() {
		n++
		fields := strings.Fields(lines.Text())
		if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, "#") }); i >= 0 {
			fields = fields[:i]
		}
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields, scopes)
		if err != nil {
			return nil, fmt.Errorf("read tokens: line %d: %w", n, err)
		}
		if first := seen[t.SHA256]; first > 0 {
			return nil, fmt.Errorf("read tokens: line %d: the same hash is on line %d", n, first)
		}
		seen[t.SHA256] = n
		tokens = append(tokens, t)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read tokens: line %d: %w", n+1, err)
	}
	return tokens, nil
}

func parseToken(fields []string, scopes Scope) (Token, error) {
	if len(fields) < 2 {
		return Token{}, errors.New("want a name and a SHA-256 in hex, found 1 field")
	}
	t := Token{Name: fields[0], Scopes: scopes}
	if err := quota.ValidID(t.Name); err != nil {
		return Token{}, fmt.Errorf("the name %w", err)
	}
	if len(fields[1]) != hex.EncodedLen(len(t.SHA256)) {
		return Token{}, fmt.Errorf("a SHA-256 has %d hex digits, found %d characters", hex.EncodedLen(len(t.SHA256)), len(fields[1]))
	}
	if _, err := hex.Decode(t.SHA256[:], []byte(fields[1])); err != nil {
		return Token{}, errors.New("a SHA-256 has only hex digits")
	}
	for i, field := range fields[2:] {
		words, isScopes := strings.CutPrefix(field, "scopes=")
		tenants, isTenants := strings.CutPrefix(field, "tenants=")
		var err error
		switch {
		case isScopes:
			t.Scopes, err = parseScopes(words)
		case isTenants:
			t.Tenants, err = parseTenants(tenants)
		default:
			err = fmt.Errorf("field %d is neither scopes= nor tenants=", i+3)
		}
		if err != nil {
			return Token{}, err
		}
	}
	return t, nil
}

func parseScopes(words string) (s Scope, err error) {
	for word := range strings.SplitSeq(words, ",") {
		i := slices.Index(scopeNames[:], word)
		if i < 0 {
			return 0, errors.New("scopes= has a word that is none of " + strings.Join(scopeNames[:], ", "))
		}
		s |= 1 << i
	}
	if s&ScopeAdmin != 0 {
		s |= AdminScopes
	}
	return s, nil
}

func parseTenants(ids string) ([]string, error) {
	tenants := strings.Split(ids, ",")
	for i, id := range tenants {
		if err := quota.ValidID(id); err != nil {
			return nil, fmt.Errorf("tenant %d of tenants= %w", i+1, err)
		}
	}
	slices.Sort(tenants)
	return tenants, nil
}

// tokenHeader carries a service's token where Authorization is the end user's.
const tokenHeader = "X-Regiond-Token"

// credentials are what a caller has shown.
type credentials interface {
	values(name string) []string         // lines of a header field
	certificates() [][]*x509.Certificate // the client's, as it was verified
}

// foreign are those of a call that did not come over HTTP.
type foreign struct {
	header func(name string) []string
	chains [][]*x509.Certificate
}

func (f foreign) values(name string) []string         { return f.header(name) }
func (f foreign) certificates() [][]*x509.Certificate { return f.chains }

// Caller returns who makes a call of the data listener over another protocol, or in detail why that is not known. header
// returns the lines of a header field, and chains are those of the client's verified certificate.
func (a *Access) Caller(header func(name string) []string, chains [][]*x509.Certificate) (caller *Token, detail string) {
	return a.authenticate(guardData, foreign{header, chains})
}

// authenticate returns the caller of an endpoint, or in detail why it is not known.
func (a *Access) authenticate(g guard, x credentials) (caller *Token, detail string) {
	switch {
	case g == guardNone || g == guardLogin:
		return &everyone, ""
	case g.admin() || g == guardMetrics:
		if len(a.AdminTokens) == 0 && len(a.AdminClientNames) == 0 {
			return &everyone, ""
		}
		if name, ok := certificateName(x, a.AdminClientCAs, a.AdminClientNames); ok && len(a.AdminClientNames) > 0 {
			return &Token{Name: name, Scopes: AdminScopes}, ""
		}
		return findToken(a.AdminTokens, x, true)
	case len(a.Tokens) == 0 && !a.ClientCA:
		return &everyone, ""
	}
	if name, ok := certificateName(x, a.ClientCAs, a.ClientNames); ok && a.ClientCA {
		return &Token{Name: name, Scopes: DefaultScopes}, ""
	}
	return findToken(a.Tokens, x, !g.forwardAuth())
}

// certificateName returns the name by which the request's verified client certificate may
// call: one of those allowed, or any where that is empty.
func certificateName(x credentials, authorities *x509.CertPool, allowed []string) (name string, ok bool) {
	chains := x.certificates()
	if !slices.ContainsFunc(chains, func(chain []*x509.Certificate) bool {
		_, err := chain[len(chain)-1].Verify(x509.VerifyOptions{Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return authorities == nil || err == nil
	}) {
		return "", false
	}
	leaf := chains[0][0]
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

// findToken compares with every token in time that depends only on how many
// there are. X-Regiond-Token wins over Authorization.
func findToken(tokens []Token, x credentials, bearer bool) (caller *Token, detail string) {
	secret, detail := presented(x, bearer)
	if detail != "" {
		return nil, detail
	}
	sum := sha256.Sum256([]byte(secret))
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

func presented(x credentials, bearer bool) (secret, detail string) {
	if own := x.values(tokenHeader); len(own) == 1 && own[0] != "" {
		return own[0], ""
	} else if len(own) > 1 {
		return "", "header X-Regiond-Token is duplicated"
	}
	if !bearer {
		return "", "send the service's token in header X-Regiond-Token"
	}
	lines := x.values("Authorization")
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
