package httpapi

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A limit on POST /login is worth nothing when a client can write the same path
// so that we read "other" and the server behind the gateway reads "/login".
// Servers differ in three habits, so a path that depends on one of them is read
// in every way, and the strictest understanding counts (see ForwardAuth.route).
type reading uint8

const (
	// splitEncoded: %2F, %5C and \ separate segments like /.
	splitEncoded reading = 1 << iota
	// stripParams: from ";" to the end of its segment is not part of the path.
	stripParams
	// resolveDots: "." and ".." segments are walked.
	resolveDots
)

// target returns the path of a request target as it was sent: without query,
// and without scheme and authority where a client sent the absolute form.
func target(uri string) (string, error) {
	path, _, _ := strings.Cut(uri, "?")
	if !strings.HasPrefix(path, "/") {
		_, rest, ok := strings.Cut(path, "://")
		if !ok {
			return "", errors.New("must begin with /")
		}
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			return "/", nil
		}
		path = rest[slash:]
	}
	return path, nil
}

// habits returns the habits that could change how the path is read.
func habits(path string) reading {
	var h reading
	encoded := strings.Contains(path, "%")
	if strings.Contains(path, `\`) || encoded {
		h |= splitEncoded
	}
	if strings.Contains(path, ";") || encoded {
		h |= stripParams
	}
	if strings.Contains(path, ".") || encoded {
		h |= resolveDots
	}
	return h
}

// readPath decodes the path once and cleans it: slashes are merged, a trailing
// one is dropped, and the habits in h are applied. Without splitEncoded, an
// encoded separator stays as the three characters it was sent as. What no
// honest client sends is an error: a broken escape, a control character, "#".
func readPath(path string, h reading) (string, error) {
	if !strings.HasPrefix(path, "/") {
		return "", errors.New("must begin with /")
	}
	decoded, err := decodePath(path, h)
	if err != nil {
		return "", err
	}
	if isClean(decoded) {
		return decoded, nil
	}
	var kept []string
	for segment := range strings.SplitSeq(decoded, "/") {
		if h&stripParams != 0 {
			segment, _, _ = strings.Cut(segment, ";")
		}
		switch {
		case segment == "", segment == "." && h&resolveDots != 0:
		case segment == ".." && h&resolveDots != 0:
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, segment)
		}
	}
	return "/" + strings.Join(kept, "/"), nil
}

// isClean recognises most paths that real clients send, to save the splitting.
func isClean(path string) bool {
	return path == "/" || !strings.Contains(path, ";") && !strings.Contains(path, "//") &&
		!strings.Contains(path, "/.") && !strings.HasSuffix(path, "/")
}

func decodePath(path string, h reading) (string, error) {
	if i := strings.IndexFunc(path, suspicious); i < 0 {
		return path, nil
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], path[i] == '%'
		if c == '#' {
			return "", errors.New("must not contain #")
		}
		if escaped {
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return "", fmt.Errorf("has a broken percent-escape at byte %d", i)
			}
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			i += 2
		}
		if c < ' ' || c == 0x7f {
			return "", errors.New("must not contain control characters")
		}
		separator := c == '\\' || c == '/' && escaped
		switch {
		case separator && h&splitEncoded != 0:
			b = append(b, '/')
		case separator && escaped:
			b = append(b, '%', upper(path[i-1]), upper(path[i]))
		default:
			b = append(b, c)
		}
	}
	return string(b), nil
}

func suspicious(r rune) bool { return r < ' ' || r == 0x7f || r == '%' || r == '\\' || r == '#' }

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func upper(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 'A'
	}
	return c
}

// route finds the route of a request, nil for none. The first route that
// matches a reading stands for that reading. Where readings differ, a route
// that skips never wins, a named one wins over none, and two different ones are
// refused: whichever was charged, the server might serve the other.
func (f *ForwardAuth) route(method, path string) (*Route, error) {
	found, err := f.readings(method, path)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	first := found[0]
	if !slices.ContainsFunc(found, func(r *Route) bool { return r != first }) {
		return first, nil
	}
	var chosen *Route
	for _, r := range found {
		if r == nil || r.Skip || r == chosen {
			continue
		}
		if chosen != nil {
			return nil, fmt.Errorf("can be read as route %s and as route %s", chosen.Name, r.Name)
		}
		chosen = r
	}
	return chosen, nil
}

// readings returns the first matching route, or nil, of each way to read path.
func (f *ForwardAuth) readings(method, path string) ([]*Route, error) {
	open := habits(path)
	found := make([]*Route, 0, 8)
	for h := range reading(8) {
		if h&^open != 0 {
			continue
		}
		cleaned, err := readPath(path, h)
		if err != nil {
			return nil, err
		}
		found = append(found, f.match(method, cleaned))
	}
	return found, nil
}

func (f *ForwardAuth) match(method, path string) *Route {
	for i := range f.Routes {
		if r := &f.Routes[i]; r.matches(method, path) {
			return r
		}
	}
	return nil
}

func (r *Route) matches(method, path string) bool {
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
