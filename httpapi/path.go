package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/regiond/regiond/quota"
)

// A limit on POST /login is worth nothing when a client can write the same path
// so that we match "other" and the server behind the gateway serves "/login".
// Servers differ in three rules, so a path that depends on one of them is
// cleaned in every way, and the strictest match counts (see matchRoute).
type variant uint8

const (
	// splitEncoded: %2F, %5C and \ separate segments like /.
	splitEncoded variant = 1 << iota
	// stripParams: from ";" to the end of its segment is not part of the path.
	stripParams
	// resolveDots: "." and ".." segments are resolved.
	resolveDots
	variants // how many combinations there are
)

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

// rules returns the rules that could change how the path is read.
func rules(path string) variant {
	var v variant
	encoded := strings.Contains(path, "%")
	if strings.Contains(path, `\`) || encoded {
		v |= splitEncoded
	}
	if strings.Contains(path, ";") || encoded {
		v |= stripParams
	}
	if strings.Contains(path, ".") || encoded {
		v |= resolveDots
	}
	return v
}

// cleanPath decodes the path once and cleans it: slashes are merged, a trailing
// one is dropped, and the rules of v are applied. Without splitEncoded, an
// encoded separator stays as the three characters that were sent. What no honest
// client sends is an error: a broken escape, a control character, "#".
func cleanPath(path string, v variant) (string, error) {
	switch {
	case !strings.HasPrefix(path, "/"):
		return "", errors.New("must begin with /")
	case strings.Contains(path, "#"):
		return "", errors.New("must not contain #")
	}
	path, err := url.PathUnescape(separators(path, v))
	switch {
	case err != nil:
		return "", errors.New("has a broken percent-escape")
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", errors.New("must not contain control characters")
	}
	var kept []string
	for segment := range strings.SplitSeq(path, "/") {
		if v&stripParams != 0 {
			segment, _, _ = strings.Cut(segment, ";")
		}
		switch {
		case segment == "", segment == "." && v&resolveDots != 0:
		case segment == ".." && v&resolveDots != 0:
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/"), nil
}

// separators makes "/" of the encoded separators of a path, or escapes them
// once more, so that decoding leaves them.
func separators(path string, v variant) string {
	if !strings.ContainsAny(path, `%\`) {
		return path
	}
	if v&splitEncoded != 0 {
		return strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/", `\`, "/").Replace(path)
	}
	return strings.NewReplacer("%2f", "%252F", "%2F", "%252F", "%5c", "%255C", "%5C", "%255C").Replace(path)
}

// matchRoute finds the route of a request, nil for none. The first route that
// matches a variant of the path counts for that variant. Where variants differ,
// a route that skips never wins, a named one wins over none, and two different
// ones are refused: whichever was charged, the server might serve the other.
func matchRoute(routes []quota.Route, method, path string) (*quota.Route, error) {
	depends := rules(path)
	found := make([]*quota.Route, 0, variants)
	for v := range variants {
		if v&^depends != 0 {
			continue
		}
		cleaned, err := cleanPath(path, v)
		if err != nil {
			return nil, fmt.Errorf("the path %w", err)
		}
		i := slices.IndexFunc(routes, func(r quota.Route) bool { return matches(&r, method, cleaned) })
		if i < 0 {
			found = append(found, nil)
		} else {
			found = append(found, &routes[i])
		}
	}
	first := found[0]
	if !slices.ContainsFunc(found, func(r *quota.Route) bool { return r != first }) {
		return first, nil
	}
	var chosen *quota.Route
	for _, r := range found {
		if r == nil || r.Skip || r == chosen {
			continue
		}
		if chosen != nil {
			return nil, fmt.Errorf("the path can be read as route %s and as route %s", chosen.Name, r.Name)
		}
		chosen = r
	}
	return chosen, nil
}

func matches(r *quota.Route, method, path string) bool {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, method) {
		return false
	}
	base, prefix := strings.CutSuffix(r.Path, "/*")
	if !prefix {
		return path == r.Path
	}
	rest, ok := strings.CutPrefix(path, base)
	return ok && (rest == "" || rest[0] == '/')
}
