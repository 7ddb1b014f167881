package access

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

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
	if s&Usage != 0 {
		s |= UsageOfAll
	}
	if s&Admin != 0 {
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
