package access_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/regiond/regiond/httpapi/access"
)

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestParseTokens(t *testing.T) {
	a, b := hashOf("a"), hashOf("b")
	rows := []struct {
		name, file string
		want       string // names, or the error
	}{
		{"two", "gw " + a + "\nother " + b + "\n", "gw other"},
		{"comments and blanks", "# who\n\n  gw\t" + a + "  # since May\r\n", "gw"},
		{"hash sign in a name", "gw#1 " + a, "gw#1"},
		{"capitals", "gw " + strings.ToUpper(a), "gw"},
		{"rotation", "gw " + a + "\ngw " + b, "gw gw"},
		{"empty", "", ""},
		{"one word", "gw " + a + "\n" + b + "\n", "read tokens: line 2: want a name and a SHA-256 in hex, found 1 field"},
		{"three words", "gw " + a + " x", "read tokens: line 1: field 3 is neither scopes= nor tenants="},
		{"a secret as it is", "\ngw hunter2", "read tokens: line 2: a SHA-256 has 64 hex digits, found 7 characters"},
		{"no hex", "gw " + strings.Repeat("z", 64), "read tokens: line 1: a SHA-256 has only hex digits"},
		{"scopes", "gw " + a + " scopes=check,explain tenants=b,a # both", "gw"},
		{"an unknown scope", "gw " + a + " scopes=hunter2", "read tokens: line 1: scopes= has a word that is none of check, report, usage, explain, admin, metrics"},
		{"no scope", "gw " + a + " scopes=", "read tokens: line 1: scopes= has a word that is none of"},
		{"no tenant", "gw " + a + " tenants=a,,b", "read tokens: line 1: tenant 2 of tenants= must not be empty"},
		{"bad name", "g{w " + a, "read tokens: line 1: the name must be printable ASCII"},
		{"same hash", "gw " + a + "\n#\nother " + a, "read tokens: line 3: the same hash is on line 1"},
		{"long line", "gw " + a + "\ngw " + strings.Repeat("a", 70_000), "read tokens: line 2: bufio.Scanner: token too long"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			tokens, err := access.ParseTokens(strings.NewReader(row.file), access.DefaultScopes)
			var names []string
			for _, tok := range tokens {
				names = append(names, tok.Name)
			}
			got := strings.Join(names, " ")
			if err != nil {
				got = err.Error()
			}
			if got != row.want && (err == nil || !strings.HasPrefix(got, row.want)) {
				t.Errorf("got %q, want %q", got, row.want)
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("the error shows a secret: %q", got)
			}
		})
	}
}
