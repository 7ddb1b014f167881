// Package paths finds the route of a request whose path a gateway passes on.
//
// A limit on POST /login is worth nothing when a client can write the same path
// so that we match "other" and the server behind the gateway serves "/login".
// Between the two a path is rewritten in few ways, but in any order and by several
// programs. So we compute all that it can become, and the strictest match counts.
//
//	paths.go     which route a request has
//	readings.go  all that a path can become
package paths

import (
	"errors"
	"fmt"
	"strings"

	"github.com/regiond/regiond/quota"
)

// Target returns the path of a request target as it was sent: without query,
// and without scheme and authority where a client sent the absolute form.
func Target(uri string) (string, error) {
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

// Route finds the route of a request, nil for none. The first route that matches a
// reading of the path counts for that reading. Where readings differ, a named route wins
// over none, and two different ones are refused: whichever was charged, the server might
// serve the other. A route skips only what every server reads alike.
func Route(f *quota.ForwardAuth, method, path string) (*quota.Route, error) {
	if method == "" || strings.Trim(method, tokenCharacters) != "" {
		return nil, errors.New("the method is not a token, such as POST")
	}
	capitals := strings.ToUpper(method)
	first, err := scanSent(path)
	if err != nil {
		return nil, fmt.Errorf("the path %w", err)
	}
	if first == 0 { // nearly all paths: there is one way to read it
		return firstMatch(f, capitals, path, capitals == method), nil
	}
	var rs readings
	alike, err := rs.read(path, first)
	if err != nil {
		return nil, fmt.Errorf("the path %w", err)
	}
	text := string(rs.text)
	var chosen, skip *quota.Route
	skipped := true // by every reading
	for _, reading := range rs.all {
		if !reading.decoded {
			continue
		}
		r := firstMatch(f, capitals, text[reading.from:reading.to], alike && capitals == method)
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

// scanSent is scan for a path as it was sent, where a broken escape and "#" are errors too.
func scanSent(path string) (steps, error) {
	found, err := scan(path)
	switch {
	case err != nil:
		return 0, err
	case found&broken != 0:
		return 0, errors.New("has a broken percent-escape")
	case found&cutQuery != 0 && strings.Contains(path, "#"):
		return 0, errors.New("must not contain #")
	}
	return found, nil
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
