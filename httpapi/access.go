package httpapi

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	// AllowedHosts are names of the listeners besides that of Options.Address, in lower
	// case and without port.
	AllowedHosts []string
}

// Token is a secret that a caller may present, kept as its SHA-256. The secret
// should be random and long: a plain hash does not protect a guessable one.
type Token struct {
	Name   string // of the caller, for the log
	SHA256 [sha256.Size]byte
}

// maxTokenLine bounds a line of a tokens file; name, hash and blanks need less.
const maxTokenLine = 1024

// ParseTokens reads lines of "name sha256hex". Blank lines, and text from a "#"
// that begins a line or follows a blank, are skipped. Names are ids and may
// repeat, so that an old and a new token of one caller can overlap; a hash may
// not. Errors name the line, never its content, which may be a secret that
// was not hashed.
func ParseTokens(r io.Reader) ([]Token, error) {
	var tokens []Token
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxTokenLine), maxTokenLine)
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
		t, err := parseToken(fields)
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

func parseToken(fields []string) (Token, error) {
	if len(fields) != 2 {
		return Token{}, fmt.Errorf("want a name and a SHA-256 in hex, found %d fields", len(fields))
	}
	t := Token{Name: fields[0]}
	if err := quota.ValidID(t.Name); err != nil {
		return Token{}, fmt.Errorf("the name %w", err)
	}
	if len(fields[1]) != hex.EncodedLen(len(t.SHA256)) {
		return Token{}, fmt.Errorf("a SHA-256 has %d hex digits, found %d characters", hex.EncodedLen(len(t.SHA256)), len(fields[1]))
	}
	if _, err := hex.Decode(t.SHA256[:], []byte(fields[1])); err != nil {
		return Token{}, errors.New("a SHA-256 has only hex digits")
	}
	return t, nil
}

// tokenHeader carries a service's token where Authorization is the end user's.
const tokenHeader = "X-Regiond-Token"

// authenticate returns the name of the caller, or in detail why it may not use
// the endpoint.
func (a *Access) authenticate(g guard, r *http.Request) (caller, detail string) {
	switch {
	case g == guardNone:
		return "", ""
	case g == guardAdmin || g == guardMetrics:
		if len(a.AdminTokens) == 0 {
			return "", ""
		}
		return findToken(a.AdminTokens, r, true)
	case len(a.Tokens) == 0 && !a.ClientCA:
		return "", ""
	}
	if a.ClientCA && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		if leaf.Subject.CommonName == "" && len(leaf.DNSNames) > 0 {
			return leaf.DNSNames[0], ""
		}
		return leaf.Subject.CommonName, ""
	}
	return findToken(a.Tokens, r, !g.forwardAuth())
}

// findToken compares with every token in time that depends only on how many
// there are. X-Regiond-Token wins over Authorization.
func findToken(tokens []Token, r *http.Request, bearer bool) (caller, detail string) {
	secret, detail := presented(r.Header, bearer)
	if detail != "" {
		return "", detail
	}
	sum := sha256.Sum256([]byte(secret))
	for i := range tokens {
		if subtle.ConstantTimeCompare(sum[:], tokens[i].SHA256[:]) == 1 {
			caller = tokens[i].Name
		}
	}
	if caller == "" {
		return "", "the token is not known"
	}
	return caller, ""
}

func presented(h http.Header, bearer bool) (secret, detail string) {
	if own := h[tokenHeader]; len(own) == 1 && own[0] != "" {
		return own[0], ""
	} else if len(own) > 1 {
		return "", "header X-Regiond-Token is duplicated"
	}
	if !bearer {
		return "", "send the service's token in header X-Regiond-Token"
	}
	lines := h["Authorization"]
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
