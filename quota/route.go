package quota

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Route names requests by method and path.
type Route struct {
	Name string `yaml:"name,required"`
	// Methods are in capitals; none means every method, and GET means HEAD too.
	Methods []string `yaml:"methods"`
	// Path is clean and absolute, "/login", or a prefix, "/search/*", which matches
	// /search and everything below it.
	Path string `yaml:"path,required"`
	Cost int64  `yaml:"cost"` // 1…MaxUnits; 0 with Skip
	Skip bool   `yaml:"skip"` // allow the request without counting it
}

// MatchesMethod reports whether the route has a method, which is in capitals.
func (r *Route) MatchesMethod(method string) bool {
	return len(r.Methods) == 0 || slices.Contains(r.Methods, method) ||
		method == http.MethodHead && slices.Contains(r.Methods, http.MethodGet)
}

// MatchesPath reports whether the route has a decoded path; fold ignores case. A path
// with a slash at its end is not the path without it, except below a prefix.
func (r *Route) MatchesPath(path string, fold bool) bool {
	base, prefix := strings.CutSuffix(r.Path, "/*")
	rest, ok := cutPrefix(path, base, fold)
	return ok && (rest == "" || prefix && rest[0] == '/')
}

func cutPrefix(s, prefix string, fold bool) (rest string, ok bool) {
	if !fold {
		return strings.CutPrefix(s, prefix)
	}
	for _, want := range prefix {
		got, size := utf8.DecodeRuneInString(s)
		if got != want && foldRune(got) != foldRune(want) {
			return "", false
		}
		s = s[size:]
	}
	return s, true
}

// foldRune maps all cases of a letter to one: also K, the sign of Kelvin, to k, which
// is what some servers that ignore case do.
func foldRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }
