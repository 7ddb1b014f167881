package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/regiond/regiond/quota"
)

// A limit on POST /login is worth nothing when a client can write the same path
// so that we match "other" and the server behind the gateway serves "/login".
// Between the two a path is rewritten in few ways, but in any order and by several
// programs. So we compute all that it can become, and the strictest match counts.

// target returns the path of a request target as it was sent: without query,
// and without scheme and authority where a client sent the absolute form.
func target(uri string) (string, error) {
	path, _, _ := strings.Cut(uri, "?")
	if strings.HasPrefix(path, "/") {
		return path, nil
	}
	_, rest, ok := strings.Cut(path, "://")
	if !ok {
		return "", errors.New("must begin with /")
	}
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		return rest[slash:], nil
	}
	return "/", nil
}

// matchRoute finds the route of a request, nil for none. The first route that
// matches a reading of the path counts for that reading. Where readings differ, a
// named route wins over none, and two different ones are refused: whichever was
// charged, the server might serve the other. A route skips only what every server
// reads alike.
func matchRoute(f *quota.ForwardAuth, method, path string) (*quota.Route, error) {
	if method == "" || strings.Trim(method, tokenCharacters) != "" {
		return nil, errors.New("the method is not a token, such as POST")
	}
	capitals := strings.ToUpper(method)
	readings, alike, err := readingsOf(path)
	if err != nil {
		return nil, fmt.Errorf("the path %w", err)
	}
	var chosen, skip *quota.Route
	skipped := true // by every reading
	for i := range readings {
		if !readings[i].decoded {
			continue
		}
		r := firstMatch(f, capitals, readings[i].path, alike && capitals == method)
		switch {
		case r != nil && r.Skip:
			skip = r
			continue
		case r == nil || r == chosen:
		case chosen == nil:
			chosen = r
		default:
			return nil, fmt.Errorf("the path can be read as route %s and as route %s", chosen.Name, r.Name)
		}
		skipped = false
	}
	if skipped {
		return skip, nil
	}
	return chosen, nil
}

// firstMatch tries a reading; without maySkip the routes that skip are left out.
func firstMatch(f *quota.ForwardAuth, method, path string, maySkip bool) *quota.Route {
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	for i := range f.Routes {
		r := &f.Routes[i]
		if (maySkip || !r.Skip) && r.MatchesMethod(method) && r.MatchesPath(path, !r.Skip && !f.CaseSensitive) {
			return r
		}
	}
	return nil
}

// tokenCharacters are those of a method, as in RFC 9110.
const tokenCharacters = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// The work for one path is bounded: one of an honest client has one to ten readings, and
// rarely twenty.
const (
	maxReadings     = 64
	maxReadingBytes = 128 << 10 // of all readings together: eight of the longest path
)

// reading is what a path becomes on its way to the code that serves it.
type reading struct {
	path    string
	decoded bool // once at least, as every server does
}

// readingsOf returns the path as it was sent and all that the steps below make of it,
// applied in any order and any number of times: it holds the result of a gateway that
// decodes before it resolves dots and of a server behind it that decodes once more.
// alike is set when no step but decoding changes anything.
//
// What no honest client sends is an error: a broken escape, a control character, "#",
// and a backslash, however often it is encoded.
func readingsOf(path string) (all []reading, alike bool, err error) {
	if isOrdinary(path) {
		return []reading{{path, true}}, true, nil
	}
	if _, err := url.PathUnescape(path); err != nil {
		return nil, false, errors.New("has a broken percent-escape")
	}
	if strings.Contains(path, "#") {
		return nil, false, errors.New("must not contain #")
	}
	alike = true
	all = append(make([]reading, 0, 8), reading{path, !strings.Contains(path, "%")})
	for i := 0; i < len(all); i++ {
		from := all[i]
		switch {
		case strings.ContainsFunc(from.path, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return nil, false, errors.New("must not contain control characters")
		case strings.Contains(from.path, `\`):
			return nil, false, errors.New("must not contain a backslash, encoded or not")
		case len(all) > maxReadings, len(all)*len(path) > maxReadingBytes:
			return nil, false, errors.New("can be read in too many ways")
		}
		for n, next := range [...]string{
			unescape(from.path, func(c byte) bool { return c != '/' }),
			unescape(from.path, func(c byte) bool { return c == '/' }), // before or after the others, or never
			cutParameters(from.path),
			resolveDots(from.path),
			mergeSlashes(from.path),
			cutHost(from.path),
			cutQuery(from.path),
			strings.TrimRight(from.path, " "),
			strings.TrimRight(from.path, ". "), // as Windows opens files, and Caddy compares
		} {
			alike = alike && (n == 0 || next == from.path)
			to := reading{next, from.decoded || n == 0}
			if !slices.Contains(all, to) {
				all = append(all, to)
			}
		}
	}
	return all, alike, nil
}

// isOrdinary reports whether there is one way to read a path: nothing encoded, no
// parameters, no empty or dot segments. Nearly all paths are ordinary.
func isOrdinary(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case c < ' ', c == 0x7f, c == '%', c == ';', c == '\\', c == '#':
			return false
		case c == '/' && i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.'):
			return false
		}
	}
	return !strings.HasSuffix(path, ".") && !strings.HasSuffix(path, " ")
}

// unescape decodes the escapes of the bytes that which selects. Others and broken ones stay.
func unescape(path string, which func(byte) bool) string {
	if !strings.Contains(path, "%") {
		return path
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if c, err := strconv.ParseUint(path[i+1:i+3], 16, 8); err == nil && which(byte(c)) {
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, path[i])
	}
	return string(b)
}

// cutParameters removes what follows ";" in each segment.
func cutParameters(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i], _, _ = strings.Cut(s, ";")
	}
	return strings.Join(segments, "/")
}

// resolveDots removes "." segments, and ".." segments with the one before, which may be
// empty: servers that merge slashes first do not meet that case.
func resolveDots(path string) string {
	if !strings.Contains(path, "/.") {
		return path
	}
	segments := strings.Split(path, "/")[1:]
	kept := segments[:0]
	for i, s := range segments {
		if s == ".." {
			kept = kept[:max(0, len(kept)-1)]
		}
		if s != "." && s != ".." {
			kept = append(kept, s)
		} else if i == len(segments)-1 {
			kept = append(kept, "")
		}
	}
	return "/" + strings.Join(kept, "/")
}

func mergeSlashes(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}

// cutHost removes what a server that resolves the target as a reference takes for a
// host: //host/login is /login.
func cutHost(path string) string {
	if !strings.HasPrefix(path, "//") {
		return path
	}
	_, rest, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	return "/" + rest
}

// cutQuery removes what follows "?" or "#" where a gateway decodes the path and does not
// encode it again: then /login%3Fx is /login.
func cutQuery(path string) string {
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		return path[:i]
	}
	return path
}
